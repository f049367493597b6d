//! `LOCK.RELEASE … ALSO` releases those that are held, `LOCK.EXTEND … ALSO` extends all or none.

use super::{LONG, behind, fences, holds_all, takes, waits};
use redis::Value;
use testkit::{Client, Server, deadline, int, unchanged};

#[test]
fn a_release_tells_how_many_were_held_and_leaves_those_of_others() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    client.cmd("DEL b");
    client.grant("d", "bob", LONG);
    let release = "LOCK.RELEASE a alice ALSO 4 b c d e";
    assert_eq!(client.cmd(release), int(2));
    assert_eq!(client.cmd(release), int(0));
    assert!(client.check("d", "bob").unwrap() > fence);
}

#[test]
fn a_release_by_fence_leaves_later_grants_of_the_same_owner() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b"]).unwrap();
    assert!(client.release("b", "alice"));
    let later = client.grant("b", "alice", LONG);
    assert_eq!(client.cmd(format!("LOCK.RELEASE a alice {fence} ALSO 1 b")), int(1));
    assert_eq!(fences(&mut client, "alice", &["a", "b"]), [None, Some(later)]);
}

#[test]
fn those_held_by_several_grants_are_released_and_extended_together() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["a", "b", "c"] {
        client.grant(key, "alice", LONG);
    }
    assert_eq!(
        client.cmd(format!("LOCK.EXTEND a alice {}{}", 2 * LONG, behind(&["b", "c"]))),
        int(1)
    );
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 2 b c"), int(3));
}

fn ends(client: &mut Client, keys: &[&str]) -> Vec<i64> {
    keys.iter().map(|key| deadline(client, key.as_bytes())).collect()
}

#[test]
fn an_extension_moves_the_ends_of_all_leases_to_the_same_moment() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let before = ends(&mut client, &["a"])[0];
    for proof in ["", &format!(" {fence}")] {
        let request = format!("LOCK.EXTEND c alice {}{proof}{}", 2 * LONG, behind(&["b", "a"]));
        assert_eq!(client.cmd(request), int(1));
        let after = ends(&mut client, &["a", "b", "c"]);
        assert!(after[0] > before + 30_000);
        assert_eq!(after, [after[0]; 3]);
    }
    assert_eq!(client.cmd(format!("LOCK.EXTEND a alice 5{}", behind(&["b", "c"]))), int(1));
    testkit::eventually("all have run out", || match client.cmd("EXISTS a b c") {
        Value::Int(0) => Ok(()),
        other => Err(other),
    });
}

#[test]
fn an_extension_of_which_one_is_not_held_extends_none() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    client.cmd("DEL b");
    client.grant("d", "bob", LONG);
    let later = format!("{}", fence + 1);
    for request in [
        "LOCK.EXTEND a alice 90000 ALSO 2 b c".to_owned(),
        "LOCK.EXTEND b alice 90000 ALSO 2 a c".to_owned(),
        "LOCK.EXTEND a alice 90000 ALSO 2 c b".to_owned(),
        "LOCK.EXTEND a alice 90000 ALSO 1 d".to_owned(),
        "LOCK.EXTEND a bob 90000 ALSO 1 d".to_owned(),
        format!("LOCK.EXTEND a alice 90000 {later} ALSO 1 c"),
    ] {
        assert_eq!(unchanged(&server, || client.cmd(&*request)), int(0), "{request}");
    }
    assert_eq!(client.cmd("LOCK.EXTEND a alice 90000 ALSO 1 c"), int(1));
}

#[test]
fn each_lock_of_a_grant_can_be_released_extended_and_checked_by_itself() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    assert!(client.extend("b", "alice", 2 * LONG));
    assert_eq!(client.cmd(format!("LOCK.CHECK c alice {fence}")), int(fence));
    assert!(client.release("a", "alice"));
    holds_all(&mut client, "alice", &["b", "c"], fence);
    client.grant("a", "bob", LONG);
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 2 b c"), int(2));
    assert!(client.check("a", "bob").is_some());
}

#[test]
fn each_lock_that_is_released_goes_to_the_one_who_waits_for_it() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let mut waiters = [
        waits(&server, "r0", &["a"]),
        waits(&server, "r1", &["b", "c"]),
        waits(&server, "r2", &["c"]),
    ];
    assert_eq!(client.cmd("LOCK.RELEASE c alice ALSO 2 a b"), int(3));
    waiters[0].fence();
    let fence = waiters[1].fence();
    waiters[2].assert_waits(&server);
    holds_all(&mut client, "r1", &["b", "c"], fence);
}
