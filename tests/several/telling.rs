//! What is shown of several locks: to operators, and in key events.

use super::{takes, waits};
use crate::observing::play;
use redis::Value;
use testkit::{Server, bulk_text, field, int};

#[test]
fn the_queue_shows_for_how_many_locks_each_waits() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let _several = waits(&server, "bob", &["a", "b", "c"]);
    let _one = waits(&server, "carol", &["b"]);
    let Value::Array(rows) = client.cmd("LOCK.WAITERS b") else { panic!("no list") };
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (bulk_text(field(row, "owner").unwrap()), field(row, "locks").unwrap().clone()))
        .collect();
    assert_eq!(shown, [("bob".to_owned(), int(3)), ("carol".to_owned(), int(1))]);
}

#[test]
fn each_lock_is_counted_and_published_when_all_are_written_and_a_wait_once() {
    play(
        "",
        "",
        "
        # from a grant to a hand-off
        LOCK.ACQUIRE a alice 60000 ALSO 1 b -> A | grants+2 held+2 | acquired(a) acquired(b)
        bob: LOCK.ACQUIRE b bob 60000 ALSO 1 a BLOCK 0 -> waits | waits_started+1 waiters+1 waiters_most+1 | -
        LOCK.RELEASE a alice ALSO 1 b -> 2
        bob: -> B | | released(a) released(b) handed-off(b) handed-off(a)
        INFO leasehold_waits_granted -> 1
        INFO leasehold_releases -> 2
        INFO leasehold_grants -> 4
        ",
    );
}
