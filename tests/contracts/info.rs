//! `LOCK.INFO key`, and `LOCK.HELP`, whose lines a test of the pages reads.

use super::{LONG, play};
use redis::Value;
use testkit::{Server, bulk, deadline, int, items, lacks, unchanged, until};

#[test]
fn a_free_lock_is_nil_and_mistakes_are_named() {
    play(
        "
        # nothing changes
        LOCK.INFO k -> nil
        LOCK.ACQUIRE k alice 1 -> A | …
        LOCK.INFO k -> until nil | …
        RPUSH list x -> 1 | …
        LOCK.INFO list extra -> -ARITY | …
        LOCK.INFO list -> -WRONG_TYPE
        LOCK.HELP me -> -ARITY
        ",
    );
    let help = Server::start().cmd("LOCK.HELP");
    let is_simple = |line: &Value| matches!(line, Value::SimpleString(_));
    assert!(items(&help).iter().all(is_simple), "{help:?}");
}

#[test]
fn a_held_lock_is_a_flat_array_in_resp2_and_a_map_in_resp3() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let deadline = deadline(&mut client, b"k");
    let reply = unchanged(&server, || client.cmd("LOCK.INFO k"));
    let Value::Array(flat) = reply else { panic!("{reply:?}") };
    assert_rows(flat, fence, deadline);
    if lacks((7, 0), "maps in a module's reply") {
        return;
    }
    let mut client = server.client_resp3();
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
fn what_is_left_of_the_lease_shrinks_while_the_deadline_stands_and_without_a_lease_both_are_minus_1()
 {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let first = client.info("k").unwrap();
    let later = until("time passes", || client.info("k").unwrap(), |info| info.ttl < first.ttl);
    assert_eq!(later.deadline, first.deadline);
    client.cmd("PERSIST k");
    let info = client.info("k").unwrap();
    assert_eq!((info.ttl, info.deadline), (-1, -1));
}
