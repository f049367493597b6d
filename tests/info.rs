//! `LOCK.INFO key`: every reply and every error.

use redis::Value;
use testkit::errors::{WRONG_TYPE, wrong_arity};
use testkit::{Server, assert_each_is_refused, bulk, deadline, eventually, int, lacks, unchanged};

#[test]
fn a_free_lock_is_nil() {
    let server = Server::builder().aof().start();
    assert_eq!(unchanged(&server, || server.cmd("LOCK.INFO k")), Value::Nil);
    assert_eq!(server.client_resp3().cmd("LOCK.INFO k"), Value::Nil);
}

#[test]
fn a_held_lock_is_a_flat_array_of_names_and_values() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    let deadline = deadline(&mut client, b"k");
    let reply = unchanged(&server, || client.cmd("LOCK.INFO k"));
    let Value::Array(flat) = reply else { panic!("{reply:?}") };
    assert_rows(flat, fence, deadline);
}

#[test]
fn a_held_lock_is_a_map_in_resp3() {
    if lacks((7, 0), "maps in a module's reply") {
        return;
    }
    let server = Server::builder().aof().start();
    let mut client = server.client_resp3();
    let fence = client.grant("k", "alice", 60_000);
    let deadline = deadline(&mut client, b"k");
    let reply = unchanged(&server, || client.cmd("LOCK.INFO k"));
    let Value::Map(pairs) = reply else { panic!("{reply:?}") };
    assert_rows(
        pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
        fence,
        deadline,
    );
}

/// Names and values in turn, of a lock that alice holds for a minute at most.
#[track_caller]
fn assert_rows(mut flat: Vec<Value>, fence: u64, deadline: i64) {
    let left = std::mem::replace(&mut flat[5], int(0));
    assert!(matches!(left, Value::Int(1..=60_000)), "{left:?} is left");
    let rows = [
        [bulk("owner"), bulk("alice")],
        [bulk("fence"), int(fence)],
        [bulk("ttl"), int(0)],
        [bulk("deadline"), int(deadline)],
        [bulk("waiters"), int(0)],
        [bulk("holders"), int(1)],
        [bulk("share"), int(1)],
    ];
    assert_eq!(flat, rows.concat());
}

#[test]
fn a_lock_without_expiry_has_ttl_and_deadline_minus_1() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    client.cmd("PERSIST k");
    let info = client.info("k").unwrap();
    assert_eq!((info.ttl, info.deadline), (-1, -1));
}

#[test]
fn what_is_left_of_the_lease_shrinks_while_the_deadline_stands() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    let first = client.info("k").unwrap();
    let later = eventually("time passes", || {
        let info = client.info("k").unwrap();
        if info.ttl < first.ttl { Ok(info) } else { Err(info) }
    });
    assert_eq!(later.deadline, first.deadline);
}

#[test]
fn a_lock_whose_lease_ran_out_is_nil() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 1);
    eventually("the lease runs out", || client.info("k").map_or(Ok(()), Err));
    assert_eq!(client.cmd("LOCK.INFO k"), Value::Nil);
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    let arity = wrong_arity("LOCK.INFO");
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.INFO", &arity),
            ("LOCK.INFO list extra", &arity),
            ("LOCK.INFO list a b c d e f g h i j", &arity),
            ("LOCK.INFO list", WRONG_TYPE),
        ],
    );
}
