//! `LOCK.RAISE key owner fence`: every reply and every error, and what becomes of the fences after it.

use redis::Value;
use testkit::errors::{FENCE_NOT_A_NUMBER, OWNER_LENGTH, WRONG_TYPE, wrong_arity};
use testkit::{
    Client, Server, Waiter, aof, assert_each_is_refused, bulk, deadline, error, int, start_pair,
    unchanged, wait_until_in_sync,
};

const LONG: u64 = 60_000;
const HOUR_MICROS: u64 = 3_600_000_000;
const TOO_FAR: &str = "ERR fence must be at most a day ahead of the server's clock";

/// Sends a RAISE; the fence in force, or `None` if the owner is not the holder.
fn raise(client: &mut Client, owner: &str, fence: u64) -> Option<u64> {
    match client.cmd(format!("LOCK.RAISE k {owner} {fence}")) {
        Value::Int(fence) => Some(fence.try_into().unwrap()),
        Value::Nil => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_grant_has_the_larger_fence_from_then_on_and_its_lease_stays() {
    let server = Server::start();
    let mut client = server.client();
    let former = client.grant("k", "alice", LONG);
    let until = deadline(&mut client, b"k");
    let raised = former + HOUR_MICROS;
    assert_eq!(raise(&mut client, "alice", raised), Some(raised));
    assert_eq!(client.cmd("GET k"), bulk(format!("{raised}:alice")));
    assert_eq!(deadline(&mut client, b"k"), until);
    assert_eq!(client.acquire("k", "alice", LONG), Some(raised), "a retry is told it");
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {former}")), int(0), "the former is void");
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {raised}")), int(1));
}

#[test]
fn whoever_is_granted_any_lock_later_has_a_larger_fence() {
    let server = Server::start();
    let mut client = server.client();
    let raised = client.grant("k", "alice", LONG) + HOUR_MICROS;
    raise(&mut client, "alice", raised);
    assert!(client.grant("another", "bob", LONG) > raised);
    client.release("k", "alice");
    assert!(client.grant("k", "bob", LONG) > raised);
}

#[test]
fn a_fence_that_is_no_larger_changes_nothing_and_the_one_in_force_is_told() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    for smaller in [0, 1, fence - 1, fence] {
        assert_eq!(unchanged(&server, || raise(&mut client, "alice", smaller)), Some(fence));
    }
}

#[test]
fn who_does_not_hold_the_lock_raises_nothing() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let asked = fence + HOUR_MICROS;
    assert_eq!(unchanged(&server, || raise(&mut client, "bob", asked)), None);
    client.release("k", "alice");
    assert_eq!(unchanged(&server, || raise(&mut client, "alice", asked)), None);
    assert!(client.grant("k", "bob", LONG) < asked, "nor the fences of others");
}

#[test]
fn a_foreign_lock_keeps_its_value_and_has_no_fence() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.cmd("SET k alice PX 60000");
    let asked = u64::try_from(client.now()).unwrap() * 1_000;
    assert_eq!(unchanged(&server, || raise(&mut client, "alice", asked)), Some(0));
}

#[test]
fn a_lock_without_expiry_stays_without() {
    let server = Server::start();
    let mut client = server.client();
    let raised = client.grant("k", "alice", LONG) + 1;
    client.cmd("PERSIST k");
    assert_eq!(raise(&mut client, "alice", raised), Some(raised));
    assert_eq!(client.cmd("PTTL k"), int(-1));
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
    assert_eq!(raise(&mut client, "alice", near), Some(near));
    assert!(near > fence);
}

#[test]
fn mistakes_are_named_from_left_to_right_and_change_nothing() {
    let server = Server::builder().aof().start();
    server.client().grant("k", "alice", LONG);
    server.cmd("LPUSH list x");
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.RAISE", &wrong_arity("LOCK.RAISE")),
            ("LOCK.RAISE k alice", &wrong_arity("LOCK.RAISE")),
            ("LOCK.RAISE k alice 1 2", &wrong_arity("LOCK.RAISE")),
            ("LOCK.RAISE k alice -1", FENCE_NOT_A_NUMBER),
            ("LOCK.RAISE k alice 9007199254740992", FENCE_NOT_A_NUMBER),
            ("LOCK.RAISE list alice x", FENCE_NOT_A_NUMBER),
            ("LOCK.RAISE list alice 1", WRONG_TYPE),
        ],
    );
    let mut client = server.client();
    assert_eq!(client.cmd(["LOCK.RAISE", "k", "", "x"]), error(OWNER_LENGTH));
}

#[test]
fn replicas_and_the_append_only_file_have_the_raised_fence() {
    let (mut primary, replica) = start_pair(Server::builder().aof(), Server::builder());
    let mut client = primary.client();
    let raised = client.grant("k", "alice", LONG) + HOUR_MICROS;
    raise(&mut client, "alice", raised);
    let until = deadline(&mut client, b"k");
    let last = aof::lines(&primary).pop();
    assert_eq!(last, Some(format!("SET k {raised}:alice PXAT {until}")));
    wait_until_in_sync(&primary, &replica);
    assert_eq!(replica.client().check("k", "alice"), Some(raised));
    primary.kill();
    primary.start_again();
    assert_eq!(primary.client().check("k", "alice"), Some(raised));
}

#[test]
fn those_who_wait_wait_on_and_nothing_was_lost() {
    let server = Server::start();
    let mut client = server.client();
    let raised = client.grant("k", "alice", LONG) + HOUR_MICROS;
    let mut bob = Waiter::of(&server, "k", "bob");
    raise(&mut client, "alice", raised);
    bob.assert_waits(&server);
    assert!(client.release("k", "alice"));
    assert!(bob.fence() > raised);
    assert_eq!(client.cmd("LOCK.LOG"), Value::Array(Vec::new()));
    assert_eq!(client.counter("raises"), 1);
}

#[test]
fn a_late_release_is_known_by_the_raised_fence() {
    let server = Server::start();
    let mut client = server.client();
    let raised = client.grant("k", "alice", 1) + HOUR_MICROS;
    // Too late already, perhaps; then again.
    let in_force = raise(&mut client, "alice", raised).unwrap_or_else(|| {
        client.grant("k", "alice", 200);
        raise(&mut client, "alice", raised + HOUR_MICROS).unwrap()
    });
    testkit::eventually("the lease runs out", || client.info("k").map_or(Ok(()), Err));
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {in_force}")), int(0));
    assert_eq!(client.counter("releases_late"), 1);
}
