//! Whether it takes longer to hand a lock on that has thousands of waiters than one that has a few.

use super::load::ONE;
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use super::{Effort, in_turns};
use redis::Value;
use std::time::Instant;
use testkit::crowd::{Crowd, Received};
use testkit::{LineClient, Server, encoded, eventually};

/// How many clients wait for each lock, and how many such locks there are. With few waiters there
/// are many locks, so that no client is granted one twice within hundreds of rounds. The
/// processor's caches would still have the client's data.
const SIZES: [(usize, usize); 5] = [(2, 200), (10, 100), (100, 10), (1_000, 1), (10_000, 1)];

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let sizes = &SIZES[..effort.pick(2, SIZES.len(), SIZES.len())];
    let server = roomy(sizes.iter().map(|(waiters, locks)| (waiters + 1) * locks).sum());
    let mut line = server.line_client();
    let group = |&(waiters, locks)| Group::of(&server, waiters, locks);
    let mut groups: Vec<Group> = sizes.iter().map(group).collect();
    let mut times = vec![Vec::new(); sizes.len()];
    in_turns(effort.pick(5, 1_000, 20_000), sizes.len(), |round, one| {
        let lock = round % sizes[one].1;
        times[one].push(groups[one].hand_off(lock, &mut line));
    });
    let spreads: Vec<_> = times.iter().map(|times| Spread::of(times.iter().copied())).collect();
    let mut page = Table::new(&["Waiters", "hand-off", "half are between", "against 10 waiters"]);
    let base = spreads[1].median;
    for ((waiters, _), spread) in sizes.iter().zip(&spreads) {
        let [low, median, high] = [spread.low, spread.median, spread.high].map(|time| time * 1e6);
        page.row(vec![
            waiters.to_string(),
            format!("{median:.1} µs"),
            format!("{low:.1}–{high:.1} µs"),
            format!("{:.2} ×", spread.median / base),
        ]);
    }
    report.table("hand-off", &page);
    if let Some(most) = spreads.get(4) {
        let ratio = most.median / base;
        report.target(("hand-off with 10,000 waiters", "with 10"), "≤ 1.20 × the time", (ratio, 2));
    }
}

/// A server on which so many clients may wait, besides its other clients.
pub(super) fn roomy(clients: usize) -> Server {
    let limits = format!("max-waiters {clients} max-waiters-per-lock {clients}");
    let setup = Server::builder().config("maxclients", &(clients * 2 + 100).to_string());
    setup.module_args(&limits).start()
}

/// Locks with equally many waiters. Each lock has its own part of a crowd, and a member that
/// releases it queues up again.
struct Group {
    waiters: usize,
    /// One crowd for all locks, so that this program is as fast with many locks as with one.
    crowd: Crowd,
    /// The member that holds each lock.
    holders: Vec<usize>,
    /// Grants that arrived together with another.
    arrived: Vec<Received>,
}

impl Group {
    fn of(server: &Server, waiters: usize, locks: usize) -> Self {
        let crowd = Crowd::of(server, (waiters + 1) * locks);
        let mut group = Self { waiters, crowd, holders: vec![0; locks], arrived: Vec::new() };
        for member in 0..group.crowd.size() {
            group.ask(member);
        }
        for _ in 0..locks {
            let holder = group.next_holder();
            group.holders[holder / (waiters + 1)] = holder;
        }
        let mut observer = server.client();
        let wanted = i64::try_from(waiters).unwrap();
        for lock in 0..locks {
            let key = group.key(lock);
            eventually("all are queued", || match observer.info(&key).unwrap().waiters {
                all if all == wanted => Ok(()),
                some => Err(some),
            });
        }
        group
    }

    fn key(&self, lock: usize) -> String {
        format!("{}:{lock}", self.waiters)
    }

    fn ask(&mut self, member: usize) {
        let key = self.key(member / (self.waiters + 1));
        self.crowd.send(member, format!("LOCK.ACQUIRE {key} w{member} 600000 BLOCK 0"));
    }

    fn next_holder(&mut self) -> usize {
        if self.arrived.is_empty() {
            self.arrived = self.crowd.receive();
        }
        match self.arrived.pop() {
            Some((member, Some(Value::Int(_)))) => member,
            other => panic!("{other:?}"),
        }
    }

    /// The seconds from the release of the holder to the reply to the next.
    fn hand_off(&mut self, lock: usize, line: &mut LineClient) -> f64 {
        let released = self.holders[lock];
        let release = encoded(format!("LOCK.RELEASE {} w{released}", self.key(lock)));
        let started = Instant::now();
        line.send(&release);
        self.holders[lock] = self.next_holder();
        let took = started.elapsed();
        ONE.check(line.line());
        self.ask(released);
        took.as_secs_f64()
    }
}
