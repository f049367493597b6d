//! `LOCK.CHECK key owner [fence]`: every reply and every error.

use redis::Value;
use testkit::errors::{FENCE_NOT_A_NUMBER, OWNER_LENGTH, WRONG_TYPE, wrong_arity};
use testkit::{Server, assert_each_is_refused, eventually, int, unchanged};

#[test]
fn the_holder_is_told_the_fence_of_its_grant() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    assert_eq!(unchanged(&server, || client.cmd("LOCK.CHECK k alice")), int(fence));
    assert_eq!(client.cmd(format!("LOCK.CHECK k alice {fence}")), int(fence));
}

#[test]
fn anyone_else_is_told_nil() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    for command in [
        "LOCK.CHECK k bob".to_owned(),
        format!("LOCK.CHECK k bob {fence}"),
        format!("LOCK.CHECK k alice {}", fence - 1),
        "LOCK.CHECK k alice 0".to_owned(),
        "LOCK.CHECK free alice".to_owned(),
        "LOCK.CHECK free alice 0".to_owned(),
    ] {
        assert_eq!(unchanged(&server, || client.cmd(command.as_str())), Value::Nil, "{command}");
    }
}

#[test]
fn a_holder_whose_lease_ran_out_is_told_nil() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 1);
    eventually("the lease runs out", || client.check("k", "alice").map_or(Ok(()), Err));
}

#[test]
fn a_holder_without_expiry_holds() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    client.cmd("PERSIST k");
    assert_eq!(client.check("k", "alice"), Some(fence));
}

#[test]
fn mistakes_are_named_from_left_to_right_and_change_nothing() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    let arity = wrong_arity("LOCK.CHECK");
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.CHECK", &arity),
            ("LOCK.CHECK list", &arity),
            ("LOCK.CHECK list \"\" x extra", &arity),
            ("LOCK.CHECK list \"\" x", OWNER_LENGTH),
            ("LOCK.CHECK list a x", FENCE_NOT_A_NUMBER),
            ("LOCK.CHECK list a 9007199254740992", FENCE_NOT_A_NUMBER),
            ("LOCK.CHECK list a 1", WRONG_TYPE),
            ("LOCK.CHECK list a", WRONG_TYPE),
        ],
    );
}
