//! `LOCK.RAISE key owner fence`, and what becomes of the fences after it.

use super::{LONG, play};
use crate::shared::Scene;
use testkit::{Server, Session, error, unchanged};

const HOUR_MICROS: u64 = 3_600_000_000;
const TOO_FAR: &str = "ERR fence must be at most a day ahead of the server's clock";

#[test]
fn every_reply_and_every_error() {
    play(
        "
        # the grant has the larger fence from then on, and its lease stays
        LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
        LOCK.EXTEND k alice 120000 -> 1 | SET k {A}:alice PXAT +120000
        PERSIST k -> 1 | PERSIST k
        LOCK.RAISE k alice A+3600000000 -> B | SET k {B}:alice
        LOCK.ACQUIRE k alice 60000 -> B
        LOCK.RAISE k alice 0 -> B
        LOCK.RAISE k alice B-1 -> B
        LOCK.RAISE k alice B -> B
        LOCK.RAISE k bob B+1 -> nil
        LOCK.RELEASE k alice A -> 0
        LOCK.RELEASE k alice B -> 1 | DEL k
        LOCK.RAISE k alice B+3600000000 -> nil
        LOCK.ACQUIRE k bob 60000 -> C | SET k {C}:bob PXAT +60000
        LOCK.CHECK k bob B+1 -> C
        # mistakes are named from left to right
        RPUSH list x -> 1 | RPUSH list x
        LOCK.RAISE list alice -> -ARITY
        LOCK.RAISE list alice 1 2 -> -ARITY
        LOCK.RAISE list \"\" x -> -OWNER_LENGTH
        LOCK.RAISE list alice x -> -FENCE_NOT_A_NUMBER
        LOCK.RAISE list alice 1 -> -WRONG_TYPE
        ",
    );
}

#[test]
fn whoever_is_granted_any_lock_later_has_a_larger_fence() {
    let server = Server::start();
    let mut client = server.client();
    let raised = client.grant("k", "alice", LONG) + HOUR_MICROS;
    client.fence(format!("LOCK.RAISE k alice {raised}"));
    assert!(client.grant("another", "bob", LONG) > raised);
    client.release("k", "alice");
    assert!(client.grant("k", "bob", LONG) > raised);
}

#[test]
fn a_fence_of_more_than_a_day_ahead_is_refused() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let day = 24 * HOUR_MICROS;
    let now = u64::try_from(client.now()).unwrap() * 1_000;
    let too_far = now + day + 60_000_000;
    for owner in ["alice", "bob"] {
        let command = format!("LOCK.RAISE k {owner} {too_far}");
        assert_eq!(unchanged(&server, || client.cmd(&*command)), error(TOO_FAR));
    }
    let near = now + day - 60_000_000;
    assert_eq!(client.fence(format!("LOCK.RAISE k alice {near}")), Some(near));
    assert!(near > fence);
}

#[test]
fn those_who_wait_wait_on_and_nothing_was_lost() {
    Session::play(
        &Server::start(),
        "
        # and the next fence is above it
        LOCK.ACQUIRE k alice 60000 -> A
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        LOCK.RAISE k alice A+3600000000 -> B
        bob: -> waits
        LOCK.RELEASE k alice -> 1
        bob: -> C
        LOCK.LOG -> (empty)
        INFO leasehold_raises -> 1
        ",
    );
}

#[test]
fn replicas_and_the_append_only_file_have_the_raised_fence() {
    Scene::play(
        "
        # and the lease stays
        LOCK.ACQUIRE k alice 60000 -> A
        LOCK.RAISE k alice A+3600000000 -> B
        LOCK.CHECK k alice; PTTL k -> B; 1..60000
        ",
    );
}
