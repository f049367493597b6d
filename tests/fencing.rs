//! Fences grow for ever: over everything that can happen to a key, and over what somebody plants in one.

use redis::Value;
use testkit::clock::HOUR;
use testkit::{Clock, Server, becomes, eventually, int};

const LONG: u64 = 60_000;
const HOUR_IN_MICROS: u64 = 3_600_000_000;

#[test]
fn a_lock_that_was_renamed_or_copied_or_restored_keeps_its_fence_and_is_followed_by_a_larger_one() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.grant("k", "alice", LONG);
    let Value::BulkString(dump) = client.cmd("DUMP k") else { panic!("no dump") };
    client.cmd("COPY k copied");
    client.cmd("RENAME k renamed");
    let mut last = client.grant("k", "carol", LONG);
    assert!(last > first);
    assert_eq!(client.cmd([b"RESTORE", &b"restored"[..], b"60000", &dump]), Value::Okay);
    for key in ["copied", "renamed", "restored"] {
        assert_eq!(client.check(key, "alice"), Some(first), "{key} as it was");
        assert!(client.release(key, "alice"));
        let fence = client.grant(key, "bob", LONG);
        assert!(fence > last, "{key}: {last} was followed by {fence}");
        last = fence;
    }
}

#[test]
fn a_fence_grows_when_the_clock_of_a_running_server_is_stepped_back() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let mut client = server.client();
    let mut last = client.grant("k", "alice", LONG);
    clock.step_back(HOUR);
    clock.wait_until_known(&mut client);
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
    becomes("the clock has overtaken", 0, || client.counter("fence_ahead_us"));
}

#[test]
fn a_planted_fence_of_more_than_a_day_ahead_poisons_nothing_and_a_smaller_one_is_overtaken() {
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
    let (refused, planted) = (client.counter("fences_refused"), now + 2 * HOUR_IN_MICROS);
    client.cmd(format!("SET k {planted}:mallory"));
    assert_eq!(client.acquire("k", "alice", LONG), None);
    client.cmd("DEL k");
    assert!(client.grant("k", "alice", LONG) > planted);
    assert_eq!(client.counter("fences_refused"), refused);
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

/// What a lock protects, if it takes part, remembers the highest fence it has seen, and refuses smaller ones.
#[test]
fn storage_that_compares_fences_refuses_a_holder_that_slept_through_its_lease() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let stale = alice.grant("k", "alice", 100);
    let alices_end = alice.info("k").map(|info| info.deadline);
    let fence = eventually("bob gets the lock", || bob.acquire("k", "bob", LONG).ok_or(()));
    assert!(stale < fence, "the storage tells them apart");
    let bobs_start = bob.info("k").unwrap().deadline - i64::try_from(LONG).unwrap();
    // A machine slow enough sees no lease of Alice's at all, and then there is nothing to compare.
    assert!(alices_end.is_none_or(|end| bobs_start >= end), "{alices_end:?} {bobs_start}");
    let before = bob.cmd("GET k");
    assert_eq!(alice.check("k", "alice"), None);
    assert!(!alice.release("k", "alice"));
    assert!(!alice.extend("k", "alice", LONG));
    assert_eq!(alice.cmd(format!("LOCK.RELEASE k alice {stale}")), int(0));
    assert_eq!(alice.acquire("k", "alice", LONG), None);
    assert_eq!(bob.cmd("GET k"), before);
    assert_eq!(bob.check("k", "bob"), Some(fence));
}
