//! Checks that neither names that were locks once nor clients that waited once leave anything behind.
//!
//! A round grants and releases a hundred thousand locks, of ten million names in turn. Then two thousand clients wait,
//! and leave in one of four ways. A thousand rounds make a hundred million grants and two million waiters.

use crate::runner::Totals;
use redis::Value;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::{Client, LineClient, Seed, Server, bulk_text, encoded, eventually, is_older_than};

/// So many that a leak shows: if each left a tenth of a byte behind, the server would use ten per cent more.
const NAMES: usize = 10_000_000;
const PAIRS_OF_A_ROUND: usize = 100_000;
const WAITERS: usize = 2_000;

/// A short run has fewer waiters, because servers give back the memory of waiters slowly.
const FEWER_WAITERS: usize = 100;
const SHORT: Duration = Duration::from_secs(60);

/// More than a hundred million locks and two million waiters would show nothing more.
const MOST_ROUNDS: usize = 1_000;

/// Locks in one write.
const BATCH: usize = 1_000;

/// How waiters leave.
const WAYS: [&str; 4] = ["leave", "lose patience", "are granted the lock", "are unblocked"];

/// The gauges that must be 0 when nobody holds a lock or waits for one.
const GAUGES: [&str; 4] = ["waiters", "longest_wait_us", "held", "fence_ahead_us"];

pub(crate) fn run(seed: u64, length: Duration) -> Totals {
    let mut seed = Seed::of(seed);
    let at_once = if length < SHORT { FEWER_WAITERS } else { WAITERS };
    // The server and the module remember slow commands, and on a busy machine any command may be slow.
    let server = Server::builder().tcp().config("slowlog-log-slower-than", "-1");
    let server = server.module_args("log-max-len 0").config("maxclients", "3000").start();
    // Servers since 7.0 also keep 12 kB of latencies for each command.
    server.cmd("CONFIG SET latency-tracking no");
    let mut totals = Totals::default();
    // The first use of some things costs memory for good.
    lock_and_release(&server, 0..PAIRS_OF_A_ROUND / 2);
    for way in WAYS {
        wait_and_go(&server, at_once, way);
    }
    let rest = if length < SHORT { Duration::from_secs(2) } else { Duration::from_secs(20) };
    let before = settled(&server, 0, rest);
    let begin = Instant::now();
    let mut rounds = 0_usize;
    while begin.elapsed() < length && rounds < MOST_ROUNDS {
        let first = rounds * PAIRS_OF_A_ROUND % NAMES;
        lock_and_release(&server, first..first + PAIRS_OF_A_ROUND);
        wait_and_go(&server, at_once, WAYS[seed.below(WAYS.len())]);
        rounds += 1;
    }
    totals.micros = begin.elapsed().as_micros();
    let (pairs, waiters) = (rounds * PAIRS_OF_A_ROUND, rounds * at_once);
    totals.operations = (2 * pairs + waiters) as u64;
    totals.grants = pairs as u64;
    totals.waited = waiters as u64;
    // In each round all waiters leave at once.
    totals.faults = rounds as u64;
    let most = before + before / 100;
    let after = settled(&server, most, rest);
    let names = pairs.min(NAMES);
    let said = format!(
        "{pairs} locks granted and released, of {names} names, {waiters} waiters came and went: {before} bytes used \
         before, {after} after"
    );
    println!("leaks: {said}");
    if after > most {
        totals.wrong.push(format!("L6: {said}"));
    }
    totals.wrong.extend(not_at_rest(&mut server.client()));
    totals
}

/// The least memory that the server uses when no other client is connected. Servers give back the memory of waiters
/// slowly. The look ends when the figure has not fallen for `rest`, or is down to `enough`.
fn settled(server: &Server, enough: u64, rest: Duration) -> u64 {
    let mut client = server.client();
    eventually("everybody else has gone", || {
        match client.info_field("clients", "connected_clients").as_deref() {
            Some("1") => Ok(()),
            other => Err(other.map(str::to_owned)),
        }
    });
    let (mut least, mut since) = (u64::MAX, Instant::now());
    while least > enough && since.elapsed() < rest {
        let used = client.info_number("memory", "used_memory");
        if used < least {
            (least, since) = (used, Instant::now());
        }
        thread::sleep(Duration::from_millis(50));
    }
    least
}

/// What INFO still counts when nobody uses a lock.
fn not_at_rest(client: &mut Client) -> Vec<String> {
    let mut wrong = Vec::new();
    // From the start on, the fence clock may be ahead for as long as the margin is, 15 s. All other
    // gauges are 0 at once.
    let end = Instant::now() + Duration::from_secs(16);
    for gauge in GAUGES {
        while client.counter(gauge) != 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        match client.counter(gauge) {
            0 => {}
            seen => wrong.push(format!("L6: leasehold_{gauge} is {seen} when all is over")),
        }
    }
    let blocked = client.info_field("clients", "blocked_clients").unwrap();
    let keys = client.cmd("DBSIZE");
    if blocked != "0" || keys != Value::Int(0) {
        wrong.push(format!("L6: {blocked} clients still wait, {keys:?} keys are left"));
    }
    wrong
}

/// Locks and releases so many names, one after the other, as fast as the server can.
fn lock_and_release(server: &Server, names: Range<usize>) {
    let mut line = LineClient::over_tcp(("127.0.0.1", server.port())).unwrap();
    let pair = |name| {
        let asked = [format!("ACQUIRE n{name:08} o 10000"), format!("RELEASE n{name:08} o")];
        asked.map(|words| encoded(format!("LOCK.{words}"))).concat()
    };
    let mut batches = names
        .clone()
        .step_by(BATCH)
        .map(|first| -> Vec<u8> { (first..first + BATCH).flat_map(pair).collect() });
    line.send(&batches.next().unwrap());
    for _ in names.step_by(BATCH) {
        // The next batch is under way while the replies to this one are read.
        if let Some(next) = batches.next() {
            line.send(&next);
        }
        for _ in 0..BATCH {
            let fence = line.line();
            assert!(fence.starts_with(b":1"), "{}", fence.escape_ascii());
            let released = line.line();
            assert_eq!(released, b":1", "{}", released.escape_ascii());
        }
    }
}

fn wait_and_go(server: &Server, count: usize, way: &str) {
    let mut client = server.client();
    client.grant("wanted", "holder", 60_000);
    let patience = if way == "lose patience" { 100 } else { 0 };
    let mut crowd = Crowd::of(server, count);
    for member in 0..count {
        crowd.send(member, format!("LOCK.ACQUIRE wanted w{member} 60000 BLOCK {patience}"));
    }
    if patience == 0 {
        client.wait_until_waiters(count as u64);
    }
    match way {
        "are granted the lock" => {
            assert!(client.release("wanted", "holder"));
            let mut released = 0;
            while released < count {
                for (member, reply) in crowd.receive() {
                    match reply {
                        Some(Value::Int(1)) => released += 1,
                        Some(Value::Int(_)) => {
                            crowd.send(member, format!("LOCK.RELEASE wanted w{member}"));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        // Older servers unblock nobody who waits for a module.
        "are unblocked" if is_older_than((7, 4)) => {
            client.cmd("CLIENT KILL TYPE normal SKIPME yes");
            assert_eq!(crowd.until_all_left(), []);
        }
        "are unblocked" => {
            let list = bulk_text(&client.cmd("CLIENT LIST TYPE normal"));
            let waiting = list.lines().filter(|line| line.contains(" flags=b"));
            let unblock = waiting.filter_map(|line| line.split(' ').next()?.strip_prefix("id="));
            let unblock: Vec<_> = unblock.map(|id| format!("CLIENT UNBLOCK {id}")).collect();
            let unblock: Vec<_> = unblock.iter().map(|command| &**command).collect();
            let unblocked = client.pipeline(&unblock);
            assert!(
                unblocked.iter().all(|reply| *reply == Value::Int(1)),
                "{:?}",
                unblocked.first()
            );
            told_nothing(&mut crowd);
        }
        "lose patience" => told_nothing(&mut crowd),
        _ => {}
    }
    drop(crowd);
    client.wait_until_waiters(0);
    client.release("wanted", "holder");
}

fn told_nothing(crowd: &mut Crowd) {
    let replies = crowd.one_reply_each();
    assert!(replies.iter().all(|reply| *reply == Some(Value::Nil)), "{:?}", replies.first());
}
