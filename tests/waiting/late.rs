//! Granted while the server was busy, for so long that the lease was over before the waiter could be told.

use super::{LONG, Waiter};
use redis::Value;
use std::time::Duration;
use testkit::{Clock, Server, int};

/// As long as the server is busy after the grant.
const BUSY: &str = "DEBUG SLEEP 0.2";

/// Less than that.
const BRIEF: u64 = 50;

/// Alice holds `k`, and bob waits for it with a brief lease.
fn bob_waits(server: &Server) -> Waiter {
    server.client().grant("k", "alice", LONG);
    Waiter::sends(server, &format!("LOCK.ACQUIRE k bob {BRIEF} BLOCK 0"))
}

/// Bob is told that he has no lock, and carol behind him is granted it.
fn assert_told_nothing(server: &Server, bob: &mut Waiter, carol: &mut Waiter) {
    assert_eq!(bob.reply(), Value::Nil, "a fence that LOCK.CHECK denies");
    let fence = carol.fence();
    assert_eq!(server.client().check("k", "carol"), Some(fence));
}

#[test]
fn a_waiter_whose_lease_ends_within_the_script_that_released_the_lock_gets_nil() {
    let server = Server::start();
    let (mut bob, mut carol) = (bob_waits(&server), Waiter::of(&server, "k", "carol"));
    let script = "local begun = redis.call('TIME')
        redis.call('LOCK.RELEASE', KEYS[1], 'alice')
        repeat local now = redis.call('TIME')
        until (now[1] - begun[1]) * 1000000 + now[2] - begun[2] > 200000
        return 1";
    assert_eq!(server.cmd(["EVAL", script, "1", "k"]), int(1));
    assert_told_nothing(&server, &mut bob, &mut carol);
}

#[test]
fn a_waiter_whose_lease_ends_within_the_transaction_that_released_the_lock_gets_nil() {
    let server = Server::start();
    let (mut bob, mut carol) = (bob_waits(&server), Waiter::of(&server, "k", "carol"));
    let replies = server.client().transaction(&["LOCK.RELEASE k alice", BUSY]);
    assert_eq!(replies[0], int(1));
    assert_told_nothing(&server, &mut bob, &mut carol);
}

#[test]
fn a_waiter_whose_lease_ends_within_the_packet_that_released_the_lock_gets_nil() {
    let server = Server::start();
    let (mut bob, mut carol) = (bob_waits(&server), Waiter::of(&server, "k", "carol"));
    server.client().pipeline(&["LOCK.RELEASE k alice", BUSY]);
    assert_told_nothing(&server, &mut bob, &mut carol);
}

#[test]
fn a_waiter_with_a_minted_owner_whose_lease_ends_before_its_reply_gets_nil() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k * {BRIEF} BLOCK 0"));
    client.pipeline(&["LOCK.RELEASE k alice", BUSY]);
    assert_eq!(bob.reply(), Value::Nil);
}

#[test]
fn a_waiter_that_held_the_lock_by_another_request_gets_nil_when_that_lease_is_over_too() {
    let server = Server::start();
    let mut bob = bob_waits(&server);
    let mut client = server.client();
    // The second command looks at the lock, and finds that bob has it.
    let commands = ["SET k bob PX 60", "LOCK.EXTEND k carol 5", BUSY];
    assert_eq!(client.pipeline(&commands)[1], int(0));
    assert_eq!(bob.reply(), Value::Nil, "a fence that LOCK.CHECK denies");
    assert_eq!(client.check("k", "bob"), None);
}

#[test]
fn a_grant_that_was_over_when_its_waiter_was_told_is_in_force_if_the_clock_is_set_back() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let request = format!("LOCK.ACQUIRE k bob {BRIEF} SHARE 5");
    let mut bob = Waiter::sends(&server, &format!("{request} BLOCK 0"));
    let carol = format!("LOCK.ACQUIRE k carol {LONG} SHARE 5");
    let replies = client.pipeline(&["LOCK.RELEASE k alice", &carol, BUSY]);
    assert_eq!(bob.reply(), Value::Nil);
    assert_eq!(client.check("k", "bob"), None);

    clock.step_back(Duration::from_secs(10));
    clock.wait_until_known(&mut client);
    // It is the grant that bob did not hear of, which came before carol's.
    let (Value::Int(bob), Value::Int(carol)) = (client.cmd(&*request), &replies[1]) else {
        panic!("{replies:?}")
    };
    assert!(bob < *carol, "{bob} is not below {carol}");
    assert_eq!(client.check("k", "carol"), Some(carol.cast_unsigned()));
}

#[test]
fn a_waiter_whose_lease_was_extended_on_another_connection_is_told_the_fence() {
    let server = Server::start();
    let mut client = server.client();
    for extend in ["LOCK.EXTEND k bob 60000", "LOCK.ACQUIRE k bob 60000"] {
        let mut bob = bob_waits(&server);
        client.pipeline(&["LOCK.RELEASE k alice", extend, BUSY]);
        let fence = bob.fence();
        assert_eq!(client.check("k", "bob"), Some(fence), "{extend}");
        client.release("k", "bob");
    }
}
