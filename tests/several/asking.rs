//! Tries: all of the locks at once, or none. What all orders of these come to is found in the simulation.

use super::{as_words, asks, behind, fences, holds_all, names, takes};
use redis::Value;
use testkit::{Server, Session, bulk_text, int, unchanged};

#[test]
fn all_are_granted_by_one_fence_or_none_is() {
    Session::play(
        &Server::start(),
        "
        # each is what it would be alone
        LOCK.ACQUIRE a alice 60000 ALSO 2 b c -> A
        LOCK.CHECK a alice; LOCK.CHECK b alice; LOCK.CHECK c alice -> A; A; A
        MGET a b c; LOCK.INFO b -> {A}:alice {A}:alice {A}:alice; …waiters 0
        # one that somebody waits for keeps all from being granted
        LOCK.ACQUIRE b bob 60000 ALSO 1 x -> A
        carol: LOCK.ACQUIRE b carol 60000 ALSO 1 x BLOCK 0 -> waits
        LOCK.RELEASE b bob; LOCK.ACQUIRE a alice 60000 ALSO 1 b; EXISTS a -> 1; nil; 0
        LOCK.RELEASE x bob -> 1
        carol: -> C
        # who asks again has the same fence, in whatever order they are named
        LOCK.ACQUIRE a alice 60000 ALSO 2 b c; LOCK.ACQUIRE a alice 5 ALSO 2 b c -> A; A
        LOCK.ACQUIRE c alice 120000 ALSO 2 a b -> A
        # who holds some is granted all by a new fence
        LOCK.ACQUIRE a alice 60000; LOCK.ACQUIRE a alice 60000 ALSO 1 b -> A; B
        LOCK.CHECK a alice; LOCK.CHECK b alice; LOCK.RELEASE a alice -> B; B; 1
        LOCK.ACQUIRE a alice 60000; LOCK.ACQUIRE a alice 60000 ALSO 1 b -> C; D
        LOCK.RELEASE a alice C; LOCK.CHECK a alice; LOCK.CHECK b alice -> 0; D; D
        # who holds some has the others ahead of those who wait for what it holds
        LOCK.ACQUIRE a alice 60000 -> A
        bob: LOCK.ACQUIRE a bob 60000 BLOCK 0 -> waits
        LOCK.ACQUIRE a alice 60000 ALSO 1 b; LOCK.CHECK b alice -> B; B
        LOCK.RELEASE a alice -> 1
        bob: -> C
        # in transactions and scripts nobody waits and all are granted at once
        MULTI; LOCK.ACQUIRE a alice 60000 ALSO 1 b BLOCK 0; EXEC -> OK; QUEUED; …
        MULTI; LOCK.ACQUIRE b bob 60000 ALSO 1 c BLOCK 0 -> OK; QUEUED
        LOCK.RELEASE a alice ALSO 1 b; EXEC -> QUEUED; nil 2
        EVAL \"return redis.call('LOCK.ACQUIRE',KEYS[1],'eve',60000,'ALSO',1,KEYS[2])\" 2 a b -> A
        LOCK.CHECK a eve; LOCK.CHECK b eve -> A; A
        ",
    );
}

#[test]
fn what_is_not_granted_changes_nothing() {
    let server = Server::builder().aof().start();
    let mut session = Session::of(&server, 0);
    session.step("LOCK.ACQUIRE held bob 60000; LOCK.ACQUIRE mine alice 60000", "A; B");
    session.step("SET foreign alice PX 60000; RPUSH list x", "OK; 1");
    for (request, reply) in [
        ("LOCK.ACQUIRE held alice 60000 ALSO 2 b c", "nil"),
        ("LOCK.ACQUIRE a alice 60000 ALSO 2 held c", "nil"),
        ("LOCK.ACQUIRE a alice 60000 ALSO 2 b held", "nil"),
        ("LOCK.ACQUIRE mine alice 60000 ALSO 1 held", "nil"),
        ("LOCK.ACQUIRE mine alice 60000 ALSO 1 held BLOCK 0", "nil"),
        ("LOCK.ACQUIRE mine alice 60000 ALSO 1 held TICKET 60000", "nil"),
        // Another client's lock has no fence, also if it is the owner's own.
        ("LOCK.ACQUIRE a alice 60000 ALSO 1 foreign", "nil"),
        ("LOCK.ACQUIRE a bob 60000 ALSO 1 foreign", "nil"),
        ("LOCK.ACQUIRE a alice 60000 ALSO 1 list", "-WRONGTYPE"),
        ("LOCK.ACQUIRE list alice 60000 ALSO 1 a", "-WRONGTYPE"),
        ("LOCK.ACQUIRE a alice 60000 ALSO 2 b list BLOCK 0", "-WRONGTYPE"),
        ("LOCK.RELEASE mine alice ALSO 1 list", "-WRONGTYPE"),
        ("LOCK.EXTEND mine alice 5000 ALSO 1 list", "-WRONGTYPE"),
        ("LOCK.EXTEND mine alice 90000 ALSO 2 a b", "0"),
        ("LOCK.EXTEND a alice 90000 ALSO 1 mine", "0"),
        ("LOCK.EXTEND mine alice 90000 ALSO 1 held", "0"),
        ("LOCK.EXTEND mine bob 90000 ALSO 1 held", "0"),
        ("LOCK.EXTEND mine alice 90000 B+1 ALSO 1 mine2", "0"),
        ("LOCK.WAITERS mine; LOCK.WAITERS held; LOCK.CHECK mine alice", "(empty); (empty); B"),
    ] {
        unchanged(&server, || session.step(request, reply));
    }
}

#[test]
fn from_2_to_129_locks_are_granted_at_once() {
    let server = Server::start();
    let mut client = server.client();
    for count in [2, 3, 14, 15, 16, 64, 128, 129] {
        let names = names(count);
        let keys = as_words(&names);
        let fence = takes(&mut client, "alice", &keys).unwrap();
        holds_all(&mut client, "alice", &keys, fence);
        let released = format!("LOCK.RELEASE k0 alice {fence}{}", behind(&keys[1..]));
        assert_eq!(client.cmd(released), int(count));
    }
}

#[test]
fn a_minted_owner_holds_all() {
    let server = Server::start();
    let mut client = server.client();
    let Value::Array(reply) = client.cmd(asks("*", &["a", "b"])) else { panic!("no pair") };
    let owner = bulk_text(&reply[0]);
    let fence = client.check("a", &owner);
    assert_eq!(reply[1], int(fence.unwrap()));
    assert_eq!(fences(&mut client, &owner, &["a", "b"]), [fence, fence]);
    assert_eq!(client.cmd(asks("*", &["b", "c"])), Value::Nil);
}
