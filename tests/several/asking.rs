//! Tries: all of the locks at once, or none.

use super::{LONG, as_words, asks, behind, fences, holds_all, holds_none, names, takes};
use redis::Value;
use testkit::{Server, bulk_text, int, unchanged};

#[test]
fn all_are_granted_by_one_fence_and_end_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    holds_all(&mut client, "alice", &["a", "b", "c"], fence);
    let Value::Array(values) = client.cmd("MGET a b c") else { panic!("no values") };
    for value in &values {
        assert_eq!(bulk_text(value), format!("{fence}:alice"), "each is what it would be alone");
    }
    let ends = ["a", "b", "c"].map(|key| testkit::deadline(&mut client, key.as_bytes()));
    assert_eq!(ends, [ends[0]; 3]);
}

#[test]
fn one_that_is_held_keeps_all_from_being_granted_wherever_it_is_named() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("held", "bob", LONG);
    for keys in [["held", "b", "c"], ["a", "held", "c"], ["a", "b", "held"]] {
        assert_eq!(unchanged(&server, || takes(&mut client, "alice", &keys)), None, "{keys:?}");
    }
    assert_eq!(client.cmd("EXISTS a b c"), int(0));
}

#[test]
fn one_that_somebody_waits_for_keeps_all_from_being_granted() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("b", "bob", LONG);
    client.grant("x", "bob", LONG);
    let mut waiter = super::waits(&server, "carol", &["b", "x"]);
    // b is free, and is for carol as soon as x is.
    assert!(client.release("b", "bob"));
    assert_eq!(takes(&mut client, "alice", &["a", "b"]), None);
    assert_eq!(client.cmd("EXISTS a"), int(0));
    assert!(client.release("x", "bob"));
    waiter.fence();
}

#[test]
fn who_asks_again_has_the_same_fence_and_the_longer_leases() {
    let server = Server::start();
    let mut client = server.client();
    let keys = ["a", "b", "c"];
    let fence = takes(&mut client, "alice", &keys).unwrap();
    assert_eq!(client.cmd(format!("LOCK.ACQUIRE a alice 5{}", behind(&["b", "c"]))), int(fence));
    let left = |client: &mut testkit::Client, key: &str| match client.cmd(["PTTL", key]) {
        Value::Int(left) => left,
        other => panic!("{other:?}"),
    };
    assert!(left(&mut client, "a") > 30_000, "a shorter lease shortens nothing");
    let longer = format!("LOCK.ACQUIRE c alice {}{}", 2 * LONG, behind(&["a", "b"]));
    assert_eq!(client.cmd(longer), int(fence), "in whatever order they are named");
    for key in keys {
        assert!(left(&mut client, key) > 90_000, "{key}");
    }
}

#[test]
fn who_holds_some_of_them_is_granted_all_by_a_new_fence() {
    let server = Server::start();
    let mut client = server.client();
    let former = client.grant("a", "alice", LONG);
    let fence = takes(&mut client, "alice", &["a", "b"]).unwrap();
    assert!(fence > former);
    holds_all(&mut client, "alice", &["a", "b"], fence);
    assert_eq!(client.cmd(format!("LOCK.RELEASE a alice {former}")), int(0));
}

#[test]
fn who_holds_them_by_several_fences_is_granted_all_by_a_new_one() {
    let server = Server::start();
    let mut client = server.client();
    let (a, b) = (client.grant("a", "alice", LONG), client.grant("b", "alice", LONG));
    let fence = takes(&mut client, "alice", &["a", "b"]).unwrap();
    assert!(fence > a.max(b));
    holds_all(&mut client, "alice", &["a", "b"], fence);
}

#[test]
fn who_holds_some_of_them_keeps_them_where_the_others_are_not_to_be_had_and_never_waits() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("a", "alice", LONG);
    client.grant("b", "bob", LONG);
    for wait in ["", " BLOCK 0", " TICKET 60000"] {
        let request = format!("{}{wait}", asks("alice", &["a", "b"]));
        assert_eq!(unchanged(&server, || client.cmd(&*request)), Value::Nil, "{request}");
    }
    assert_eq!(client.check("a", "alice"), Some(fence));
    assert_eq!(super::waiting(&mut client, &["a", "b"]), [0, 0]);
}

#[test]
fn who_holds_some_of_them_has_the_others_ahead_of_those_who_wait_for_what_it_holds() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("a", "alice", LONG);
    let mut waiter = super::waits(&server, "bob", &["a"]);
    let fence = takes(&mut client, "alice", &["a", "b"]).unwrap();
    holds_all(&mut client, "alice", &["a", "b"], fence);
    assert!(client.release("a", "alice"));
    assert!(waiter.fence() > fence);
}

#[test]
fn later_fences_are_above_it_whichever_of_the_locks_they_are_of() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 2 b c"), int(3));
    let next = takes(&mut client, "bob", &["c", "a"]).unwrap();
    assert!(next > fence);
    assert!(client.grant("b", "carol", LONG) > next);
}

#[test]
fn a_lock_of_another_client_keeps_all_from_being_granted_and_one_of_the_owner_s_own_too() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.cmd("SET b alice PX 60000");
    for owner in ["alice", "bob"] {
        assert_eq!(unchanged(&server, || takes(&mut client, owner, &["a", "b"])), None, "{owner}");
    }
}

#[test]
fn one_that_is_no_lock_is_an_error_and_nothing_changes() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.cmd("RPUSH list x");
    client.grant("mine", "alice", LONG);
    for command in [
        asks("alice", &["a", "list"]),
        asks("alice", &["list", "a"]),
        format!("{} BLOCK 0", asks("alice", &["a", "b", "list"])),
        "LOCK.RELEASE mine alice ALSO 1 list".to_owned(),
        "LOCK.EXTEND mine alice 5000 ALSO 1 list".to_owned(),
    ] {
        let reply = unchanged(&server, || client.cmd(&*command));
        let Value::ServerError(told) = reply else { panic!("{command}: {reply:?}") };
        assert_eq!(told.code(), "WRONGTYPE", "{command}");
    }
    holds_none(&mut client, "alice", &["a", "b"]);
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

#[test]
fn in_transactions_and_scripts_nobody_waits_and_all_are_granted_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let request = format!("{} BLOCK 0", asks("alice", &["a", "b"]));
    let release = "LOCK.RELEASE a alice ALSO 1 b";
    let Value::Int(_) = client.transaction(&[&request])[0] else { panic!("not granted") };
    let other = format!("{} BLOCK 0", asks("bob", &["b", "c"]));
    assert_eq!(client.transaction(&[&other, release]), [Value::Nil, int(2)]);
    let script = "return redis.call('LOCK.ACQUIRE',KEYS[1],'eve',60000,'ALSO',2,KEYS[2],KEYS[3])";
    let words = ["EVAL", script, "3", "a", "b", "c"];
    let Value::Int(fence) = client.cmd(words) else { panic!("not granted") };
    holds_all(&mut client, "eve", &["a", "b", "c"], fence.cast_unsigned());
}
