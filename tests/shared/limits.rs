//! How many may hold a lock at most, and what requests are refused with.

use super::{LONG, Scene, holders, share, waits};
use redis::Value;
use testkit::errors::{
    OWNER_LENGTH, PATIENCE_OUT_OF_RANGE, TTL_ABOVE_LIMIT, TTL_NOT_POSITIVE, UNKNOWN_OPTION,
    WRONG_TYPE, wrong_arity,
};
use testkit::{Client, Server, Waiter, bulk, error, lacks, start_pair};

const SHARE_OUT_OF_RANGE: &str = "ERR SHARE must be an integer from 0 to 99999 (holders at a time)";

#[test]
fn a_thousand_hold_a_lock_and_no_more() {
    let scene = Scene::start();
    let mut client = scene.client();
    for number in 0..1_000 {
        assert!(share(&mut client, &format!("reader-{number}"), LONG, 0).is_some());
    }
    assert_eq!(share(&mut client, "one-more", LONG, 0), None);
    assert_eq!(share(&mut client, "one-more", LONG, 99_999), None);
    assert_eq!(client.info("k").unwrap().holders, 1_000);
    assert_eq!(client.cmd("LOCK.HOLDERS k").into_sequence().unwrap().len(), 100);
    let mut waiter = waits(&scene.primary, "one-more", 0);
    assert!(client.release("k", "reader-500"));
    waiter.fence();
    for number in (0..1_000).filter(|number| *number != 500) {
        assert!(client.release("k", format!("reader-{number}")));
    }
    assert_eq!(holders(&mut client), ["one-more"]);
    scene.agree();
}

fn set_limit(client: &mut Client, most: u32) {
    let set = format!("CONFIG SET leasehold.max-holders {most}");
    assert_eq!(client.cmd(set), Value::Okay);
}

#[test]
fn a_limit_that_is_lowered_takes_the_lock_from_nobody_and_one_that_is_raised_lets_in_who_waits() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let scene = Scene::start();
    let mut client = scene.client();
    let readers = ["r1", "r2", "r3", "r4", "r5"];
    let fences = readers.map(|reader| share(&mut client, reader, LONG, 0).unwrap());
    set_limit(&mut client, 3);
    for (reader, fence) in readers.into_iter().zip(fences) {
        assert_eq!(share(&mut client, reader, LONG, 0), Some(fence), "a retry of {reader}");
        assert!(client.extend("k", reader, LONG));
        assert_eq!(share(&mut client, reader, LONG, 5), None, "{reader} would be one of five");
    }
    let mut waiting = ["w1", "w2", "w3"].map(|owner| waits(&scene.primary, owner, 0));
    for reader in &readers[..2] {
        assert!(client.release("k", reader));
        assert_eq!(client.info("k").unwrap().waiters, 3, "three are still too many");
    }
    assert!(client.release("k", "r3"));
    waiting[0].fence();
    assert_eq!(holders(&mut client), ["r4", "r5", "w1"]);
    set_limit(&mut client, 5);
    for waiter in &mut waiting[1..] {
        waiter.fence();
    }
    assert_eq!(holders(&mut client), ["r4", "r5", "w1", "w2", "w3"]);
    scene.agree();
}

#[test]
fn a_limit_of_one_makes_every_hold_the_only_one() {
    let server = Server::builder().module_args("max-holders 1").start();
    let mut client = server.client();
    let fence = share(&mut client, "r1", LONG, 0).unwrap();
    assert_eq!(share(&mut client, "r2", LONG, 0), None);
    let mut next = waits(&server, "r2", 5);
    assert_eq!(share(&mut client, "r1", LONG, 0), Some(fence));
    assert!(client.release("k", "r1"));
    assert!(next.fence() > fence);
}

#[test]
fn mistakes_are_found_in_the_order_of_the_page() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("RPUSH list x");
    // Each has one mistake less than the one before. `-` stands for an empty owner.
    for (request, expected) in [
        ("LOCK.ACQUIRE list -", &*wrong_arity("LOCK.ACQUIRE")),
        ("LOCK.ACQUIRE list - 0 SHARE x BLOCK x NOW", OWNER_LENGTH),
        ("LOCK.ACQUIRE list a 0 SHARE x BLOCK x NOW", TTL_NOT_POSITIVE),
        ("LOCK.ACQUIRE list a 86400001 SHARE x BLOCK x NOW", TTL_ABOVE_LIMIT),
        ("LOCK.ACQUIRE list a 1 SHARE x BLOCK x NOW", UNKNOWN_OPTION),
        ("LOCK.ACQUIRE list a 1 BLOCK x SHARE x", SHARE_OUT_OF_RANGE),
        ("LOCK.ACQUIRE list a 1 SHARE x BLOCK x", SHARE_OUT_OF_RANGE),
        ("LOCK.ACQUIRE list a 1 SHARE 0 BLOCK x", PATIENCE_OUT_OF_RANGE),
        ("LOCK.ACQUIRE list a 1 SHARE 0 BLOCK 0", WRONG_TYPE),
    ] {
        let word = |word: &str| word.trim_start_matches('-').as_bytes().to_vec();
        let words: Vec<_> = request.split(' ').map(word).collect();
        assert_eq!(client.cmd(words), error(expected), "{request}");
    }
    for options in
        ["SHARE", "SHARE 1 SHARE 1", "SHARE 1 BLOCK 1 SHARE 1", "SHARES 1", "BLOCK 1 SHARE"]
    {
        let request = format!("LOCK.ACQUIRE list a 1 {options}");
        assert_eq!(client.cmd(request), error(UNKNOWN_OPTION), "{options}");
    }
    for share in ["", "-1", "+1", "01", "1.0", "1e3", "100000", "18446744073709551617", " 1"] {
        let request = ["LOCK.ACQUIRE", "list", "a", "1", "SHARE", share];
        assert_eq!(client.cmd(request), error(SHARE_OUT_OF_RANGE), "{share:?}");
    }
    assert!(matches!(client.cmd("LOCK.ACQUIRE k a 60000 block 5 share 2"), Value::Int(_)));
    let keys = client.cmd("COMMAND GETKEYS LOCK.ACQUIRE k a 60000 BLOCK 5 SHARE 2");
    assert_eq!(keys, Value::Array(vec![bulk("k")]));
}

/// Those who hold the lock are answered, and so is who may not be let in at all; only who would have to wait is refused.
#[test]
fn a_full_queue_refuses_who_would_have_to_wait_for_others_to_leave() {
    let server = Server::builder().module_args("max-waiters-per-lock 1").start();
    let mut client = server.client();
    let fence = share(&mut client, "r1", LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 0).unwrap();
    let full = "QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)";
    let mut writer = Waiter::of(&server, "k", "w");
    assert_eq!(client.cmd("LOCK.ACQUIRE k r3 60000 SHARE 0 BLOCK 0"), error(full));
    assert_eq!(client.cmd("LOCK.ACQUIRE k r3 60000 SHARE 0"), Value::Nil, "a try");
    assert_eq!(client.cmd("LOCK.ACQUIRE k r1 60000 BLOCK 0"), Value::Nil, "it is not alone");
    assert_eq!(share(&mut client, "r1", LONG, 0), Some(fence));
    assert!(client.release("k", "r1") && client.release("k", "r2"));
    writer.fence();
}

#[test]
fn a_server_that_is_out_of_memory_lets_nobody_in_beside_others_but_who_waited_already() {
    let scene = Scene::start();
    let mut client = scene.client();
    let fence = share(&mut client, "r1", LONG, 2).unwrap();
    share(&mut client, "r2", LONG, 2).unwrap();
    let mut waiter = waits(&scene.primary, "r3", 2);
    assert_eq!(client.cmd("CONFIG SET maxmemory 1"), Value::Okay);
    for request in ["LOCK.ACQUIRE k r4 60000 SHARE 2", "LOCK.ACQUIRE k r1 60000 SHARE 2"] {
        let Value::ServerError(told) = client.cmd(request) else { panic!("not refused") };
        assert_eq!(told.code(), "OOM");
    }
    assert!(client.extend("k", "r1", 2 * LONG));
    assert!(client.release("k", "r2"));
    waiter.fence();
    assert_eq!(client.check("k", "r1"), Some(fence));
    assert_eq!(holders(&mut client), ["r1", "r3"]);
    assert!(client.release("k", "r1") && client.release("k", "r3"));
    assert_eq!(client.cmd("CONFIG SET maxmemory 0"), Value::Okay);
    scene.agree();
}

#[test]
fn a_replica_lets_nobody_in_and_shows_who_holds_the_lock() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut client = primary.client();
    let fence = share(&mut client, "r1", LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 4).unwrap();
    testkit::wait_until_in_sync(&primary, &replica);
    let mut client = replica.client();
    for request in [
        "LOCK.ACQUIRE k r3 60000 SHARE 0",
        "LOCK.ACQUIRE k r3 60000 SHARE 0 BLOCK 0",
        "LOCK.ACQUIRE k r1 60000 SHARE 0",
        "LOCK.EXTEND k r1 60000",
        "LOCK.RELEASE k r1",
    ] {
        let Value::ServerError(told) = client.cmd(request) else { panic!("{request}: accepted") };
        assert_eq!(told.code(), "READONLY", "{request}");
    }
    assert_eq!(client.check("k", "r1"), Some(fence));
    let info = client.info("k").unwrap();
    assert_eq!((info.holders, info.share, info.waiters), (2, 4, 0));
    assert_eq!(holders(&mut client), ["r1", "r2"]);
    // One that was made writable changes its own copy, and has nobody wait.
    assert_eq!(client.cmd("CONFIG SET replica-read-only no"), Value::Okay);
    assert_eq!(
        client.cmd("LOCK.ACQUIRE k w 60000 BLOCK 0"),
        error("ERR BLOCK and TICKET are not possible on a replica, wait at its primary")
    );
}
