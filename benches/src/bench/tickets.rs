//! Tickets: the memory of one, and how soon one hears of its grant.

use super::Effort;
use super::contenders::{Lock, TTL};
use super::load::{ONE, Reply};
use super::memory::settled;
use super::report::Report;
use super::statistics::quantile;
use super::table::Table;
use std::time::Instant;
use testkit::{LineClient, Server, encoded};

/// Longer than any measurement.
const LASTS: &str = "3600000";

const NIL: Reply = Reply::Exactly(b"$-1");

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let count = effort.pick(1_000, 100_000, 100_000);
    let mut table = Table::new(&["Tickets", "measured"]);
    let mut row = |what: &str, figure: String| table.row(vec![what.to_owned(), figure]);
    let of_one_lock = memory(effort, count, |_| "contended".to_owned());
    let of_many = memory(effort, count, |number| Lock::numbered(number).key);
    row("memory of a ticket, all of one lock", format!("{of_one_lock:.0} bytes"));
    row("memory of a ticket, each of a lock of its own", format!("{of_many:.0} bytes"));
    let Heard { mut after, drained } = hear(effort, count);
    after.sort_by(f64::total_cmp);
    let [half, most, longest] = [0.5, 0.99, 1.0].map(|share| quantile(&after, share) * 1e3);
    row("from a release to the message, half of them", format!("{half:.3} ms"));
    row("from a release to the message, 99 % of them", format!("{most:.3} ms"));
    row("from a release to the message, the longest", format!("{longest:.3} ms"));
    row("to hand on, many releases in a row", format!("{:.2} µs", drained * 1e6));
    report.table("tickets", &table);
    for (what, bytes) in [("of one lock", of_one_lock), ("each of a lock of its own", of_many)] {
        let what = format!("memory of one of {count} tickets, {what}");
        report.target((&what, ""), "≤ 500 bytes", (bytes, 0));
    }
    let what = "from the release to the message of the grant, the longest";
    report.target((what, ""), "≤ 2 ms", (longest, 3));
}

/// A server on which so many tickets may be, and which counts nobody's clients as strangers.
pub(super) fn server() -> Server {
    Server::builder().module_args("max-tickets 1000000").start()
}

fn by_ticket(key: &str, owner: &str) -> String {
    format!("LOCK.ACQUIRE {key} {owner} {TTL} TICKET {LASTS}")
}

/// Holds all of these locks, and asks for a ticket for each.
pub(super) fn contend(server: &Server, count: usize) {
    let mut line = server.line_client();
    let locks: Vec<_> = (0..count).map(Lock::numbered).collect();
    let held = |lock: &Lock| format!("LOCK.ACQUIRE {} {} 86400000", lock.key, lock.owner);
    send(&mut line, &locks.iter().map(held).collect::<Vec<_>>(), Reply::Number);
    let asked = |lock: &Lock| by_ticket(&lock.key, "waiter");
    send(&mut line, &locks.iter().map(asked).collect::<Vec<_>>(), NIL);
}

/// Asks all of these, and checks that each is answered this.
pub(super) fn send(line: &mut LineClient, lines: &[String], reply: Reply) {
    for lines in lines.chunks(32) {
        line.send(&lines.iter().flat_map(|line| encoded(line.as_str())).collect::<Vec<u8>>());
        lines.iter().for_each(|_| reply.check(line.line()));
    }
}

/// Bytes for each of so many tickets, beside what the held locks themselves take.
fn memory(effort: Effort, count: usize, key: impl Fn(usize) -> String) -> f64 {
    let server = server();
    let (mut client, mut line) = (server.client(), server.line_client());
    let mut keys: Vec<String> = (0..count).map(key).collect();
    let asked: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(number, key)| by_ticket(key, &Lock::numbered(number).owner))
        .collect();
    keys.dedup();
    let held: Vec<_> =
        keys.iter().map(|key| format!("LOCK.ACQUIRE {key} holder 86400000")).collect();
    send(&mut line, &held, Reply::Number);
    // What the module needs for the first one is not counted.
    send(&mut line, &["LOCK.ACQUIRE first holder 86400000".to_owned()], Reply::Number);
    send(&mut line, &[by_ticket("first", "waiter")], NIL);
    let before = settled(effort, &mut client);
    send(&mut line, &asked, NIL);
    (settled(effort, &mut client) - before) / count as f64
}

struct Heard {
    /// Seconds from each release to the message of the next grant.
    after: Vec<f64>,
    /// Seconds for each of the releases that were sent without waiting for anything.
    drained: f64,
}

/// One lock, so many tickets, and one connection that hears of all grants.
fn hear(effort: Effort, count: usize) -> Heard {
    let server = server();
    let (mut line, mut ear) = (server.line_client(), server.line_client());
    ear.send(&encoded("SUBSCRIBE grants"));
    // *3, and three elements: the last is a number.
    (0..6).for_each(|_| drop(ear.line().to_vec()));
    let owner = |number: usize| Lock::numbered(number).owner;
    let first = format!("LOCK.ACQUIRE k {} 86400000", owner(0));
    send(&mut line, &[first], Reply::Number);
    let notified = effort.pick(50, 2_000, 10_000);
    let asked: Vec<_> = (1..count)
        .map(|number| {
            let ask = by_ticket("k", &owner(number));
            if number <= notified { format!("{ask} NOTIFY grants") } else { ask }
        })
        .collect();
    send(&mut line, &asked, NIL);
    let release = |number: usize| format!("LOCK.RELEASE k {}", owner(number));
    let after = (0..notified).map(|number| {
        let request = encoded(release(number).as_str());
        let begun = Instant::now();
        line.send(&request);
        // *3, message, the channel and the text, each after its length.
        (0..6).for_each(|_| drop(ear.line().to_vec()));
        let next = owner(number + 1);
        assert!(ear.line().ends_with(format!(" {next} k").as_bytes()), "out of turn");
        let took = begun.elapsed().as_secs_f64();
        ONE.check(line.line());
        took
    });
    let after = after.collect();
    // Each is the holder when its release comes, so they are served in the order in which they came.
    let rest: Vec<_> = (notified..count).map(release).collect();
    let begun = Instant::now();
    send(&mut line, &rest, ONE);
    Heard { after, drained: begun.elapsed().as_secs_f64() / rest.len() as f64 }
}
