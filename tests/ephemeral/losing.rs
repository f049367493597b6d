//! A server that does not decide any more: it frees nothing of what another one holds.

use super::{bindings, binds, let_it_work, until_free};
use redis::Value;
use testkit::{
    Server, Session, Snapshot, becomes, start_pair, wait_until_in_sync, wait_until_it_is,
};

#[test]
fn a_primary_that_becomes_a_replica_forgets_its_bindings() {
    let (primary, replica) = start_pair(Server::builder().tcp(), Server::builder().tcp());
    let mut alice = primary.client();
    let fence = binds(&mut alice, "k", "alice", 0);
    wait_until_in_sync(&primary, &replica);
    replica.promote();
    primary.follow(&replica);
    let mut client = primary.client();
    assert_eq!(bindings(&mut client), 0);
    drop(alice);
    // On the new primary the hold is bound to nothing, until its owner asks there.
    let mut there = replica.client();
    let_it_work(&mut there);
    assert_eq!(there.check("k", "alice"), Some(fence));
    let mut alice = replica.client();
    assert_eq!(binds(&mut alice, "k", "alice", 0), fence);
    drop(alice);
    until_free(&mut there, "k");
    wait_until_it_is(&primary, "slave");
    wait_until_in_sync(&replica, &primary);
    assert_eq!(Snapshot::of(&primary), Snapshot::of(&replica));
}

#[test]
fn a_planned_failover_that_pauses_writes_ends_no_hold_of_connections_that_end_meanwhile() {
    let (primary, replica) = start_pair(Server::builder().tcp(), Server::builder().tcp());
    let mut alice = primary.client();
    let fence = binds(&mut alice, "k", "alice", 0);
    wait_until_in_sync(&primary, &replica);
    let mut client = primary.client();
    assert_eq!(client.cmd("CLIENT PAUSE 60000 WRITE"), Value::Okay);
    drop(alice);
    becomes("the connection is closed", None, || client.check("k", "alice"));
    replica.promote();
    primary.follow(&replica);
    let mut there = replica.client();
    let_it_work(&mut there);
    assert_eq!(there.check("k", "alice"), Some(fence));
}

#[test]
fn a_server_that_refuses_writes_frees_the_lock_when_it_accepts_them_again() {
    let server = Server::builder().config("min-replicas-to-write", "0").start();
    let mut session = Session::of(&server, 0);
    session.steps(
        "
        alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A
        CONFIG SET min-replicas-to-write 1 -> OK
        alice: leaves
        3 ms pass
        ",
    );
    session.step("EXISTS k", if testkit::is_older_than((7, 0)) { "…" } else { "1" });
    session.step("CONFIG SET min-replicas-to-write 0", "OK");
    session.step("LOCK.INFO k", "until nil");
}
