//! How much memory the server uses for a lock and for a waiter.

use super::Effort;
use super::contenders::Lock;
use super::hand_off::roomy;
use super::report::Report;
use super::table::Table;
use std::thread::sleep;
use std::time::Duration;
use testkit::crowd::Crowd;
use testkit::{Client, Server, bulk_text, eventually};

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let locks = effort.pick(1_000, 100_000, 100_000);
    let waiters = effort.pick(100, 2_000, 10_000);
    let [held, released] = of_locks(effort, locks, |lock| {
        [
            format!("LOCK.ACQUIRE {} {} 86400000", lock.key, lock.owner),
            format!("LOCK.RELEASE {} {}", lock.key, lock.owner),
        ]
    });
    // The value of a held lock: a fence of 16 digits and the owner.
    let [set, deleted] = of_locks(effort, locks, |lock| {
        let value = format!("{}:{}", value_of_a_lock(), lock.owner);
        [format!("SET {} {value} PX 86400000", lock.key), format!("DEL {}", lock.key)]
    });
    let idle = of_connections(effort, waiters);
    let [waiting, burst] =
        of_waiters(effort, waiters, |member| format!("LOCK.ACQUIRE k {member:036} 600000 BLOCK 0"));
    let [popping, popping_burst] = of_waiters(effort, waiters, |_| "BLPOP list 0".to_owned());

    let mut table = Table::new(&["Bytes of the server's memory", "each"]);
    let mut row = |what: &str, bytes: f64| table.row(vec![what.to_owned(), format!("{bytes:.1}")]);
    row("a held lock", held);
    row("the same string set by SET PX", set);
    row("a lock that was released", released);
    row("the same string deleted by DEL", deleted);
    row("a connection that does nothing yet", idle);
    row("a connection that waits by LOCK.ACQUIRE BLOCK", waiting);
    row("the same, at the most while all of them connect and ask at once", burst);
    row("a connection that waits by BLPOP", popping);
    row("the same, at the most while all of them connect and ask at once", popping_burst);
    report.table("memory", &table);
    let ratio = held / set;
    let (what, met) = ("memory of a held lock", (ratio * 100.0).round() <= 100.0);
    let against = "the same string set by SET";
    report.target_as((what, against), "1.00 ×", format!("{ratio:.3} ×"), met);
    let left = released - deleted;
    let what = ("memory of a released lock", "the same string deleted by DEL");
    // Buffers of the server differ by a few kilobytes from one look to the next.
    report.target_as(what, "no more", format!("{left:+.1} bytes"), left < 0.5);
}

/// A fence as in the value of a held lock.
fn value_of_a_lock() -> u64 {
    1_795_233_601_234_567
}

pub(super) fn settled(effort: Effort, client: &mut Client) -> f64 {
    fewest(effort.pick(3, 100, 150), client)
}

/// The least memory used at any of so many looks, 20 ms apart. Tables shrink and buffers are freed from time to time.
fn fewest(looks: usize, client: &mut Client) -> f64 {
    let look = |client: &mut Client| -> f64 {
        sleep(Duration::from_millis(20));
        client.info_number("memory", "used_memory") as f64
    };
    (0..looks).map(|_| look(client)).fold(f64::INFINITY, f64::min)
}

/// Bytes for each of so many locks, while they are held and afterwards.
fn of_locks(effort: Effort, count: usize, commands: impl Fn(&Lock) -> [String; 2]) -> [f64; 2] {
    let server = Server::start();
    let mut client = server.client();
    let locks: Vec<_> = (0..count).map(Lock::numbered).collect();
    let all = |client: &mut Client, half: usize| {
        for locks in locks.chunks(500) {
            let lines: Vec<String> =
                locks.iter().map(|lock| commands(lock)[half].clone()).collect();
            client.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        }
    };
    // What the first requests use for good is not counted.
    client.pipeline(&["LOCK.ACQUIRE first alice 1000", "LOCK.RELEASE first alice"]);
    let before = settled(effort, &mut client);
    all(&mut client, 0);
    assert_eq!(client.cmd("DBSIZE"), testkit::int(count as i64));
    let size = bulk_text(&client.cmd(format!("GET {}", locks[0].key))).len();
    assert_eq!(size, 16 + 1 + 36, "values of another length");
    let held = settled(effort, &mut client);
    all(&mut client, 1);
    assert_eq!(client.cmd("DBSIZE"), testkit::int(0));
    let after = settled(effort, &mut client);
    [held, after].map(|used| (used - before) / count as f64)
}

/// Bytes for each of so many connections that have sent nothing.
fn of_connections(effort: Effort, count: usize) -> f64 {
    let server = roomy(count);
    let mut client = server.client();
    let before = settled(effort, &mut client);
    let _crowd = Crowd::of(&server, count);
    wait_for(&mut client, "connected_clients", count + 1);
    (settled(effort, &mut client) - before) / count as f64
}

/// Bytes for each of so many waiters that connect and ask at once, as after a failover: when the server has settled,
/// and at the peak. New connections cause the peak: the server gives each a reply buffer of 16 kB and shrinks it after
/// some seconds. Redis 7.0 remembers the largest reply for five.
fn of_waiters(effort: Effort, count: usize, request: impl Fn(usize) -> String) -> [f64; 2] {
    let server = roomy(count);
    let mut client = server.client();
    client.grant("k", "alice", 86_400_000);
    let before = settled(effort, &mut client);
    let mut crowd = Crowd::of(&server, 0);
    for member in 0..count {
        crowd.join(&server);
        crowd.send(member, request(member));
    }
    wait_for(&mut client, "blocked_clients", count);
    let peak = client.info_number("memory", "used_memory_peak") as f64;
    let waiting = fewest(effort.pick(3, 400, 500), &mut client);
    [waiting, peak].map(|used| (used - before) / count as f64)
}

fn wait_for(client: &mut Client, field: &str, wanted: usize) {
    eventually("all are there", || match client.info_field("clients", field) {
        Some(seen) if seen == wanted.to_string() => Ok(()),
        seen => Err(seen),
    });
}
