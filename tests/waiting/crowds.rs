//! Thousands of waiters.

use super::{LONG, Waiter, granted_at, owners, waiters};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::{Client, Server, Setup, eventually, int};

/// A server that such a crowd fits on.
fn roomy() -> Setup {
    let limits = "max-waiters 12000 max-waiters-per-lock 10000 fence-margin 0";
    Server::builder().config("maxclients", "15000").module_args(limits)
}

/// Queues every member up for `k`, each after the one before it is known to be queued.
fn queue_up_one_by_one(crowd: &mut Crowd, observer: &mut Client) {
    for index in 0..crowd.size() {
        crowd.send(index, format!("LOCK.ACQUIRE k w{index} 600000 BLOCK 0"));
        let wanted = i64::try_from(index).unwrap() + 1;
        wait_until(|| observer.info("k").unwrap().waiters == wanted);
    }
}

/// `eventually`, without a pause between two looks: thousands of them are needed.
fn wait_until(mut arrived: impl FnMut() -> bool) {
    let started = Instant::now();
    while !arrived() {
        assert!(started.elapsed() < Duration::from_secs(20), "never happened");
    }
}

/// Each member that receives its grant releases the lock, until all have had it. Who had it, in the order
/// of the fences, and how long the whole took.
fn drain(crowd: &mut Crowd, client: &mut Client) -> (Vec<usize>, Duration) {
    let mut fences = Vec::with_capacity(crowd.size());
    let started = Instant::now();
    assert!(client.release("k", "alice"));
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
    let took = started.elapsed();
    fences.sort_unstable();
    (fences.into_iter().map(|(_, index)| index).collect(), took)
}

#[test]
fn a_thousand_waiters_are_served_exactly_in_the_order_of_their_coming() {
    let server = roomy().start();
    let mut client = server.client();
    client.grant("k", "alice", 10 * LONG);
    let mut crowd = Crowd::of(&server, 1_000);
    queue_up_one_by_one(&mut crowd, &mut client);
    let (order, _) = drain(&mut crowd, &mut client);
    assert!(order.into_iter().eq(0..1_000));
    eventually("the last releases it", || client.info("k").map_or(Ok(()), Err));
}

#[test]
fn ten_thousand_waiters_for_one_lock_are_served_exactly_in_the_order_of_their_coming() {
    let server = roomy().start();
    let mut client = server.client();
    client.grant("k", "alice", 10 * LONG);
    let mut crowd = Crowd::of(&server, 10_000);
    queue_up_one_by_one(&mut crowd, &mut client);
    let full = "QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)";
    let refused = client.cmd("LOCK.ACQUIRE k late 60000 BLOCK 0");
    assert_eq!(refused, testkit::error(full));
    let (order, _) = drain(&mut crowd, &mut client);
    assert!(order.into_iter().eq(0..10_000));
    assert_eq!(waiters(&server), 0);
}

#[test]
fn five_thousand_waiters_for_a_thousand_locks_are_served_lock_by_lock() {
    let server = roomy().start();
    let mut client = server.client();
    let locks = 1_000;
    for lock in 0..locks {
        client.grant(format!("k{lock}"), "alice", 10 * LONG);
    }
    let mut crowd = Crowd::of(&server, 5 * locks);
    // One for each lock, then the next for each: five rounds.
    for round in 0..5 {
        for lock in 0..locks {
            let index = round * locks + lock;
            crowd.send(index, format!("LOCK.ACQUIRE k{lock} w{index} 600000 BLOCK 0"));
        }
        let wanted = (round as u64 + 1) * locks as u64;
        wait_until(|| client.counter("waiters") == wanted);
    }
    let all: Vec<_> = (0..locks).map(|lock| format!("LOCK.RELEASE k{lock} alice")).collect();
    client.pipeline(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let mut served = vec![Vec::new(); locks];
    let mut left = crowd.size();
    while left > 0 {
        for (index, reply) in crowd.receive() {
            let lock = index % locks;
            match reply {
                Some(Value::Int(1)) => {}
                Some(Value::Int(fence)) => {
                    served[lock].push((fence, index / locks));
                    crowd.send(index, format!("LOCK.RELEASE k{lock} w{index}"));
                    left -= 1;
                }
                other => panic!("member {index} received {other:?}"),
            }
        }
    }
    for (lock, grants) in served.iter_mut().enumerate() {
        grants.sort_unstable();
        assert!(grants.iter().map(|&(_, round)| round).eq(0..5), "k{lock}: {grants:?}");
    }
    eventually("all locks are free", || match client.cmd("DBSIZE") {
        Value::Int(0) => Ok(()),
        left => Err(left),
    });
}

/// A crowd waits for `k`, `end` ends it, and one who comes later is next. Nothing of the crowd is left.
fn assert_nothing_is_left(size: usize, end: impl FnOnce(&mut Client, Crowd)) {
    // The server frees the buffers it lent them bit by bit, so many times a second.
    let server = roomy().config("hz", "500").start();
    let mut client = server.client();
    // Once before, so that what is kept for good is not counted.
    client.grant("k", "alice", 10 * LONG);
    drop(Waiter::of(&server, "k", "early"));
    wait_until(|| client.counter("waiters") == 0);
    let before = client.info_number("memory", "used_memory");
    let mut crowd = Crowd::of(&server, size);
    for index in 0..size {
        crowd.send(index, format!("LOCK.ACQUIRE k w{index} 600000 BLOCK 600000"));
    }
    wait_until(|| client.counter("waiters") == size as u64);
    let full = client.info_number("memory", "used_memory");
    end(&mut client, crowd);
    eventually("all have left", || match client.info("k").unwrap().waiters {
        0 => Ok(()),
        left => Err(left),
    });
    let mut late = Waiter::of(&server, "k", "late");
    assert_eq!(owners(&server, "k"), ["late"]);
    client.release("k", "alice");
    late.fence();
    client.release("k", "late");
    drop(late);
    eventually("the server has forgotten them", || {
        let clients = |client: &mut Client, name: &str| client.info_field("clients", name).unwrap();
        let blocked = clients(&mut client, "blocked_clients");
        let gauge = client.counter("waiters");
        let used = client.info_number("memory", "used_memory").saturating_sub(before);
        // What is kept is some of the server's own buffers: a few per cent of what the crowd took.
        if blocked == "0" && gauge == 0 && used < (full - before) / 20 {
            Ok(())
        } else {
            Err((blocked, gauge, before, full, used))
        }
    });
}

#[test]
fn two_thousand_waiters_killed_in_one_moment_leave_nothing_behind() {
    assert_nothing_is_left(2_000, |client, mut crowd| {
        assert_eq!(client.cmd("CLIENT KILL TYPE normal SKIPME yes"), int(2_000));
        assert_eq!(crowd.until_all_left().len(), 0, "nobody was told anything");
    });
}

#[test]
fn two_thousand_waiters_that_close_their_connections_leave_nothing_behind() {
    assert_nothing_is_left(2_000, |_, crowd| drop(crowd));
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

#[test]
fn leases_that_end_one_after_another_pass_the_lock_through_the_whole_queue() {
    let server = roomy().start();
    let mut client = server.client();
    client.grant("k", "alice", 10 * LONG);
    let mut crowd = Crowd::of(&server, 300);
    for index in 0..crowd.size() {
        crowd.send(index, format!("LOCK.ACQUIRE k w{index} 2 BLOCK 0"));
    }
    wait_until(|| client.counter("waiters") == 300);
    client.release("k", "alice");
    let replies = crowd.one_reply_each();
    assert_eq!(client.counter("hand_offs"), 300);
    // Where the machine stands still for longer than a lease, its holder cannot be told of it any more.
    let told = replies.into_iter().filter_map(|reply| match reply {
        Some(Value::Int(fence)) => Some(fence.try_into().unwrap()),
        Some(Value::Nil) => None,
        other => panic!("{other:?}"),
    });
    let mut fences: Vec<u64> = told.collect();
    assert!(fences.len() > 200, "only {} were told", fences.len());
    fences.sort_unstable();
    for pair in fences.windows(2) {
        let apart = granted_at(pair[1]) - granted_at(pair[0]);
        assert!(apart >= 2, "a lease of 2 ms ended after {apart} ms");
    }
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
