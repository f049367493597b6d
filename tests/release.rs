//! `LOCK.RELEASE key owner [fence]`: every reply and every error.

use redis::Value;
use testkit::errors::{FENCE_NOT_A_NUMBER, OWNER_LENGTH, WRONG_TYPE, wrong_arity};
use testkit::{Server, assert_each_is_refused, error, eventually, int, unchanged};

#[test]
fn the_holder_releases_and_nothing_is_left() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    assert_eq!(client.cmd("LOCK.RELEASE k alice"), int(1));
    assert_eq!(client.cmd("DBSIZE"), int(0));
}

#[test]
fn a_second_release_is_0() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    assert!(client.release("k", "alice"));
    assert_eq!(unchanged(&server, || client.cmd("LOCK.RELEASE k alice")), int(0));
}

#[test]
fn a_release_by_another_owner_changes_nothing() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    for other in ["bob", "alic", "alice2", "*"] {
        assert!(!unchanged(&server, || client.release("k", other)), "{other}");
    }
}

#[test]
fn a_release_of_a_lock_never_held_is_0() {
    let server = Server::builder().aof().start();
    assert_eq!(unchanged(&server, || server.cmd("LOCK.RELEASE k alice")), int(0));
    assert_eq!(unchanged(&server, || server.cmd("LOCK.RELEASE k alice 7")), int(0));
}

#[test]
fn a_release_after_the_lease_ran_out_is_0() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 1);
    eventually("the lease runs out", || client.info("k").map_or(Ok(()), Err));
    assert!(!client.release("k", "alice"));
}

#[test]
fn a_release_with_the_fence_of_its_grant_releases() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {fence}")), int(1));
    assert_eq!(client.info("k"), None);
}

#[test]
fn a_late_release_does_not_touch_a_newer_grant_of_the_same_owner() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let old = client.grant("k", "alice", 60_000);
    assert!(client.release("k", "alice"));
    let new = client.grant("k", "alice", 60_000);
    for fence in [old, new - 1, new + 1, 0, 9_007_199_254_740_991] {
        let reply = unchanged(&server, || client.cmd(format!("LOCK.RELEASE k alice {fence}")));
        assert_eq!(reply, int(0), "{fence} is not {new}");
    }
}

#[test]
fn another_owner_cannot_release_with_the_right_fence() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    let reply = unchanged(&server, || client.cmd(format!("LOCK.RELEASE k bob {fence}")));
    assert_eq!(reply, int(0));
}

#[test]
fn a_lock_without_expiry_is_released_like_any_other() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    client.cmd("PERSIST k");
    assert!(client.release("k", "alice"));
    assert_eq!(client.cmd("EXISTS k"), int(0));
}

#[test]
fn a_fence_that_is_no_number_of_53_bits_is_refused() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    let texts =
        ["", "-1", "+1", "01", " 1", "1 ", "1e3", "x", "9007199254740992", "18446744073709551616"];
    for fence in texts {
        let reply = unchanged(&server, || client.cmd(["LOCK.RELEASE", "k", "alice", fence]));
        assert_eq!(reply, error(FENCE_NOT_A_NUMBER), "{fence:?}");
    }
}

#[test]
fn mistakes_are_named_from_left_to_right_and_change_nothing() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    let arity = wrong_arity("LOCK.RELEASE");
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.RELEASE", &arity),
            ("LOCK.RELEASE list", &arity),
            ("LOCK.RELEASE list \"\" x extra", &arity),
            ("LOCK.RELEASE list a 1 2 3 4 5 6 7 8 9 10 11 12", &arity),
            ("LOCK.RELEASE list \"\" x", OWNER_LENGTH),
            ("LOCK.RELEASE list a x", FENCE_NOT_A_NUMBER),
            ("LOCK.RELEASE list a 1", WRONG_TYPE),
            ("LOCK.RELEASE list a", WRONG_TYPE),
        ],
    );
}

#[test]
fn an_owner_of_256_bytes_is_refused_and_not_cut() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", [b'x'; 255], 60_000);
    let owner = [b'x'; 256];
    for command in [&b"LOCK.RELEASE"[..], b"LOCK.CHECK"] {
        let reply = unchanged(&server, || client.cmd([command, &b"k"[..], &owner]));
        assert_eq!(reply, error(OWNER_LENGTH));
    }
    let reply = unchanged(&server, || client.cmd([b"LOCK.EXTEND", &b"k"[..], &owner, b"5"]));
    assert_eq!(reply, error(OWNER_LENGTH));
    assert_ne!(client.cmd("GET k"), Value::Nil);
}
