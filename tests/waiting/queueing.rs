//! The queue of a lock: who is in it, in which order, for how long, and how many may be.

use super::{LONG, Row, Waiter, exact, owners, queue, rows, waiters};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::errors::{KEY_TOO_LONG_TO_WAIT, PATIENCE_OUT_OF_RANGE, UNKNOWN_OPTION};
use testkit::errors::{OWNER_LENGTH, TTL_NOT_POSITIVE, WRONG_TYPE, wrong_arity};
use testkit::{
    Server, assert_each_is_refused, bulk, deadline, error, eventually, field, int, lacks,
};

const NO_COUNT: &str = "ERR unknown option, expected COUNT and a positive integer or -1";

#[test]
fn the_lock_goes_to_those_who_wait_in_the_order_in_which_they_came() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = client.grant("k", "alice", LONG);
    let names: Vec<String> = (0..10).map(|number| format!("w{number}")).collect();
    let mut queued: Vec<_> = names.iter().map(|name| Waiter::of(&server, "k", name)).collect();
    assert_eq!(owners(&server, "k"), names);
    client.release("k", "alice");
    for (waiter, name) in queued.iter_mut().zip(&names) {
        let fence = waiter.fence();
        assert!(fence > last, "{name}");
        assert_eq!(client.check("k", name), Some(fence));
        assert!(waiter.client.release("k", name));
        last = fence;
    }
    assert_eq!(client.info("k"), None);
}

#[test]
fn a_free_lock_is_granted_without_waiting() {
    let server = Server::start();
    let mut client = server.client();
    for (key, patience) in [("a", "0"), ("b", "1"), ("c", "3153600000000")] {
        let reply = client.cmd(format!("LOCK.ACQUIRE {key} alice 60000 BLOCK {patience}"));
        assert!(matches!(reply, Value::Int(1..)), "{reply:?}");
    }
    assert_eq!(waiters(&server), 0);
}

#[test]
fn who_leaves_from_the_middle_leaves_the_order_of_the_others_alone() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let names = ["first", "second", "third", "fourth", "fifth"];
    let mut queued: Vec<_> = names.iter().map(|name| Waiter::of(&server, "k", name)).collect();
    for (gone, left) in [
        (2, &["first", "second", "fourth", "fifth"][..]),
        (0, &["second", "fourth", "fifth"]),
        (4, &["second", "fourth"]),
    ] {
        client.cmd(format!("CLIENT KILL ID {}", queued[gone].id));
        assert_eq!(owners(&server, "k"), left);
    }
    let late = Waiter::of(&server, "k", "late");
    assert_eq!(owners(&server, "k"), ["second", "fourth", "late"]);
    client.release("k", "alice");
    queued[1].fence();
    client.release("k", "second");
    queued[3].fence();
    late.assert_waits(&server);
}

#[test]
fn patience_ends_on_time_with_nil_and_never_early() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    for patience in [1, 20, 150] {
        let mut client = server.client();
        let asked = Instant::now();
        let reply = client.cmd(format!("LOCK.ACQUIRE k bob 60000 BLOCK {patience}"));
        let waited = asked.elapsed();
        assert_eq!(reply, Value::Nil);
        assert!(waited >= Duration::from_millis(patience), "{waited:?} of {patience} ms");
        // Far from what a loaded machine does, and from the next look at the lock.
        assert!(waited < Duration::from_millis(patience + 700), "{waited:?} of {patience} ms");
        assert_eq!(client.cmd("PING"), Value::SimpleString("PONG".to_owned()));
    }
    assert_eq!((owners(&server, "k").len(), waiters(&server)), (0, 0));
}

#[test]
fn each_waiter_has_a_patience_of_its_own() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut endless = Waiter::of(&server, "k", "endless");
    let mut brief = Waiter::sends(&server, "LOCK.ACQUIRE k brief 60000 BLOCK 100");
    let mut longer = Waiter::sends(&server, "LOCK.ACQUIRE k longer 60000 BLOCK 30000");
    assert_eq!(brief.reply(), Value::Nil);
    assert_eq!(owners(&server, "k"), ["endless", "longer"]);
    client.release("k", "alice");
    endless.fence();
    client.release("k", "endless");
    longer.fence();
}

#[test]
fn mistakes_are_named_from_left_to_right_and_change_nothing() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    server.client().grant("k", "alice", LONG);
    let arity = wrong_arity("LOCK.ACQUIRE");
    let too_long = format!("LOCK.ACQUIRE {} a 5 BLOCK 0", "k".repeat(4_097));
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.ACQUIRE list \"\"", &arity),
            ("LOCK.ACQUIRE list \"\" 0 BLOCK x", OWNER_LENGTH),
            ("LOCK.ACQUIRE list a 0 BLOCK x", TTL_NOT_POSITIVE),
            ("LOCK.ACQUIRE k a 5 BLOCK", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE k a 5 WAIT 5", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE k a 5 BLOCK 5 5", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE k a 5 BLOCK 5 BLOCK 5", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE k a 5 BLOCK 5 BLOCK 5 BLOCK 5", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE k a 5 BLOCK -1", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE k a 5 BLOCK +1", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE k a 5 BLOCK 01", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE k a 5 BLOCK 1.5", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE k a 5 BLOCK \"\"", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE k a 5 BLOCK 3153600000001", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE k a 5 BLOCK 9223372036854775807", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE k a 5 BLOCK 18446744073709551616", PATIENCE_OUT_OF_RANGE),
            (&too_long, KEY_TOO_LONG_TO_WAIT),
            ("LOCK.ACQUIRE list a 5 BLOCK 0", WRONG_TYPE),
            ("LOCK.ACQUIRE list a 5 BLOCK 5", WRONG_TYPE),
        ],
    );
    assert_eq!(waiters(&server), 0);
}

#[test]
fn the_longest_patience_is_waited_with_and_the_option_is_read_in_any_case() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut waiter = Waiter::sends(&server, "LOCK.ACQUIRE k bob 60000 bLoCk 3153600000000");
    let row = queue(&server, "k").remove(0);
    assert!((3_153_599_900_000..=3_153_600_000_000).contains(&row.patience), "{row:?}");
    client.release("k", "alice");
    waiter.fence();
}

#[test]
fn the_queue_is_shown_oldest_first_with_owner_client_time_and_patience() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    let carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 60000 BLOCK 50000");
    // So that every number has something to show.
    let both = eventually("time passes", || {
        let both = queue(&server, "k");
        if both[1].waited > 20 { Ok(both) } else { Err(both) }
    });
    let [Row { waited: longer, .. }, Row { waited, patience, .. }] = both[..] else {
        panic!("{both:?}")
    };
    assert!(longer >= waited);
    // Each of the two numbers is rounded down.
    assert!((49_998..=50_000).contains(&(waited + patience)), "{both:?}");
    let row = |owner: &str, client, waited, patience| Row {
        owner: owner.to_owned(),
        client,
        waited,
        patience,
    };
    assert_eq!(both, [row("bob", bob.id, longer, -1), row("carol", carol.id, waited, patience)]);
}

#[test]
fn the_rows_are_maps_in_resp3_and_flat_arrays_in_resp2() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    let _bob = Waiter::of(&server, "k", "bob");
    let names = ["owner", "client", "waited", "patience", "share", "kind", "locks"];
    let Value::Array(flat) = server.client().cmd("LOCK.WAITERS k") else { panic!("no array") };
    let [Value::Array(fields)] = &flat[..] else { panic!("{flat:?}") };
    let even: Vec<_> = fields.iter().step_by(2).cloned().collect();
    assert_eq!(even, names.map(bulk));
    if lacks((7, 0), "maps in a module's reply") {
        return;
    }
    let Value::Array(maps) = server.client_resp3().cmd("LOCK.WAITERS k") else {
        panic!("no array")
    };
    let [Value::Map(pairs)] = &maps[..] else { panic!("{maps:?}") };
    assert_eq!(pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names.map(bulk));
    assert_eq!(field(&maps[0], "owner"), field(&flat[0], "owner"));
}

#[test]
fn count_limits_the_rows() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let _queued = ["a", "b", "c"].map(|owner| Waiter::of(&server, "k", owner));
    for (count, shown) in
        [("1", 1), ("2", 2), ("3", 3), ("4", 3), ("18446744073709551615", 3), ("-1", 3)]
    {
        let reply = client.cmd(["LOCK.WAITERS", "k", "count", count]);
        let found: Vec<_> = rows(&reply).into_iter().map(|row| row.owner).collect();
        assert_eq!(found, ["a", "b", "c"][..shown], "COUNT {count}");
    }
}

#[test]
fn without_a_count_a_hundred_are_listed_at_most() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut crowd = Crowd::of(&server, 101);
    for index in 0..crowd.size() {
        crowd.send(index, format!("LOCK.ACQUIRE k w{index} 60000 BLOCK 0"));
    }
    eventually("all of them wait", || match client.info("k").unwrap().waiters {
        101 => Ok(()),
        fewer => Err(fewer),
    });
    let all = rows(&client.cmd("LOCK.WAITERS k COUNT -1"));
    assert_eq!(all.len(), 101);
    let owner = |row: &Row| row.owner.clone();
    let usual: Vec<_> = rows(&client.cmd("LOCK.WAITERS k")).iter().map(owner).collect();
    assert_eq!(usual, all[..100].iter().map(owner).collect::<Vec<_>>());
}

#[test]
fn where_nobody_waits_the_queue_is_an_empty_array() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.cmd("LOCK.WAITERS k"), Value::Array(vec![]));
    client.grant("k", "alice", LONG);
    assert_eq!(client.cmd("LOCK.WAITERS k"), Value::Array(vec![]));
    assert_eq!(client.cmd("LOCK.WAITERS k COUNT 1"), Value::Array(vec![]));
}

#[test]
fn mistakes_in_asking_for_the_queue_are_named() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    let arity = wrong_arity("LOCK.WAITERS");
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.WAITERS", &arity),
            ("LOCK.WAITERS list COUNT", NO_COUNT),
            ("LOCK.WAITERS list COUNT 0", NO_COUNT),
            ("LOCK.WAITERS list COUNT -2", NO_COUNT),
            ("LOCK.WAITERS list COUNT 01", NO_COUNT),
            ("LOCK.WAITERS list COUNT x", NO_COUNT),
            ("LOCK.WAITERS list LIMIT 1", NO_COUNT),
            ("LOCK.WAITERS list COUNT 1 2", NO_COUNT),
            ("LOCK.WAITERS list", WRONG_TYPE),
            ("LOCK.WAITERS list COUNT 1", WRONG_TYPE),
        ],
    );
}

#[test]
fn the_number_of_waiters_is_shown_per_lock_and_for_the_server() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("a", "alice", LONG);
    client.grant("b", "alice", LONG);
    let mut bob = Waiter::of(&server, "a", "bob");
    let _carol = Waiter::of(&server, "a", "carol");
    let _dave = Waiter::of(&server, "b", "dave");
    let count = |key| server.client().info(key).unwrap().waiters;
    assert_eq!((count("a"), count("b"), waiters(&server)), (2, 1, 3));
    client.release("a", "alice");
    bob.fence();
    assert_eq!((count("a"), count("b"), waiters(&server)), (1, 1, 2));
}

#[test]
fn a_minted_owner_is_told_with_the_fence_once_its_turn_comes() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut waiter = Waiter::of(&server, "k", "*");
    let owner = owners(&server, "k").remove(0);
    assert_eq!(owner.len(), 36, "{owner}");
    client.release("k", "alice");
    let reply = waiter.reply();
    let info = client.info("k").unwrap();
    assert_eq!(reply, Value::Array(vec![bulk(&owner), int(info.fence)]));
    assert_eq!(info.owner, owner.as_bytes());
}

#[test]
fn a_minted_owner_whose_patience_ends_gets_plain_nil() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    assert_eq!(server.cmd("LOCK.ACQUIRE k * 60000 BLOCK 10"), Value::Nil);
}

#[test]
fn two_who_have_their_owners_minted_do_not_replace_each_other() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    let _queued = [Waiter::of(&server, "k", "*"), Waiter::of(&server, "k", "*")];
    let owners = owners(&server, "k");
    assert_eq!(owners.len(), 2);
    assert_ne!(owners[0], owners[1]);
}

#[test]
fn the_holder_that_is_ready_to_wait_gets_its_fence_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 50_000);
    let _bob = Waiter::of(&server, "k", "bob");
    assert_eq!(client.cmd("LOCK.ACQUIRE k alice 1000 BLOCK 0"), int(fence));
    assert!(client.info("k").unwrap().ttl > 10_000, "never shorter");
    assert_eq!(client.cmd("LOCK.ACQUIRE k alice 90000 BLOCK 0"), int(fence));
    assert!(client.info("k").unwrap().ttl > 50_000, "but longer");
    assert_eq!(owners(&server, "k"), ["bob"]);
}

#[test]
fn the_holder_of_a_foreign_lock_that_is_ready_to_wait_gets_0_at_once() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET k stranger PX 50000");
    assert_eq!(client.cmd("LOCK.ACQUIRE k stranger 60000 BLOCK 0"), int(0));
    assert_eq!(client.cmd("GET k"), bulk("stranger"));
}

#[test]
fn a_waiter_whose_owner_comes_to_hold_the_lock_by_other_means_is_told_so() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    // As an operator would, who gives the lock to somebody by hand.
    let fence = client.info("k").unwrap().fence + 1;
    client.cmd(format!("SET k {fence}:carol PX 20000"));
    assert_eq!(carol.fence(), fence);
    assert!(client.info("k").unwrap().ttl > 20_000, "the lease is as long as it asked for");
    bob.assert_waits(&server);
    client.cmd("SET k bob PX 20000");
    assert_eq!(bob.reply(), int(0), "a foreign lock has no fence");
}

/// Bob waits first and carol second; then bob asks again on another connection, with these words.
fn ask_again(server: &Server, again: &str) -> (Waiter, Waiter, Waiter) {
    server.client().grant("k", "alice", LONG);
    let mut former = Waiter::sends(server, "LOCK.ACQUIRE k bob 30000 BLOCK 20000");
    let carol = Waiter::of(server, "k", "carol");
    let newer = Waiter::sends(server, again);
    let replaced = "REPLACED a newer request of the same owner took this place in the queue";
    assert_eq!(former.reply(), error(replaced));
    assert_eq!(owners(server, "k"), ["bob", "carol"]);
    assert_eq!(queue(server, "k")[0].client, newer.id);
    (former, newer, carol)
}

#[test]
fn an_owner_that_asks_again_takes_its_former_place_and_the_former_request_is_told() {
    let server = exact().start();
    let (mut former, mut newer, carol) = ask_again(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    assert_eq!(queue(&server, "k")[0].patience, -1, "the patience is the newer one's");
    assert!(former.client.release("k", "alice"), "the former connection is of use again");
    let fence = newer.fence();
    let lease = deadline(&mut server.client(), b"k") - super::granted_at(fence);
    assert_eq!(lease, 60_000, "and so is the ttl");
    carol.assert_waits(&server);
}

#[test]
fn the_former_connection_may_end_without_harm_to_the_newer() {
    let server = Server::start();
    let (former, mut newer, _carol) = ask_again(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    let mut client = server.client();
    client.cmd(format!("CLIENT KILL ID {}", former.id));
    assert_eq!(owners(&server, "k"), ["bob", "carol"]);
    client.release("k", "alice");
    newer.fence();
}

#[test]
fn the_time_waited_is_counted_from_the_first_request_of_an_owner() {
    let server = Server::start();
    let (_former, _newer, _carol) = ask_again(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    let both = queue(&server, "k");
    assert!(both[0].waited >= both[1].waited, "{both:?}");
}

#[test]
fn the_patience_of_the_newer_request_counts_be_it_shorter() {
    let server = Server::start();
    let (_former, mut newer, carol) = ask_again(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 100");
    assert_eq!(newer.reply(), Value::Nil);
    assert_eq!(owners(&server, "k"), ["carol"]);
    carol.assert_waits(&server);
}

#[test]
fn one_that_waits_for_two_locks_on_two_connections_is_granted_both() {
    let server = Server::start();
    let mut client = server.client();
    let mut queued = ["a", "b"].map(|key| {
        client.grant(key, "alice", LONG);
        Waiter::of(&server, key, "bob")
    });
    for (key, waiter) in ["a", "b"].iter().zip(&mut queued) {
        client.release(key, "alice");
        let fence = waiter.fence();
        assert_eq!(client.check(key, "bob"), Some(fence));
    }
}
