//! Fences grow for ever: over everything that can happen to a key, and over what somebody plants in one.

use redis::Value;
use std::time::Duration;
use testkit::clock::HOUR;
use testkit::errors::NO_FENCE_LEFT;
use testkit::{Client, Clock, Server, bulk, error, eventually, int};

const LONG: u64 = 60_000;
const HOUR_IN_MICROS: u64 = 3_600_000_000;

/// Grants `k` twice, with `between` in between, which must leave `k` free; the second fence must be larger.
fn assert_grows_over(between: impl FnOnce(&mut Client)) {
    let server = Server::start();
    let mut client = server.client();
    let first = client.grant("k", "alice", LONG);
    between(&mut client);
    let second = client.grant("k", "bob", LONG);
    assert!(first < second, "{first} was followed by {second}");
}

#[test]
fn a_fence_grows_over_a_release() {
    assert_grows_over(|client| assert!(client.release("k", "alice")));
}

#[test]
fn a_fence_grows_over_an_expiry() {
    assert_grows_over(|client| {
        client.extend("k", "alice", 1);
        eventually("the lease runs out", || client.info("k").map_or(Ok(()), Err));
    });
}

#[test]
fn a_fence_grows_over_del_and_unlink() {
    assert_grows_over(|client| assert_eq!(client.cmd("DEL k"), int(1)));
    assert_grows_over(|client| assert_eq!(client.cmd("UNLINK k"), int(1)));
}

#[test]
fn a_fence_grows_over_flushes() {
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "FLUSHDB ASYNC"] {
        assert_grows_over(|client| assert_eq!(client.cmd(flush), Value::Okay));
    }
}

#[test]
fn a_fence_grows_over_swapped_databases() {
    assert_grows_over(|client| assert_eq!(client.cmd("SWAPDB 0 1"), Value::Okay));
}

#[test]
fn a_fence_grows_over_a_reload() {
    assert_grows_over(|client| {
        assert_eq!(client.cmd("DEBUG RELOAD"), Value::Okay);
        assert_eq!(client.info("k").unwrap().owner, b"alice", "the lock is still held");
        assert!(client.release("k", "alice"));
    });
}

#[test]
fn a_lock_that_was_renamed_keeps_its_fence_and_is_followed_by_a_larger_one() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.grant("old", "alice", LONG);
    client.cmd("RENAME old new");
    assert_eq!(client.check("new", "alice"), Some(first));
    assert!(client.release("new", "alice"));
    let second = client.grant("new", "bob", LONG);
    let third = client.grant("old", "carol", LONG);
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[test]
fn a_copy_of_a_lock_is_followed_by_a_larger_fence() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.grant("k", "alice", LONG);
    assert_eq!(client.cmd("COPY k copy"), int(1));
    assert_eq!(client.check("copy", "alice"), Some(first));
    assert!(client.release("copy", "alice"));
    assert!(client.grant("copy", "bob", LONG) > first);
}

#[test]
fn an_old_grant_that_was_restored_is_followed_by_a_larger_fence_than_any() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.grant("k", "alice", LONG);
    let Value::BulkString(dump) = client.cmd("DUMP k") else { panic!("no dump") };
    assert!(client.release("k", "alice"));
    let second = client.grant("k", "bob", LONG);
    assert!(client.release("k", "bob"));
    assert_eq!(client.cmd([b"RESTORE", &b"k"[..], b"60000", &dump]), Value::Okay);
    assert_eq!(client.check("k", "alice"), Some(first), "restored as it was");
    assert!(client.release("k", "alice"));
    let third = client.grant("k", "carol", LONG);
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[test]
fn a_lock_restored_from_another_server_is_followed_by_a_larger_fence() {
    let mut early = Clock::new();
    early.step_back(HOUR);
    let servers = (Server::start(), Server::builder().clock(&early).start());
    let (mut ahead, mut behind) = (servers.0.client(), servers.1.client());
    let first = ahead.grant("k", "alice", LONG);
    let Value::BulkString(dump) = ahead.cmd("DUMP k") else { panic!("no dump") };
    assert_eq!(behind.cmd([b"RESTORE", &b"k"[..], b"60000", &dump]), Value::Okay);
    assert!(behind.release("k", "alice"));
    assert!(behind.grant("k", "bob", LONG) > first);
}

/// Some servers look at the system's clock only now and then, and count by themselves in between.
fn wait_for_time(client: &mut Client, when: &str, is_reached: impl Fn(i64) -> bool) {
    eventually(&format!("the server is in the {when}"), || match client.now() {
        now if is_reached(now) => Ok(()),
        now => Err(now),
    });
}

#[test]
fn a_fence_grows_when_the_clock_of_a_running_server_is_stepped_back() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let mut client = server.client();
    let mut last = client.grant("k", "alice", LONG);
    let before = client.now();
    clock.step_back(HOUR);
    wait_for_time(&mut client, "past", |now| now < before);
    for _ in 0..3 {
        assert!(client.release("k", "alice"));
        let fence = client.grant("k", "alice", LONG);
        assert!(fence > last, "{last} was followed by {fence}");
        last = fence;
    }
    assert!(client.counter("fence_ahead_us") > HOUR_IN_MICROS / 2, "as INFO says");
}

#[test]
fn a_fence_is_the_servers_time_once_the_margin_of_the_start_has_passed() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let mut client = server.client();
    let before = client.now();
    let fence = client.grant("k", "alice", LONG);
    let after = client.now();
    let millis = i64::try_from(fence / 1_000).unwrap();
    assert!((before..=after).contains(&millis), "{before} {fence} {after}");
    eventually("the clock overtakes", || match client.counter("fence_ahead_us") {
        0 => Ok(()),
        ahead => Err(ahead),
    });
}

#[test]
fn past_the_last_fence_there_are_no_grants_until_the_clock_is_right_again() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let mut client = server.client();
    let first = client.grant("held", "alice", LONG);
    client.cmd("PERSIST held");
    let ages = Duration::from_secs(230 * 365 * 24 * 3_600);
    let before = client.now();
    clock.step_forward(ages);
    wait_for_time(&mut client, "future", |now| now > before + 1_000_000);
    assert_eq!(client.cmd("LOCK.ACQUIRE k alice 60000"), error(NO_FENCE_LEFT));
    assert_eq!(client.cmd("EXISTS k"), int(0));
    assert_eq!(client.check("held", "alice"), Some(first), "a lock held goes on as before");
    assert!(client.extend("held", "alice", LONG));
    assert!(client.release("held", "alice"));
    clock.step_back(ages);
    wait_for_time(&mut client, "present", |now| now < before + 1_000_000);
    assert!(client.grant("k", "alice", LONG) > first);
}

#[test]
fn a_planted_fence_of_less_than_a_day_ahead_is_overtaken() {
    let server = Server::start();
    let mut client = server.client();
    let planted = u64::try_from(client.now()).unwrap() * 1_000 + HOUR_IN_MICROS;
    client.cmd(format!("SET k {planted}:mallory"));
    assert_eq!(client.acquire("k", "alice", LONG), None);
    client.cmd("DEL k");
    assert!(client.grant("k", "alice", LONG) > planted);
    assert_eq!(client.counter("fences_refused"), 0);
}

#[test]
fn a_planted_fence_of_more_than_a_day_ahead_poisons_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let now = u64::try_from(client.now()).unwrap() * 1_000;
    for planted in [now + 25 * HOUR_IN_MICROS, 9_007_199_254_740_991] {
        let refused = client.counter("fences_refused");
        client.cmd(format!("SET k {planted}:mallory"));
        assert_eq!(client.acquire("k", "alice", LONG), None, "the lock is held all the same");
        assert_eq!(client.info("k").unwrap().fence, planted, "and shown as it is");
        assert_eq!(client.check("k", "mallory"), Some(planted));
        assert_eq!(client.cmd(format!("LOCK.RELEASE k mallory {planted}")), int(1));
        assert!(client.counter("fences_refused") > refused);
        let fence = client.grant("k", "alice", LONG);
        assert!(fence < now + HOUR_IN_MICROS, "{fence} is far ahead of {now}");
        assert!(client.release("k", "alice"));
    }
    let warnings = server.log().lines().filter(|line| line.contains("a day ahead")).count();
    assert_eq!(warnings, 1, "the log is told, and not at every turn:\n{}", server.log());
}

#[test]
fn a_planted_number_that_is_no_fence_is_part_of_a_foreign_value() {
    let server = Server::start();
    let mut client = server.client();
    let now = u64::try_from(client.now()).unwrap() * 1_000;
    for value in [
        "4611686018427387904:mallory",
        "18446744073709551616:mallory",
        "9007199254740992:mallory",
        "0999999999999999:mallory",
        "0000000000000000:mallory",
        "1:mallory",
        "-100000000000000:mallory",
        "+100000000000000:mallory",
    ] {
        client.cmd(format!("SET k {value}"));
        assert_eq!(client.check("k", "mallory"), None, "{value}");
        assert_eq!(client.check("k", value), Some(0), "{value}");
        assert_eq!(client.acquire("k", "alice", LONG), None);
        assert!(client.release("k", value));
        assert!(client.grant("k", "alice", LONG) < now + HOUR_IN_MICROS, "{value}");
        client.cmd("DEL k");
    }
    assert_eq!(client.counter("fences_refused"), 0);
}

#[test]
fn a_grant_is_written_as_its_fence_and_its_owner() {
    let server = Server::start();
    let mut client = server.client();
    for owner in ["alice", ":", "a:b:c", "1763712345678901:alice"] {
        let fence = client.grant("k", owner, LONG);
        assert_eq!(client.cmd("GET k"), bulk(format!("{fence}:{owner}")));
        assert_eq!(client.check("k", owner), Some(fence));
        assert!(client.release("k", owner));
    }
}

/// The server looks at the clock once for a command, and we do after it.
#[test]
fn a_clock_set_back_between_any_two_looks_at_it_takes_no_lock_away() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let mut client = server.client();
    for reads in 1..40 {
        clock.step_back_after(reads, HOUR);
        let commands = [
            "LOCK.ACQUIRE k alice 60000",
            "LOCK.CHECK k alice",
            "LOCK.EXTEND k alice 50000",
            "LOCK.CHECK k alice",
        ];
        let replies = client.pipeline(&commands);
        let fence = &replies[0];
        let said = [fence.clone(), fence.clone(), int(1), fence.clone()];
        assert_eq!(replies, said, "set back after {reads} looks at it");
        eventually("the clock was set back", || {
            client.cmd("PING");
            if clock.is_to_step() { Err(()) } else { Ok(()) }
        });
        clock.step_forward(HOUR);
        client.cmd("DEL k");
    }
}
