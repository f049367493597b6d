//! What the module costs clients that use no locks.

use super::load::{Load, OKAY, ONE, Pattern, Reply, Shape, Work, of_one};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use super::{Effort, cores, in_turns};
use std::path::PathBuf;
use std::time::Instant;
use testkit::{Cluster, LineClient, Server, encoded};

/// A command for each of many keys, with `{}` for the number of the key, and the replies that it must get.
const TRAFFIC: [Pattern; 5] = [
    ("SET k{} v PX 100000", &[OKAY]),
    ("EXPIRE k{} 100", &[ONE]),
    ("GET k{}", &[Reply::Exactly(b"$1"), Reply::Exactly(b"v")]),
    ("DEL k{}", &[ONE]),
    ("SET k{} v", &[OKAY]),
];
const CONNECTING: &str = "connect, PING, close";

const SHAPE: Shape = Shape { connections: 1, depth: 64 };
const CONNECTIONS: usize = 500;

struct Place {
    load: Load,
    socket: PathBuf,
    /// Times by traffic and round. The last traffic is connecting.
    times: Vec<Vec<f64>>,
}

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let without = || Server::builder().without_module().start();
    let servers = [without(), Server::start(), Server::start(), without()];
    let clusters = [
        Cluster::with(1, 0, |_, setup| setup.without_module()),
        Cluster::with(1, 0, |_, setup| setup),
    ];
    let [alone, unused, waited_at, control] = &servers;
    waited_at.client().grant("contended", "alice", 86_400_000);
    let mut waiter = waited_at.client();
    waiter.send("LOCK.ACQUIRE contended bob 86400000 BLOCK 0");
    let constant = (memory(unused) - memory(alone)) / 1024.0;

    let _apart = cores::leave_the_last();
    let all = [alone, unused, waited_at, clusters[0].node(0), clusters[1].node(0), control];
    let mut places: Vec<Place> = all.iter().map(|server| Place::on(server)).collect();
    let keys: Vec<usize> = (0..effort.pick(64, 6_400, 6_400)).collect();
    let work = TRAFFIC.map(|one| Work::of(SHAPE, &keys, |key| vec![of_one(one, key)]));
    in_turns(effort.pick(1, 20, 60), places.len(), |_, one| {
        places[one].round(&work, effort.pick(1, CONNECTIONS, CONNECTIONS));
    });
    let grown = populated(unused) / populated(alone);

    // Two processes of one program differ too, by where their memory happens to be. What the module
    // costs is told from that by a second server without it.
    let columns = [
        "Without the module = 1",
        "another server without it",
        "unused",
        "unused in a cluster",
        "somebody waits",
    ];
    let mut table = Table::new(&columns);
    let mut most = [0.0_f64; 3];
    let names = TRAFFIC.iter().map(|(command, _)| *command).chain([CONNECTING]);
    for (number, name) in names.enumerate() {
        let against = |this: usize, that: usize| {
            Spread::of_ratios(&places[this].times[number], &places[that].times[number])
        };
        let ratios = [against(1, 0), against(4, 3), against(2, 0)];
        for (most, ratio) in most.iter_mut().zip(ratios) {
            *most = most.max(ratio.median);
        }
        let shown = [against(5, 0)].into_iter().chain(ratios).map(|ratio| ratio.shown(3));
        table.row([name.to_owned()].into_iter().chain(shown).collect());
    }
    let memory = format!("memory of 100,000 keys, and {constant:.0} kB");
    let none = || "–".to_owned();
    table.row(vec![memory, none(), format!("{grown:.3}"), none(), none()]);
    report.table("innocent", &table);
    let [unused, in_cluster, while_waiting] = most;
    for (what, measured, wanted) in [
        ("time of what has nothing to do with locks", unused.max(grown), "≤ 1.01 ×"),
        ("the same in a cluster", in_cluster, "≤ 1.01 ×"),
        // While somebody waits the module looks at the words of every command.
        ("the same while somebody waits", while_waiting, "≤ 1.05 ×"),
    ] {
        report.target((what, "without the module"), wanted, (measured, 3));
    }
}

impl Place {
    fn on(server: &Server) -> Self {
        cores::give_the_last_to(server);
        Self {
            load: Load::on(server, SHAPE),
            socket: server.socket(),
            times: vec![Vec::new(); TRAFFIC.len() + 1],
        }
    }

    fn round(&mut self, work: &[Work], connections: usize) {
        for (work, times) in work.iter().zip(&mut self.times) {
            times.push(self.load.measure(work).wall);
        }
        let ping = encoded("PING");
        let started = Instant::now();
        for _ in 0..connections {
            assert_eq!(LineClient::over_unix(&self.socket).unwrap().ask(&ping), b"+PONG");
        }
        self.times[TRAFFIC.len()].push(started.elapsed().as_secs_f64());
    }
}

fn memory(server: &Server) -> f64 {
    server.client().info_number("memory", "used_memory") as f64
}

/// The memory of a server with a hundred thousand small keys.
fn populated(server: &Server) -> f64 {
    server.cmd("FLUSHALL");
    server.cmd("DEBUG POPULATE 100000");
    memory(server)
}
