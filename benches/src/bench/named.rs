//! Clients that name contended locks all the time: what that costs the waiters, and what it costs those clients.

use super::load::{Load, OKAY, Pattern, Reply, Shape, Work, compare, of_one};
use super::report::Report;
use super::statistics::quantile;
use super::table::Table;
use super::{Effort, cores};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::contended::Contended;
use testkit::traffic::Traffic;
use testkit::{Client, LineClient, Seed, Server, deadline, encoded, eventually};

/// More than the module looks at in one turn.
const CONTENDED: usize = 1_500;

/// A database that the other clients do not use.
const DATABASE: &str = "SELECT 5";

/// A hand-off that takes longer counts as never made.
const NEVER: Duration = Duration::from_secs(3);

/// The clients that name the contended locks meanwhile.
const TRAFFIC: [&str; 4] = [
    "nobody",
    "50 connections, 16 SET NX PX each",
    "3 without any permission, MGET of all",
    "4 not logged in, MGET of nine each",
];

/// What makes the lock free.
const CAUSES: [&str; 2] = ["DEL", "the end of the lease"];
pub(super) const END_OF_LEASE: usize = 1;

/// The number of contended locks, and of held locks that nobody waits for.
const WAITED_FOR: usize = 1_000;

/// The commands for one key, with `{}` for its name, and their replies.
const COMMANDS: [Pattern; 4] = [
    ("GET {}", &[Reply::Something, Reply::Something]),
    ("SET {} old NX PX 1000", &[Reply::Exactly(b"$-1")]),
    ("EXISTS {}", &[Reply::Exactly(b":1")]),
    // The last one, because it leaves a value that is no lock.
    ("SET {} old", &[OKAY]),
];

/// As redis-benchmark does with `-c 50 -P 16`.
const SHAPE: Shape = Shape { connections: 50, depth: 16 };

pub(crate) fn run(effort: Effort, report: &mut Report) {
    hand_offs(effort, report);
    those_who_name(effort, report);
}

fn hand_offs(effort: Effort, report: &mut Report) {
    let server = Server::start();
    let mut admin = server.client();
    admin.cmd("ACL SETUSER nobody on >secret");
    let contended = Contended::hold(&server, "lock:", effort.pick(50, CONTENDED, CONTENDED));
    let mut scene = Scene::on(&server);
    let mut times = vec![Vec::new(); TRAFFIC.len() * CAUSES.len()];
    for _ in 0..effort.pick(1, 5, 20) {
        for kind in 0..TRAFFIC.len() {
            let traffic = traffic(kind, &server, &mut admin, &contended);
            for cause in 0..CAUSES.len() {
                for _ in 0..effort.pick(1, 5, 20) {
                    let took = scene.hand_off(cause);
                    times[cause * TRAFFIC.len() + kind].push(took);
                    if took >= NEVER.as_secs_f64() {
                        break;
                    }
                }
            }
            drop(traffic);
            admin.cmd(["CONFIG", "SET", "requirepass", ""]);
            scene.observer.wait_until_waiters(contended.names.len() as u64);
        }
    }
    let mut page =
        Table::new(&["Freed by", "Meanwhile named by", "median", "19 of 20 within", "longest"]);
    let mut most = 0.0_f64;
    for (number, times) in times.iter_mut().enumerate() {
        times.sort_by(f64::total_cmp);
        let figures = [0.5, 0.95, 1.0].map(|share| quantile(times, share) * 1e3);
        if number % TRAFFIC.len() > 0 {
            most = most.max(quantile(times, 0.95));
        }
        let names = [CAUSES[number / TRAFFIC.len()], TRAFFIC[number % TRAFFIC.len()]];
        let figures = figures.map(|figure| format!("{figure:.2} ms"));
        page.row(names.map(str::to_owned).into_iter().chain(figures).collect());
    }
    report.table("named", &page);
    let what = format!("hand-off while {CONTENDED} other contended locks are named");
    report.target((&what, "19 of 20"), "≤ 5.0 ms", (most * 1e3, 2));
}

fn traffic(
    kind: usize,
    server: &Server,
    admin: &mut Client,
    contended: &Contended,
) -> Option<Traffic> {
    match kind {
        0 => None,
        1 => Some(Traffic::on(server, 50, "", contended.polls(&mut Seed::of(1)))),
        2 => Some(Traffic::on(server, 3, "AUTH nobody secret", contended.named_at_once())),
        _ => {
            // All other clients are connected and logged in.
            admin.cmd(["CONFIG", "SET", "requirepass", "secret"]);
            Some(Traffic::on(server, 4, "", contended.named_in_short()))
        }
    }
}

/// Locks that alice holds and bob waits for, one after the other.
pub(super) struct Scene {
    socket: PathBuf,
    holder: LineClient,
    waiter: LineClient,
    observer: Client,
    locks: usize,
}

impl Scene {
    pub(super) fn on(server: &Server) -> Self {
        let socket = server.socket();
        let (holder, mut waiter) = (line(&socket), line(&socket));
        waiter.set_deadline(Some(NEVER));
        let mut observer = server.client();
        observer.cmd(DATABASE);
        Self { socket, holder, waiter, observer, locks: 0 }
    }

    /// The seconds from what frees the lock to the reply to the waiter.
    pub(super) fn hand_off(&mut self, cause: usize) -> f64 {
        self.locks += 1;
        let key = format!("k{}", self.locks);
        Reply::Number.check(self.holder.ask(&encoded(format!("LOCK.ACQUIRE {key} alice 600000"))));
        self.waiter.send(&encoded(format!("LOCK.ACQUIRE {key} bob 600000 BLOCK 0")));
        eventually("bob waits", || match self.observer.info(&key).unwrap().waiters {
            1 => Ok(()),
            other => Err(other),
        });
        let late = match cause {
            0 => {
                let started = Instant::now();
                assert_eq!(self.holder.ask(&encoded(format!("DEL {key}"))), b":1");
                self.waiter.line_in_time().map(|fence| (Reply::Number.check(fence), started))
            }
            _ => {
                assert_eq!(self.holder.ask(&encoded(format!("LOCK.EXTEND {key} alice 20"))), b":1");
                let end = deadline(&mut self.observer, key.as_bytes());
                let left = end - self.observer.now();
                let started = Instant::now() + Duration::from_millis(left.max(0).unsigned_abs());
                self.waiter.line_in_time().map(|fence| (Reply::Number.check(fence), started))
            }
        };
        let Some(((), started)) = late else {
            // The waiter leaves, so that the next hand-off can be measured. A client that connects
            // now could not log in.
            self.observer.cmd(["CONFIG", "SET", "requirepass", ""]);
            self.waiter = line(&self.socket);
            self.waiter.set_deadline(Some(NEVER));
            return NEVER.as_secs_f64();
        };
        let took = Instant::now().saturating_duration_since(started);
        assert_eq!(self.holder.ask(&encoded(format!("LOCK.RELEASE {key} bob"))), b":1");
        took.as_secs_f64()
    }
}

fn line(socket: &Path) -> LineClient {
    let mut line = LineClient::over_unix(socket).unwrap();
    assert_eq!(line.ask(&encoded(DATABASE)), b"+OK");
    line
}

fn those_who_name(effort: Effort, report: &mut Report) {
    let server = Server::start();
    let locks = effort.pick(50, WAITED_FOR, WAITED_FOR);
    let contended = Contended::hold(&server, "lock:", locks);
    let mut client = server.client();
    let others: Vec<_> = contended.names.iter().map(|name| name.replace("lock", "held")).collect();
    for name in &others {
        client.grant(name, "holder", 3_600_000);
    }
    let _apart = cores::leave_the_last();
    cores::give_the_last_to(&server);
    let mut load = [Load::on(&server, SHAPE)];
    // Each lock is named several times in each round.
    let repeated = |names: &[String]| -> Vec<String> {
        let count = effort.pick(1, 32, 32) * SHAPE.connections * SHAPE.depth;
        names.iter().cycle().take(count).cloned().collect()
    };
    let names = [repeated(&contended.names), repeated(&others)];
    let mut table =
        Table::new(&["Names that nobody waits for = 1", "names that somebody waits for"]);
    let mut least = f64::INFINITY;
    for (command, replies) in COMMANDS {
        let works = names
            .each_ref()
            .map(|names| Work::of(SHAPE, names, |name| vec![of_one((command, replies), name)]));
        let turns = works.each_ref().map(|work| (0, vec![work]));
        let samples = compare(effort.pick(1, 20, 60), &mut load, &turns);
        // Twice the time is half the speed.
        let speed = samples[1][0].against(&samples[0][0]);
        least = least.min(speed.median);
        table.row(vec![command.to_owned(), speed.shown(3)]);
    }
    report.table("naming", &table);
    let what = format!("commands that name one of {WAITED_FOR} contended locks: speed");
    report.target((&what, "that name others"), "≥ 0.85 ×", (least, 3));
}
