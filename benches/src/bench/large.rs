//! Large numbers: a million locks, a million leases that end in one second, a hundred thousand
//! locks that somebody waits for. What others get meanwhile is told by a `PING` that is sent over
//! and over.

use super::Effort;
use super::contenders::{Lock, OKAY, ONE, Reply};
use super::memory::settled;
use super::pings::{longest, while_doing};
use super::report::Report;
use super::statistics::quantile;
use super::table::Table;
use super::tickets::{self, NIL, by_ticket};
use std::time::{Duration, Instant};
use testkit::{Client, Server, eventually, int};

/// The end of the leases that are not to end: a day.
const LONG: u64 = 86_400_000;
const SECOND: Duration = Duration::from_secs(1);

/// A way to hold a lock: the command, with its words in braces, and its reply.
#[derive(Clone, Copy)]
struct Way {
    command: fn(&Lock, u64) -> String,
    reply: Reply,
}

const WAYS: [Way; 2] = [
    Way {
        command: |lock, ttl| format!("LOCK.ACQUIRE {} {} {ttl}", lock.key, lock.owner),
        reply: Reply::Number,
    },
    // The value of a held lock: a fence of 16 digits and the owner.
    Way {
        command: |lock, ttl| {
            format!("SET {} 1795233601234567:{} NX PX {ttl}", lock.key, lock.owner)
        },
        reply: OKAY,
    },
];

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let count = effort.pick(1_000, 100_000, 1_000_000);
    let contended = effort.pick(100, 10_000, 100_000);
    let [ours, bare] = WAYS.map(|way| Million::of(way, count, effort));
    let waited_for = Contended::of(contended, effort);
    let mut table = Table::new(&["Large numbers", "Leasehold", "SET NX PX"]);
    let mut row = |what: String, ours: String, bare: String| table.row(vec![what, ours, bare]);
    let mut both = |what: &str, figure: fn(&Million) -> String| {
        row(what.replace("{}", &count.to_string()), figure(&ours), figure(&bare));
    };
    both("{} held: each takes", |million| format!("{:.1} bytes", million.memory));
    both("while they are acquired: the longest PING", |million| longest_of(&million.acquiring));
    both("{} leases end in one second: the longest PING", |million| longest_of(&million.ending));
    both("the same: of 1,000 PINGs all but one take at most", |million| most_of(&million.ending));
    both("from the end of the last until the server has deleted all", |million| {
        format!("{:.1} s", million.deleted)
    });
    let mut alone = |what: &str, figure: String| {
        row(what.replace("{}", &contended.to_string()), figure, "–".to_owned());
    };
    let Contended { memory, idle, handed_on, meanwhile } = waited_for;
    alone("{} held, and each waited for: each takes", format!("{memory:.1} bytes"));
    alone("the longest PING of a second in which nothing happens", longest_of(&idle));
    alone("all {} are handed on: a second", format!("{handed_on:.0}"));
    alone("the longest PING meanwhile", longest_of(&meanwhile));
    report.table("large", &table, &[]);
    report.file("large", &table);
}

fn longest_of(pings: &[f64]) -> String {
    format!("{:.2} ms", longest(pings) * 1e3)
}

fn most_of(pings: &[f64]) -> String {
    let mut sorted = pings.to_vec();
    sorted.sort_by(f64::total_cmp);
    format!("{:.2} ms", quantile(&sorted, 0.999) * 1e3)
}

/// What so many locks come to that are held at the same time.
struct Million {
    /// Bytes for each.
    memory: f64,
    acquiring: Vec<f64>,
    ending: Vec<f64>,
    /// Seconds.
    deleted: f64,
}

impl Million {
    fn of(way: Way, count: usize, effort: Effort) -> Self {
        let server = Server::start();
        let mut client = server.client();
        let locks: Vec<Lock> = (0..count).map(Lock::numbered).collect();
        let before = settled(effort, &mut client);
        let ((), acquiring) =
            while_doing(&server, || hold(&server, way, &locks, |_| Duration::from_millis(LONG)));
        let memory = (settled(effort, &mut client) - before) / count as f64;
        client.cmd("FLUSHALL");

        // Time enough to acquire them all.
        let begun = Instant::now();
        let first_end = acquired_within(count);
        hold(&server, way, &locks, |number| {
            let end = first_end + SECOND.mul_f64(number as f64 / count as f64);
            end.saturating_sub(begun.elapsed())
        });
        assert_eq!(client.cmd("DBSIZE"), int(count as i64), "a lease ended too early");
        wait_until(begun + first_end);
        let ((), ending) = while_doing(&server, || until_all_are_gone(&mut client));
        let deleted = begun.elapsed().saturating_sub(first_end + SECOND).as_secs_f64();
        Self { memory, acquiring, ending, deleted }
    }
}

/// More than enough on a slow machine.
fn acquired_within(count: usize) -> Duration {
    Duration::from_millis(500) + Duration::from_micros(30) * count as u32
}

/// Holds all of them, each for as long as `ttl` says when it is asked for.
fn hold(server: &Server, way: Way, locks: &[Lock], ttl: impl Fn(usize) -> Duration) {
    let mut line = server.line_client();
    let numbers: Vec<usize> = (0..locks.len()).collect();
    for part in numbers.chunks(1_000) {
        let commands: Vec<String> = part
            .iter()
            .map(|&number| (way.command)(&locks[number], ttl(number).as_millis() as u64))
            .collect();
        tickets::send(&mut line, &commands, way.reply);
    }
}

/// Holds all of them, and asks for a ticket for each. Returns the owners of the tickets.
pub(super) fn contend(server: &Server, locks: &[Lock]) -> Vec<String> {
    hold(server, WAYS[0], locks, |_| Duration::from_millis(LONG));
    let owners = (0..locks.len()).map(|number| Lock::numbered(locks.len() + number).owner);
    let owners: Vec<String> = owners.collect();
    let asked: Vec<String> =
        locks.iter().zip(&owners).map(|(lock, owner)| by_ticket(&lock.key, owner)).collect();
    tickets::send(&mut server.line_client(), &asked, NIL);
    owners
}

fn wait_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

fn until_all_are_gone(client: &mut Client) {
    eventually("all are deleted", || match client.cmd("DBSIZE") {
        size if size == int(0) => Ok(()),
        size => Err(size),
    });
}

/// What so many locks come to that are held and waited for, by one ticket each.
struct Contended {
    /// Bytes for each, of the lock and its ticket.
    memory: f64,
    idle: Vec<f64>,
    handed_on: f64,
    meanwhile: Vec<f64>,
}

impl Contended {
    fn of(count: usize, effort: Effort) -> Self {
        let server = tickets::server();
        let (mut client, mut line) = (server.client(), server.line_client());
        let locks: Vec<Lock> = (0..count).map(Lock::numbered).collect();
        let before = settled(effort, &mut client);
        let next = contend(&server, &locks);
        let memory = (settled(effort, &mut client) - before) / count as f64;
        let ((), idle) = while_doing(&server, || wait_until(Instant::now() + SECOND));
        let released: Vec<String> =
            locks.iter().map(|lock| format!("LOCK.RELEASE {} {}", lock.key, lock.owner)).collect();
        let (handed_on, meanwhile) = while_doing(&server, || {
            let begun = Instant::now();
            tickets::send(&mut line, &released, ONE);
            count as f64 / begun.elapsed().as_secs_f64()
        });
        for (lock, next) in [(&locks[0], &next[0]), (&locks[count - 1], &next[count - 1])] {
            let info = client.info(&lock.key).expect("it is held");
            assert_eq!(info.owner, next.as_bytes(), "not handed on");
        }
        Self { memory, idle, handed_on, meanwhile }
    }
}
