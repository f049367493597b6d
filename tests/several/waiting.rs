//! A place in the queue of each lock: granted when it is first in all, and all can be had.

use super::{LONG, asks, holds_all, holds_none, takes, until_waiting, waiting, waits};
use redis::Value;
use testkit::{Server, Waiter, eventually, int};

#[test]
fn who_waits_is_granted_all_when_the_last_of_them_is_free() {
    for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]] {
        let server = Server::start();
        let mut client = server.client();
        for key in order {
            client.grant(key, "alice", LONG);
        }
        let mut waiter = waits(&server, "bob", &["a", "b", "c"]);
        assert_eq!(waiting(&mut client, &["a", "b", "c"]), [1, 1, 1]);
        for key in &order[..2] {
            assert!(client.release(key, "alice"));
            waiter.assert_waits(&server);
            holds_none(&mut client, "bob", &["a", "b", "c"]);
        }
        assert!(client.release(order[2], "alice"));
        let fence = waiter.fence();
        holds_all(&mut client, "bob", &["a", "b", "c"], fence);
        assert_eq!(waiting(&mut client, &["a", "b", "c"]), [0, 0, 0]);
    }
}

#[test]
fn whatever_ends_the_last_hold_the_one_who_waits_is_granted_all() {
    for way in [
        "LOCK.RELEASE b alice",
        "DEL b",
        "PEXPIRE b 1",
        "LOCK.EXTEND b alice 5",
        "RENAME b elsewhere",
        "FLUSHALL",
        "EVAL redis.call('DEL',KEYS[1]) 1 b",
        "LOCK.RELEASE b alice ALSO 1 elsewhere",
    ] {
        let server = Server::start();
        let mut client = server.client();
        client.grant("b", "alice", LONG);
        let mut waiter = waits(&server, "bob", &["a", "b"]);
        client.cmd(way);
        let fence = waiter.fence();
        holds_all(&mut client, "bob", &["a", "b"], fence);
    }
}

/// Who waits for others, too, leaves a lock free meanwhile, and clients that do not queue may take it. Nothing tells of
/// that, since a `SET … NX` frees no lock.
#[test]
fn a_lock_that_an_older_client_took_in_between_is_had_with_the_others_when_its_lease_ends() {
    const LEASE: i64 = 200;
    let server = Server::builder().module_args("fence-margin 0").start();
    let mut client = server.client();
    client.grant("b", "alice", LONG);
    let mut bob = waits(&server, "bob", &["a", "b"]);
    // From then on the lock a is looked at once a second.
    let begun = client.now();
    eventually("bob has waited for more than a second", || match client.now() - begun {
        1_100.. => Ok(()),
        waited => Err(waited),
    });
    client.cmd(format!("SET a older NX PX {LEASE}"));
    let end = client.now() + LEASE;
    assert!(client.release("b", "alice"));
    let fence = bob.fence();
    let late = i64::try_from(fence / 1_000).unwrap() - end;
    assert!(late < 300, "granted {late} ms after the end of the lease");
    holds_all(&mut client, "bob", &["a", "b"], fence);
}

#[test]
fn a_release_of_all_hands_all_on_in_the_same_step() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let mut waiter = waits(&server, "bob", &["c", "b", "a"]);
    let replies = client.pipeline(&["LOCK.RELEASE a alice ALSO 2 b c", "LOCK.CHECK a bob"]);
    assert_eq!(replies, [int(3), int(waiter.fence())]);
}

#[test]
fn those_behind_it_wait_for_a_free_lock_until_it_has_had_its_turn() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("b", "alice", LONG);
    let mut first = waits(&server, "bob", &["a", "b"]);
    // The lock a is free, and bob has asked first.
    let mut second = waits(&server, "carol", &["a"]);
    assert_eq!(client.acquire("a", "dave", LONG), None);
    second.assert_waits(&server);
    assert!(client.release("b", "alice"));
    let fence = first.fence();
    second.assert_waits(&server);
    assert_eq!(client.cmd("LOCK.RELEASE a bob ALSO 1 b"), int(2));
    assert!(second.fence() > fence);
}

#[test]
fn sets_that_overlap_in_a_ring_are_granted_in_the_order_in_which_they_were_asked_for() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let mut ring = [
        waits(&server, "r0", &["a", "b"]),
        waits(&server, "r1", &["b", "c"]),
        waits(&server, "r2", &["c", "a"]),
    ];
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 2 b c"), int(3));
    let mut last = 0;
    for (waiter, release) in ring.iter_mut().zip([
        "LOCK.RELEASE a r0 ALSO 1 b",
        "LOCK.RELEASE b r1 ALSO 1 c",
        "LOCK.RELEASE c r2 ALSO 1 a",
    ]) {
        let fence = waiter.fence();
        assert!(fence > last);
        last = fence;
        assert_eq!(client.cmd(release), int(2));
    }
}

#[test]
fn those_who_have_no_lock_in_common_do_not_wait_for_each_other() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c", "d"]).unwrap();
    let mut first = waits(&server, "bob", &["a", "b"]);
    let mut second = waits(&server, "carol", &["c", "d"]);
    assert_eq!(client.cmd("LOCK.RELEASE c alice ALSO 1 d"), int(2));
    second.fence();
    first.assert_waits(&server);
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 1 b"), int(2));
    first.fence();
}

#[test]
fn when_its_turn_is_over_in_one_queue_those_behind_it_in_every_queue_have_theirs() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("b", "alice", LONG);
    let request = format!("{} BLOCK 0", asks("bob", &["a", "b", "c"]));
    let first = Waiter::sends(&server, &request);
    let mut others = [waits(&server, "r0", &["a"]), waits(&server, "r1", &["c"])];
    drop(first);
    for waiter in &mut others {
        waiter.fence();
    }
    assert_eq!(waiting(&mut client, &["a", "b", "c"]), [0, 0, 0]);
}

#[test]
fn patience_ends_in_all_queues_at_once() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("b", "alice", LONG);
    let mut patient = client.pipeline(&[&format!("{} BLOCK 30", asks("bob", &["a", "b"]))]);
    assert_eq!(patient.pop(), Some(Value::Nil));
    assert_eq!(waiting(&mut client, &["a", "b"]), [0, 0]);
    client.grant("a", "carol", LONG);
}

#[test]
fn a_lease_that_runs_out_while_all_others_are_free_hands_all_on() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("b", "alice", 40);
    let mut waiter = waits(&server, "bob", &["a", "b", "c"]);
    let fence = waiter.fence();
    holds_all(&mut client, "bob", &["a", "b", "c"], fence);
}

#[test]
fn one_that_is_no_lock_is_waited_for_until_it_is_gone() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("b", "alice", LONG);
    let mut waiter = waits(&server, "bob", &["a", "b"]);
    client.cmd("DEL b");
    waiter.fence();
    client.cmd("DEL a b");
    client.grant("b", "alice", LONG);
    let mut waiter = waits(&server, "bob", &["a", "b"]);
    assert_eq!(client.transaction(&["DEL b", "RPUSH b x"])[1], int(1));
    waiter.assert_waits(&server);
    client.cmd("DEL b");
    waiter.fence();
}

#[test]
fn who_asks_again_for_the_same_locks_in_another_order_keeps_its_places() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b"]).unwrap();
    let mut former = waits(&server, "bob", &["a", "b"]);
    let mut behind = waits(&server, "carol", &["a", "b"]);
    let mut present = waits(&server, "bob", &["b", "a"]);
    let Value::ServerError(told) = former.reply() else { panic!("not replaced") };
    assert_eq!(told.code(), "REPLACED");
    assert_eq!(waiting(&mut client, &["a", "b"]), [2, 2]);
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 1 b"), int(2));
    let fence = present.fence();
    assert_eq!(client.cmd("LOCK.RELEASE a bob ALSO 1 b"), int(2));
    assert!(behind.fence() > fence);
}

#[test]
fn who_asks_for_other_locks_gives_up_its_places() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let mut former = waits(&server, "bob", &["a", "b"]);
    let mut behind = waits(&server, "carol", &["a"]);
    let mut present = waits(&server, "bob", &["b", "c"]);
    let Value::ServerError(told) = former.reply() else { panic!("not replaced") };
    assert_eq!(told.code(), "REPLACED");
    assert_eq!(waiting(&mut client, &["a", "b", "c"]), [1, 1, 1]);
    assert!(client.release("a", "alice"));
    behind.fence();
    assert_eq!(client.cmd("LOCK.RELEASE b alice ALSO 1 c"), int(2));
    present.fence();
}

#[test]
fn who_waits_for_one_and_asks_for_several_or_the_other_way_round_gives_up_its_place() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b"]).unwrap();
    for (earlier, later) in [(vec!["a"], vec!["a", "b"]), (vec!["a", "b"], vec!["b"])] {
        let mut former = waits(&server, "bob", &earlier);
        let present = waits(&server, "bob", &later);
        assert!(matches!(former.reply(), Value::ServerError(told) if told.code() == "REPLACED"));
        until_waiting(&mut client, &later, 1);
        drop(present);
        until_waiting(&mut client, &["a", "b"], 0);
    }
    // Of locks that have nothing in common it waits for both.
    client.grant("c", "alice", LONG);
    let mut one = waits(&server, "bob", &["a", "b"]);
    let mut other = waits(&server, "bob", &["c"]);
    one.assert_waits(&server);
    assert!(client.release("c", "alice"));
    other.fence();
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 1 b"), int(2));
    one.fence();
}
