//! `LOCK.EXTEND key owner ttl [fence]`: every reply and every error.

use testkit::errors::{
    FENCE_NOT_A_NUMBER, OWNER_LENGTH, TTL_ABOVE_LIMIT, TTL_NOT_POSITIVE, WRONG_TYPE, wrong_arity,
};
use testkit::{
    Client, Server, assert_each_is_refused, bulk, deadline, error, eventually, int, unchanged,
};

/// Sends an EXTEND and checks that the lease now ends `ttl` from then.
#[track_caller]
fn assert_extends(client: &mut Client, command: &str, ttl: i64) {
    let before = client.now();
    assert_eq!(client.cmd(command), int(1), "{command}");
    let after = client.now();
    let deadline = deadline(client, b"k");
    assert!((before + ttl..=after + ttl).contains(&deadline), "{before} {deadline} {after}");
}

#[test]
fn the_lease_ends_ttl_from_now_be_that_later_or_earlier() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    assert_extends(&mut client, "LOCK.EXTEND k alice 120000", 120_000);
    assert_extends(&mut client, "LOCK.EXTEND k alice 30000", 30_000);
    assert_extends(&mut client, "LOCK.EXTEND k alice 86400000", 86_400_000);
    assert_eq!(client.cmd("GET k"), bulk(format!("{fence}:alice")), "the grant is the same one");
}

#[test]
fn an_extend_with_the_fence_of_its_grant_extends() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    assert_extends(&mut client, &format!("LOCK.EXTEND k alice 120000 {fence}"), 120_000);
}

#[test]
fn an_extend_with_another_fence_changes_nothing() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let old = client.grant("k", "alice", 60_000);
    client.release("k", "alice");
    let new = client.grant("k", "alice", 60_000);
    for fence in [old, new - 1, new + 1, 0] {
        let reply = unchanged(&server, || client.cmd(format!("LOCK.EXTEND k alice 90000 {fence}")));
        assert_eq!(reply, int(0), "{fence} is not {new}");
    }
}

#[test]
fn an_extend_by_another_owner_changes_nothing() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    for command in ["LOCK.EXTEND k bob 90000", &format!("LOCK.EXTEND k bob 90000 {fence}")] {
        assert_eq!(unchanged(&server, || client.cmd(command)), int(0), "{command}");
    }
}

#[test]
fn an_extend_never_creates_a_lock() {
    let server = Server::builder().aof().start();
    assert_eq!(unchanged(&server, || server.cmd("LOCK.EXTEND k alice 60000")), int(0));
    assert_eq!(server.cmd("DBSIZE"), int(0));
}

#[test]
fn an_extend_never_revives_a_lease_that_ran_out() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 1);
    eventually("the lease runs out", || client.info("k").map_or(Ok(()), Err));
    assert!(!client.extend("k", "alice", 60_000));
    assert_eq!(client.info("k"), None);
}

#[test]
fn an_extend_to_1_ms_soon_frees_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    assert!(client.extend("k", "alice", 1));
    eventually("the lease runs out", || client.acquire("k", "bob", 60_000).ok_or(()));
}

#[test]
fn an_extend_gives_an_expiry_to_a_lock_without_one() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    client.cmd("PERSIST k");
    assert_extends(&mut client, "LOCK.EXTEND k alice 60000", 60_000);
}

#[test]
fn a_ttl_is_checked_as_in_acquire() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    for (ttl, text) in [
        ("0", TTL_NOT_POSITIVE),
        ("-1", TTL_NOT_POSITIVE),
        ("", TTL_NOT_POSITIVE),
        (" 5", TTL_NOT_POSITIVE),
        ("05", TTL_NOT_POSITIVE),
        ("+5", TTL_NOT_POSITIVE),
        ("1e3", TTL_NOT_POSITIVE),
        ("86400001", TTL_ABOVE_LIMIT),
        ("9223372036854775808", TTL_ABOVE_LIMIT),
    ] {
        let reply = unchanged(&server, || client.cmd(["LOCK.EXTEND", "k", "alice", ttl]));
        assert_eq!(reply, error(text), "{ttl:?}");
    }
}

#[test]
fn mistakes_are_named_from_left_to_right_and_change_nothing() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    let arity = wrong_arity("LOCK.EXTEND");
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.EXTEND", &arity),
            ("LOCK.EXTEND list", &arity),
            ("LOCK.EXTEND list a", &arity),
            ("LOCK.EXTEND list \"\" 0 x extra", &arity),
            ("LOCK.EXTEND list \"\" 0 x", OWNER_LENGTH),
            ("LOCK.EXTEND list a 0 x", TTL_NOT_POSITIVE),
            ("LOCK.EXTEND list a 86400001 x", TTL_ABOVE_LIMIT),
            ("LOCK.EXTEND list a 5 x", FENCE_NOT_A_NUMBER),
            ("LOCK.EXTEND list a 5 -1", FENCE_NOT_A_NUMBER),
            ("LOCK.EXTEND list a 5 1", WRONG_TYPE),
            ("LOCK.EXTEND list a 5", WRONG_TYPE),
        ],
    );
}
