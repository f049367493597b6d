//! Thousands of waiters.

use super::LONG;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::{Client, Server, Setup, eventually};

/// A server that such a crowd fits on.
fn roomy() -> Setup {
    let limits = "max-waiters 12000 max-waiters-per-lock 10000 fence-margin 0";
    Server::builder().config("maxclients", "15000").module_args(limits)
}

/// `eventually`, without a pause between two looks: thousands of them are needed.
fn wait_until(mut arrived: impl FnMut() -> bool) {
    let started = Instant::now();
    while !arrived() {
        assert!(started.elapsed() < Duration::from_secs(20), "never happened");
    }
}

#[test]
fn ten_thousand_waiters_for_one_lock_are_served_exactly_in_the_order_of_their_coming() {
    let server = roomy().start();
    let mut client = server.client();
    client.grant("k", "alice", 10 * LONG);
    let mut crowd = Crowd::of(&server, 10_000);
    for index in 0..crowd.size() {
        crowd.send(index, format!("LOCK.ACQUIRE k w{index} 600000 BLOCK 0"));
        let wanted = i64::try_from(index).unwrap() + 1;
        wait_until(|| client.info("k").unwrap().waiters == wanted);
    }
    let full = "QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)";
    let refused = client.cmd("LOCK.ACQUIRE k late 60000 BLOCK 0");
    assert_eq!(refused, testkit::error(full));
    assert!(client.release("k", "alice"));
    let mut fences = Vec::with_capacity(crowd.size());
    while fences.len() < crowd.size() {
        for (index, reply) in crowd.receive() {
            match reply {
                Some(Value::Int(1)) => {}
                Some(Value::Int(fence)) => {
                    fences.push((fence, index));
                    crowd.send(index, format!("LOCK.RELEASE k w{index} {fence}"));
                }
                other => panic!("member {index} received {other:?}"),
            }
        }
    }
    fences.sort_unstable();
    assert!(fences.into_iter().map(|(_, index)| index).eq(0..10_000));
    assert_eq!(client.counter("waiters"), 0);
    eventually("the last releases it", || client.info("k").map_or(Ok(()), Err));
}

/// The longest that a PING took while `until` was not yet the case.
fn slowest_ping(client: &mut Client, mut until: impl FnMut(&mut Client) -> bool) -> Duration {
    let mut slowest = Duration::ZERO;
    loop {
        let sent = Instant::now();
        client.cmd("PING");
        slowest = slowest.max(sent.elapsed());
        if until(client) {
            return slowest;
        }
    }
}

#[test]
fn while_ten_thousand_lose_their_patience_in_one_moment_others_are_answered_within_50_ms() {
    let server = roomy().start();
    let mut client = server.client();
    client.grant("k", "alice", 10 * LONG);
    let mut crowd = Crowd::of(&server, 10_000);
    let mut seen = Vec::new();
    // On a machine that is busy with other things, one time of ten must do.
    for _ in 0..10 {
        let end = client.now() + 2_500;
        for index in 0..crowd.size() {
            if index % 100 == 0 && index > 0 {
                let wanted = index as u64;
                wait_until(|| client.counter("waiters") == wanted);
            }
            let patience = end - client.now();
            assert!(patience > 0, "the crowd did not gather in time");
            crowd.send(index, format!("LOCK.ACQUIRE k w{index} 60000 BLOCK {patience}"));
        }
        wait_until(|| client.counter("waiters") == 10_000);
        let slowest = slowest_ping(&mut client, |client| client.counter("waiters") == 0);
        let over = client.now();
        assert!(over >= end - 20 && over < end + 2_000, "patience ended {} ms late", over - end);
        let replies = crowd.one_reply_each();
        assert!(replies.iter().all(|reply| *reply == Some(Value::Nil)));
        seen.push(slowest);
        if slowest < Duration::from_millis(50) {
            return;
        }
    }
    panic!("the slowest PINGs took {seen:?}");
}

/// A lock that passes round a crowd: who releases it queues up again.
struct Round {
    key: String,
    crowd: Crowd,
    holder: usize,
}

impl Round {
    fn of(server: &Server, key: String, size: usize) -> Self {
        let mut round = Self { key, crowd: Crowd::of(server, size), holder: 0 };
        for member in 0..size {
            round.ask(member);
        }
        round.holder = round.next_holder();
        let mut client = server.client();
        let waiting = i64::try_from(size).unwrap() - 1;
        wait_until(|| client.info(&round.key).unwrap().waiters == waiting);
        round
    }

    fn ask(&mut self, member: usize) {
        let request = format!("LOCK.ACQUIRE {} w{member} 600000 BLOCK 0", self.key);
        self.crowd.send(member, request);
    }

    fn next_holder(&mut self) -> usize {
        let received = self.crowd.receive();
        assert!(matches!(received[..], [(_, Some(Value::Int(_)))]), "{received:?}");
        received[0].0
    }

    /// From the release by one to the reply to the next.
    fn hand_off(&mut self, client: &mut Client) -> Duration {
        let released = self.holder;
        let started = Instant::now();
        assert!(client.release(&self.key, format!("w{released}")));
        self.holder = self.next_holder();
        let took = started.elapsed();
        self.ask(released);
        took
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// One lock with 10,000 waiters, and several hundred with 10, so that whoever is granted one was not heard of
/// for long in either case: what a server needs to reply to such a client is no part of the comparison.
#[test]
fn a_hand_off_takes_no_longer_with_ten_thousand_waiters_than_with_ten() {
    let limits = "max-waiters 20000 max-waiters-per-lock 20000";
    let server = Server::builder().config("maxclients", "20000").module_args(limits).start();
    let mut client = server.client();
    let mut many = Round::of(&server, "many".to_owned(), 10_001);
    let mut few: Vec<_> =
        (0..350).map(|number| Round::of(&server, format!("few{number}"), 11)).collect();
    // The best of a few attempts, since the machine may be busy with something else.
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let (few, many): (Vec<_>, Vec<_>) = few
            .iter_mut()
            .map(|few| (few.hand_off(&mut client), many.hand_off(&mut client)))
            .unzip();
        let (few, many) = (median(few), median(many));
        eprintln!("a hand-off takes {few:?} with 10 waiters and {many:?} with 10,000");
        best = best.min(many.as_secs_f64() / few.as_secs_f64());
        if best <= 1.2 {
            return;
        }
    }
    panic!("{best} times as long");
}
