//! Granted while the server was busy, for so long that the lease was over before the waiter could be told.

use super::play;
use super::{LONG, Waiter, held_on};
use redis::Value;
use std::time::Duration;
use testkit::{Clock, Server};

const SESSIONS: &str = r#"
    # the lease ends within the script that released the lock
    bob: LOCK.ACQUIRE k bob 50 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    EVAL "local begun = redis.call('TIME') redis.call('LOCK.RELEASE', KEYS[1], 'alice') repeat local now = redis.call('TIME') until (now[1] - begun[1]) * 1000000 + now[2] - begun[2] > 200000 return 1" 1 k -> 1
    bob: -> nil
    carol: -> B
    LOCK.CHECK k carol -> B

    # the lease ends within the transaction that released the lock
    bob: LOCK.ACQUIRE k bob 50 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    MULTI: LOCK.RELEASE k alice; DEBUG SLEEP 0.2 -> 1; OK
    bob: -> nil
    carol: -> B
    LOCK.CHECK k carol -> B

    # the lease ends within the packet that released the lock
    bob: LOCK.ACQUIRE k bob 50 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice; DEBUG SLEEP 0.2 -> 1; OK
    bob: -> nil
    carol: -> B
    LOCK.CHECK k carol -> B

    # the lease of an owner that was made up ends so
    minted: LOCK.ACQUIRE k * 50 BLOCK 0 -> waits
    LOCK.RELEASE k alice; DEBUG SLEEP 0.2 -> 1; OK
    minted: -> nil

    # one that held the lock by another request, whose lease is over too
    bob: LOCK.ACQUIRE k bob 50 BLOCK 0 -> waits
    SET k bob PX 60; LOCK.EXTEND k carol 5; DEBUG SLEEP 0.2 -> OK; 0; OK
    bob: -> nil
    LOCK.CHECK k bob -> nil

    # one whose lease was extended on another connection is told the fence
    bob: LOCK.ACQUIRE k bob 50 BLOCK 0 -> waits
    LOCK.RELEASE k alice; LOCK.EXTEND k bob 60000; DEBUG SLEEP 0.2 -> 1; 1; OK
    bob: -> B
    LOCK.CHECK k bob -> B

    # one that asked again on another connection is told the fence
    bob: LOCK.ACQUIRE k bob 50 BLOCK 0 -> waits
    LOCK.RELEASE k alice; LOCK.ACQUIRE k bob 60000; DEBUG SLEEP 0.2 -> 1; B; OK
    bob: -> B
    LOCK.CHECK k bob -> B
"#;

#[test]
fn a_waiter_is_told_of_no_lease_that_is_over_by_then() {
    play(Server::builder, SESSIONS);
}

#[test]
fn a_grant_that_was_over_when_its_waiter_was_told_is_in_force_if_the_clock_is_set_back() {
    let mut clock = Clock::new();
    let (server, mut client) = held_on(Server::builder().clock(&clock));
    let request = "LOCK.ACQUIRE k bob 50 SHARE 5";
    let mut bob = Waiter::sends(&server, &format!("{request} BLOCK 0"));
    let carol = format!("LOCK.ACQUIRE k carol {LONG} SHARE 5");
    let replies = client.pipeline(&["LOCK.RELEASE k alice", &carol, "DEBUG SLEEP 0.2"]);
    assert_eq!(bob.reply(), Value::Nil);
    assert_eq!(client.check("k", "bob"), None);

    clock.step_back(Duration::from_secs(10));
    clock.wait_until_known(&mut client);
    // It is the grant that bob did not hear of, which came before carol's.
    let (Value::Int(bob), Value::Int(carol)) = (client.cmd(request), &replies[1]) else {
        panic!("{replies:?}")
    };
    assert!(bob < *carol, "{bob} is not below {carol}");
    assert_eq!(client.check("k", "carol"), Some(carol.cast_unsigned()));
}
