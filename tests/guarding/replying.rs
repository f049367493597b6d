//! Who holds the lock by the fence gets the reply of the command, whole.

use super::{LONG, NOT_HOLDER, guarded, held};
use redis::Value;
use testkit::{Server, bulk, error, int, lacks, unchanged};

#[test]
fn the_holder_gets_the_reply_of_the_command() {
    let (_server, mut client, fence) = held();
    let mut run = |command: &str| client.cmd(guarded(fence, command));
    assert_eq!(run("SET k v"), Value::Okay);
    assert_eq!(run("GET k"), bulk("v"));
    assert_eq!(run("GET nothing"), Value::Nil);
    assert_eq!(run("INCRBY number 7"), int(7));
    assert_eq!(run("get number"), bulk("7"));
    assert_eq!(
        run("LPUSH k v"),
        error("WRONGTYPE Operation against a key holding the wrong kind of value")
    );
    assert_eq!(run("MGET k nothing"), Value::Array(vec![bulk("v"), Value::Nil]));
}

#[test]
fn lists_in_lists_come_whole() {
    let (_server, mut client, fence) = held();
    for command in ["XADD s 1-1 a 1", "XADD s 2-1 b 2"] {
        client.cmd(guarded(fence, command));
    }
    let guarded = client.cmd(guarded(fence, "XRANGE s - +"));
    assert_eq!(guarded, client.cmd("XRANGE s - +"));
    let Value::Array(entries) = guarded else { panic!("{guarded:?}") };
    assert!(matches!(&entries[..], [Value::Array(_), Value::Array(_)]), "{entries:?}");
}

#[test]
fn a_client_that_speaks_resp3_gets_maps_doubles_sets_and_nulls() {
    if lacks((7, 0), "replies to modules in RESP3") {
        return;
    }
    let (server, _, fence) = held();
    let mut client = server.client_resp3();
    let mut run = |command: &str| client.cmd(guarded(fence, command));
    run("HSET h name value");
    assert_eq!(run("HGETALL h"), Value::Map(vec![(bulk("name"), bulk("value"))]));
    run("ZADD z 1.5 member");
    assert_eq!(run("ZSCORE z member"), Value::Double(1.5));
    run("SADD s member");
    assert_eq!(run("SMEMBERS s"), Value::Set(vec![bulk("member")]));
    assert_eq!(run("GET nothing"), Value::Nil);
    let Value::Map(info) = run("LOCK.INFO the-lock") else { panic!("no map") };
    assert_eq!(info[0], (bulk("owner"), bulk("alice")));
}

#[test]
fn who_does_not_hold_the_lock_by_this_fence_runs_nothing() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let former = client.grant("the-lock", "alice", LONG);
    client.release("the-lock", "alice");
    let fence = client.grant("the-lock", "alice", LONG);
    let requests = [
        guarded(former, "SET k v"),
        guarded(fence + 1, "SET k v"),
        guarded(0, "SET k v"),
        format!("LOCK.GUARD the-lock bob {fence} SET k v"),
        format!("LOCK.GUARD another-lock alice {fence} SET k v"),
    ];
    for request in requests {
        assert_eq!(unchanged(&server, || client.cmd(&*request)), error(NOT_HOLDER), "{request}");
    }
    assert_eq!(client.cmd(guarded(fence, "SET k v")), Value::Okay);
    client.release("the-lock", "alice");
    assert_eq!(unchanged(&server, || client.cmd(guarded(fence, "SET k w"))), error(NOT_HOLDER));
}

/// However close to the end: while the command is run the lock is held, and what is late is not run.
#[test]
fn a_lease_that_ends_in_this_very_millisecond_is_over_or_is_not() {
    let server = Server::start();
    let mut client = server.client();
    let (mut ran, mut ended) = (0, 0);
    for round in 0..10_000 {
        let fence = client.grant("the-lock", "alice", 2 + round % 3);
        let write = guarded(fence, &format!("SET k {round}"));
        let take = format!("LOCK.ACQUIRE the-lock bob {LONG}");
        // In each of these transactions, bob gets the lock if and only if nothing was written.
        loop {
            let replies = client.transaction(&["DEL k", &write, "GET k", &take]);
            let is_taken = replies[3] != Value::Nil;
            if replies[1] == error(NOT_HOLDER) {
                assert_eq!(replies[2], Value::Nil, "nothing was written");
            } else {
                assert_eq!(replies[1..3], [Value::Okay, bulk(round.to_string())]);
                ran += 1;
            }
            if is_taken {
                break;
            }
            assert_ne!(replies[1], error(NOT_HOLDER), "the lock was neither held nor free");
        }
        ended += 1;
        assert_eq!(client.cmd(write), error(NOT_HOLDER));
        assert!(client.release("the-lock", "bob"));
        if ran > 200 && ended > 50 {
            return;
        }
    }
    panic!("{ran} ran, {ended} ended");
}

#[test]
fn each_of_several_holders_is_held_to_its_own_fence() {
    let server = Server::start();
    let mut client = server.client();
    let alice = super::number(&client.cmd("LOCK.ACQUIRE the-lock alice 60000 SHARE 2"));
    let bob = super::number(&client.cmd("LOCK.ACQUIRE the-lock bob 60000 SHARE 2"));
    let mut run = |owner: &str, fence: u64| {
        client.cmd(format!("LOCK.GUARD the-lock {owner} {fence} INCR runs"))
    };
    assert_eq!((run("alice", alice), run("bob", bob)), (int(1), int(2)));
    assert_eq!((run("alice", bob), run("bob", alice)), (error(NOT_HOLDER), error(NOT_HOLDER)));
    client.release("the-lock", "alice");
    let mut run = |owner: &str, fence: u64| {
        client.cmd(format!("LOCK.GUARD the-lock {owner} {fence} INCR runs"))
    };
    assert_eq!((run("alice", alice), run("bob", bob)), (error(NOT_HOLDER), int(3)));
}

#[test]
fn a_foreign_lock_is_held_by_its_value_and_has_the_fence_0() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET the-lock alice PX 60000");
    assert_eq!(client.cmd(guarded(0, "SET k v")), Value::Okay);
    assert_eq!(client.cmd(guarded(1, "SET k w")), error(NOT_HOLDER));
}

#[test]
fn a_raised_fence_is_the_one_that_counts() {
    let (_server, mut client, former) = held();
    let raised = super::number(&client.cmd(format!("LOCK.RAISE the-lock alice {}", former + 9)));
    assert_eq!(client.cmd(guarded(former, "SET k v")), error(NOT_HOLDER));
    assert_eq!(client.cmd(guarded(raised, "SET k v")), Value::Okay);
}
