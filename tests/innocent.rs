//! Those who do not use the module do not pay for it.

use crate::support::{Client, Cluster, Server, eventually};
use std::time::{Duration, Instant};

const LONG: u64 = 86_400_000;

/// How many filters the module has in the way of everybody's commands.
fn filters(client: &mut Client) -> u64 {
    let modules = client.info_text("modules");
    let ours = modules.lines().find(|line| line.contains("name=leasehold,")).unwrap();
    let number = ours.split("filters=").nth(1).and_then(|rest| rest.split(',').next());
    number.unwrap_or_else(|| panic!("{ours}")).parse().unwrap()
}

#[test]
fn commands_are_watched_only_while_somebody_waits() {
    let server = Server::start();
    let mut client = server.client();
    for owner in ["bob", "carol"] {
        assert_eq!(filters(&mut client), 0);
        client.grant("k", "alice", LONG);
        assert_eq!(client.acquire("k", "dave", LONG), None);
        assert_eq!(filters(&mut client), 0, "holding and trying need no watch");
        let mut waiter = server.client();
        waiter.send(format!("LOCK.ACQUIRE k {owner} {LONG} BLOCK 0"));
        eventually("the commands are watched", || match filters(&mut client) {
            1 => Ok(()),
            number => Err(number),
        });
        client.cmd("DEL k");
        waiter.receive();
        eventually("the watch is over", || match filters(&mut client) {
            0 => Ok(()),
            number => Err(number),
        });
        client.cmd("DEL k");
    }
}

/// One command in each of many lines, `{}` standing for a number.
const TRAFFIC: [&str; 5] =
    ["SET k{} v PX 100000", "EXPIRE k{} 100", "GET k{}", "DEL k{}", "SET k{} v"];

const KEYS: usize = 6_400;
const AT_ONCE: usize = 64;
const ROUNDS: usize = 40;

/// What a server without the module takes is 1.
const MOST: f64 = 1.03;

/// The same in a cluster, where every command passes a look at its name.
const MOST_IN_CLUSTER: f64 = 1.05;

struct Measured<'s> {
    server: &'s Server,
    client: Client,
    /// Of each round, by traffic; the last is that of connections.
    times: Vec<Vec<Duration>>,
}

impl<'s> Measured<'s> {
    fn new(server: &'s Server) -> Self {
        Self { client: server.client(), server, times: vec![Vec::new(); TRAFFIC.len() + 1] }
    }

    fn round(&mut self) {
        for (command, times) in TRAFFIC.iter().zip(&mut self.times) {
            let lines: Vec<_> =
                (0..KEYS).map(|key| command.replace("{}", &key.to_string())).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let mut taken = Duration::ZERO;
            for batch in lines.chunks(AT_ONCE) {
                let start = Instant::now();
                self.client.pipeline(batch);
                taken += start.elapsed();
            }
            times.push(taken);
        }
        let start = Instant::now();
        for _ in 0..500 {
            self.server.client().cmd("PING");
        }
        self.times[TRAFFIC.len()].push(start.elapsed());
    }

    /// The memory of a server with as many keys as a small one has.
    fn full(&mut self) -> f64 {
        self.client.cmd("FLUSHALL");
        self.client.cmd("DEBUG POPULATE 100000");
        self.memory()
    }

    fn memory(&mut self) -> f64 {
        self.client.info_field("memory", "used_memory").unwrap().parse().unwrap()
    }
}

/// The median of what this takes compared with that, round by round.
fn ratio(this: &[Duration], that: &[Duration]) -> f64 {
    let mut ratios: Vec<f64> =
        this.iter().zip(that).map(|(this, that)| this.as_secs_f64() / that.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// For a quiet machine, and the release build: see `make measure`.
#[test]
#[ignore = "it measures, and needs the machine for itself"]
fn what_innocent_traffic_pays() {
    let servers = [Server::builder().without_module().start(), Server::start(), Server::start()];
    let clusters = [
        Cluster::with(1, 0, |_, setup| setup.without_module()),
        Cluster::with(1, 0, |_, setup| setup),
    ];
    let [mut bare, mut unused, mut waited_at] = servers.each_ref().map(Measured::new);
    let [mut bare_node, mut node] = clusters.each_ref().map(|one| Measured::new(one.node(0)));
    waited_at.client.grant("contended", "alice", LONG);
    let mut waiter = waited_at.server.client();
    waiter.send(format!("LOCK.ACQUIRE contended bob {LONG} BLOCK 0"));
    let constant = unused.memory() - bare.memory();
    for round in 0..ROUNDS {
        // Whoever is first finds the processor's caches in another state.
        let mut all = [&mut bare, &mut unused, &mut waited_at, &mut bare_node, &mut node];
        all.rotate_left(round % 5);
        all.into_iter().for_each(Measured::round);
    }
    println!("without the module = 1       unused  unused in a cluster  somebody waits");
    let memory = unused.full() / bare.full();
    let constant = constant / 1024.0;
    println!("memory of 100,000 keys {memory:>12.3} ({constant:.0} kB, whatever they are)");
    let names = TRAFFIC.iter().copied().chain(["connect, PING, close"]);
    let (mut most, mut most_in_cluster) = (memory, 0.0_f64);
    for (number, name) in names.enumerate() {
        let against =
            |this: &Measured, that: &Measured| ratio(&this.times[number], &that.times[number]);
        let (alone, in_cluster) = (against(&unused, &bare), against(&node, &bare_node));
        let waited = against(&waited_at, &bare);
        println!("{name:22} {alone:>12.3} {in_cluster:>20.3} {waited:>15.3}");
        most = most.max(alone);
        most_in_cluster = most_in_cluster.max(in_cluster);
    }
    assert!(most <= MOST, "innocent traffic takes {most:.3} times as long");
    assert!(most_in_cluster <= MOST_IN_CLUSTER, "in a cluster {most_in_cluster:.3} times");
}
