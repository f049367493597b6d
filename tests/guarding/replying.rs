//! Who holds the lock by the fence gets the reply of the command, whole.

use super::{LONG, NOT_HOLDER, guarded, held};
use redis::Value;
use testkit::{Server, Session, bulk, error, lacks, unchanged};

#[test]
fn who_holds_the_lock_by_this_fence_gets_the_reply_of_the_command() {
    Session::play(
        &Server::start(),
        "
        # whole
        LOCK.ACQUIRE l alice 60000 -> A
        LOCK.GUARD l alice A SET k v; LOCK.GUARD l alice A GET k -> OK; v
        LOCK.GUARD l alice A GET nothing; LOCK.GUARD l alice A INCRBY n 7 -> nil; 7
        LOCK.GUARD l alice A get n; LOCK.GUARD l alice A MGET k nothing -> \"7\"; v nil
        LOCK.GUARD l alice A LPUSH k v -> -WRONGTYPE Operation against a key holding the wrong kind of value
        LOCK.GUARD l alice A XADD s 1-1 a 1; LOCK.GUARD l alice A XADD s 2-1 b 2 -> 1-1; 2-1
        LOCK.GUARD l alice A XRANGE s - + -> [1-1 [a \"1\"]] [2-1 [b \"2\"]]
        # each of several holders by its own fence
        LOCK.ACQUIRE l alice 60000 SHARE 2; LOCK.ACQUIRE l bob 60000 SHARE 2 -> A; B
        LOCK.GUARD l alice A INCR n; LOCK.GUARD l bob B INCR n -> 1; 2
        LOCK.GUARD l alice B INCR n; LOCK.GUARD l bob A INCR n -> -NOTHOLDER; -NOTHOLDER
        LOCK.RELEASE l alice; LOCK.GUARD l alice A INCR n; LOCK.GUARD l bob B INCR n -> 1; -NOTHOLDER; 3
        # a foreign lock by its value and the fence 0
        SET l alice PX 60000; LOCK.GUARD l alice 0 SET k v; LOCK.GUARD l alice 1 SET k w -> OK; OK; -NOTHOLDER
        # a raised fence is the one that counts
        LOCK.ACQUIRE l alice 60000 -> A
        LOCK.RAISE l alice A+9 -> B
        LOCK.GUARD l alice A SET k v; LOCK.GUARD l alice B SET k v -> -NOTHOLDER; OK
        ",
    );
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
    let mut session = Session::of(&server, 0);
    session.step("LOCK.ACQUIRE l alice 60000; LOCK.RELEASE l alice", "A; 1");
    session.step("LOCK.ACQUIRE l alice 60000", "B");
    for request in [
        "LOCK.GUARD l alice A SET k v",
        "LOCK.GUARD l alice B+1 SET k v",
        "LOCK.GUARD l alice 0 SET k v",
        "LOCK.GUARD l bob B SET k v",
        "LOCK.GUARD another alice B SET k v",
    ] {
        unchanged(&server, || session.step(request, &format!("-{NOT_HOLDER}")));
    }
    session.step("LOCK.GUARD l alice B SET k v; LOCK.RELEASE l alice", "OK; 1");
    unchanged(&server, || session.step("LOCK.GUARD l alice B SET k w", "-NOTHOLDER"));
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
