//! A lease that runs out: never granted early, and granted at once, however many other keys expire.
//!
//! Measured by the server's own clock: the fence is the moment of the grant, `LOCK.INFO` tells the
//! deadline before it.

use super::{LONG, Waiter, exact, granted_at, is_redis_since, waiters};
use redis::Value;
use std::time::Duration;
use testkit::crowd::Crowd;
use testkit::{Clock, Server, Stopwatch, becomes, clock::HOUR, eventually};

/// What is promised on an idle server.
const PROMPT_MILLIS: i64 = 3;

/// On a machine that is busy with other things too, at least half of the leases in one of so many
/// rounds must be that prompt.
const ROUNDS: usize = 5;
pub(crate) const LEASES: usize = 21;

/// How many milliseconds after the end of its predecessor's lease each waiter was granted the lock: a
/// queue in which nobody releases.
fn lateness(server: &Server) -> Lateness {
    let mut client = server.client();
    client.grant("k", "first", 60_000);
    let names: Vec<_> = (0..LEASES).map(|number| format!("w{number}")).collect();
    // Prolonged until everybody is there.
    assert_eq!(client.cmd("PERSIST k"), Value::Int(1));
    let request = |name| format!("LOCK.ACQUIRE k {name} 5 BLOCK 0");
    let mut queued: Vec<_> =
        names.iter().map(|name| Waiter::sends(server, &request(name))).collect();
    let mut end = client.now() + 20;
    client.cmd(format!("PEXPIREAT k {end}"));
    let least = least_lateness(server);
    let lateness = queued.iter_mut().map(|waiter| {
        let granted = told_when_granted(waiter)?;
        let late = granted - end;
        assert!(late >= least, "granted {late} ms after the end of the lease");
        end = granted + 5;
        Some(late)
    });
    lateness.collect()
}

/// Of each lease in a round. `None` if the machine stood still for so long that one was over before its holder was told.
pub(crate) type Lateness = Option<Vec<i64>>;

/// When it was granted the lock, unless its lease was over before it could be told.
#[track_caller]
pub(crate) fn told_when_granted(waiter: &mut Waiter) -> Option<i64> {
    match waiter.reply() {
        Value::Int(fence) => Some(granted_at(fence.try_into().unwrap())),
        Value::Nil => None,
        other => panic!("no fence: {other:?}"),
    }
}

/// How much later than its deadline a lease ends at the least. The millisecond of the deadline belongs to the
/// lease; but from 7.4 on Redis, when it looks for expired keys by itself, may delete one in that very
/// millisecond.
fn least_lateness(server: &Server) -> i64 {
    i64::from(!is_redis_since(server, (7, 4)))
}

/// Each round tells how many milliseconds late each of the leases was handed on.
#[track_caller]
pub(crate) fn assert_prompt(mut round: impl FnMut() -> Lateness) {
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        let mut lateness = round();
        if let Some(lateness) = &mut lateness {
            lateness.sort_unstable();
            if lateness[LEASES / 2] <= PROMPT_MILLIS {
                return;
            }
        }
        seen.push(lateness);
    }
    panic!("never within {PROMPT_MILLIS} ms of the end of a lease: {seen:?}");
}

#[track_caller]
fn assert_prompt_on(server: &Server) {
    assert_prompt(|| {
        let lateness = lateness(server);
        server.client().wait_until_waiters(0);
        becomes("the last lease ends", None, || server.client().info("k"));
        lateness
    });
}

#[test]
fn a_lock_is_handed_on_within_3_ms_of_the_end_of_a_lease_and_never_early() {
    assert_prompt_on(&exact().start());
}

#[test]
fn the_same_with_300_000_other_keys_that_have_an_expiry_where_the_server_never_looks_for_them() {
    let server = exact().start();
    let fill = "for n = 1, 300000 do redis.call('SET', 'v' .. n, 'x', 'PX', 60000 + n) end";
    assert_eq!(server.cmd(["EVAL", fill, "0"]), Value::Nil);
    assert_prompt_on(&server);
    server.cmd("DEBUG SET-ACTIVE-EXPIRE 0");
    assert_prompt_on(&server);
}

/// The server's own routine walks over all expiries and deletes what has expired. A lock handed on in the middle
/// of that walk would take others away under its feet, and the server would die of it.
#[test]
fn leases_that_the_server_itself_finds_to_have_ended_are_all_handed_on() {
    const LOCKS: usize = 64;
    const ROUNDS: usize = 12;
    let mut clock = Clock::new();
    let server = Server::builder().aof().config("hz", "500").clock(&clock).start();
    let mut client = server.client();
    for lock in 0..LOCKS {
        client.grant(format!("k{lock}"), "alice", LONG);
    }
    let mut crowd = Crowd::of(&server, LOCKS * ROUNDS);
    for index in 0..crowd.size() {
        crowd.send(index, format!("LOCK.ACQUIRE k{} w{index} {LONG} BLOCK 0", index % LOCKS));
    }
    client.wait_until_waiters(crowd.size() as u64);
    for _ in 0..ROUNDS {
        // All leases end, and the timer does not know: it counts the time that really passes.
        clock.step_forward(HOUR);
        let mut granted = 0;
        while granted < LOCKS {
            for (index, reply) in crowd.receive() {
                assert!(matches!(reply, Some(Value::Int(1..))), "{index} received {reply:?}");
                granted += 1;
            }
        }
        assert_eq!(granted, LOCKS);
    }
    assert_eq!(waiters(&server), 0);
}

/// The server looks at the clock once, and then has all timers ring that were to ring by then. One that is set meanwhile, by a
/// clock that was set back since, would be among them, and so would the next, for as long as the clock is behind.
#[test]
fn a_clock_set_back_between_any_two_looks_at_it_leaves_a_server_that_answers() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let mut client = server.client();
    // No lease is over because the clock is set forward again: a waiter whose lease is over gets nil.
    let ttl = 2 * u64::try_from(HOUR.as_millis()).unwrap();
    for reads in 1..40 {
        client.grant("k", "alice", ttl);
        let waiters = ["bob", "carol"]
            .map(|owner| Waiter::sends(&server, &format!("LOCK.ACQUIRE k {owner} {ttl} BLOCK 0")));
        clock.step_back_after(reads, HOUR);
        client.cmd("DEL k");
        eventually("the clock was set back", || {
            let answered = client.try_cmd("PING");
            assert!(answered.is_ok(), "set back after {reads} looks at it: {answered:?}");
            if clock.is_to_step() { Err(()) } else { Ok(()) }
        });
        clock.step_forward(HOUR);
        for mut waiter in waiters {
            waiter.fence();
            client.cmd("DEL k");
        }
    }
}

/// So does that of Valkey 9.1 by itself, where the server is kept from running in the middle of a look at it.
#[test]
fn a_clock_that_falls_back_by_less_than_a_millisecond_keeps_nobody_waiting() {
    let mut clock = Clock::new();
    // Its routine comes once a second, and would make up for an alarm that is lost.
    let server = Server::builder().clock(&clock).config("hz", "1").start();
    let mut client = server.client();
    for reads in 1..40 {
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        clock.step_back_after(reads, Duration::from_micros(900));
        let deleted = Stopwatch::start();
        client.cmd("DEL k");
        bob.fence();
        let late = deleted.elapsed();
        assert!(late.as_millis() < 300, "set back after {reads} looks at it: late by {late:?}");
        client.release("k", "bob");
    }
}
