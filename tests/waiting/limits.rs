//! How many may wait, for one lock and for all; and what a try may not do while they do.

use super::{LONG, Waiter, owners, waiters};
use redis::Value;
use testkit::crowd::Crowd;
use testkit::{Client, Server, error, eventually, int, lacks, strings};

const FULL: &str = "QUEUEFULL too many waiters (config leasehold.max-waiters)";
const LOCK_FULL: &str =
    "QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)";
const SHARE_FULL: &str =
    "QUEUEFULL too many waiters for maxclients (config leasehold.max-waiters-percent)";

/// A server with these limits, on which alice holds `a` and `b`.
fn limited(args: &str) -> (Server, Client) {
    let server = Server::builder().module_args(args).start();
    let mut client = server.client();
    client.grant("a", "alice", LONG);
    client.grant("b", "alice", LONG);
    (server, client)
}

#[test]
fn no_more_may_wait_on_a_server_than_its_limit() {
    let (server, mut client) = limited("max-waiters 2");
    let mut bob = Waiter::of(&server, "a", "bob");
    let _carol = Waiter::of(&server, "b", "carol");
    for key in ["a", "b"] {
        assert_eq!(client.cmd(format!("LOCK.ACQUIRE {key} dave 60000 BLOCK 5")), error(FULL));
        assert_eq!(client.acquire(key, "dave", LONG), None, "a try is not refused");
    }
    assert!(client.acquire("free", "dave", LONG).is_some());
    client.release("a", "alice");
    bob.fence();
    Waiter::of(&server, "b", "dave").assert_waits(&server);
}

#[test]
fn no_more_may_wait_for_a_lock_than_its_limit() {
    let (server, mut client) = limited("max-waiters-per-lock 2");
    let bob = Waiter::of(&server, "a", "bob");
    let _carol = Waiter::of(&server, "a", "carol");
    assert_eq!(client.cmd("LOCK.ACQUIRE a dave 60000 BLOCK 5"), error(LOCK_FULL));
    let _dave = Waiter::of(&server, "b", "dave");
    client.cmd(format!("CLIENT KILL ID {}", bob.id));
    let _erin = Waiter::of(&server, "a", "erin");
    assert_eq!(owners(&server, "a"), ["carol", "erin"]);
}

#[test]
fn an_owner_that_waits_already_may_ask_again_where_the_queue_is_full() {
    let (server, mut client) = limited("max-waiters 1");
    let mut former = Waiter::of(&server, "a", "bob");
    let mut newer = Waiter::of(&server, "a", "bob");
    let Value::ServerError(told) = former.reply() else { panic!("not replaced") };
    assert_eq!(told.code(), "REPLACED");
    assert_eq!(client.cmd("LOCK.ACQUIRE b bob 60000 BLOCK 5"), error(FULL), "its place is in a");
    client.release("a", "alice");
    newer.fence();
}

#[test]
fn where_nobody_may_wait_a_free_lock_is_granted_and_a_retry_answered() {
    for (args, text) in [("max-waiters 0", FULL), ("max-waiters-per-lock 0", LOCK_FULL)] {
        let (server, mut client) = limited(args);
        let fence = client.check("a", "alice").unwrap();
        assert_eq!(client.cmd("LOCK.ACQUIRE a alice 60000 BLOCK 5"), int(fence));
        assert_eq!(client.cmd("LOCK.ACQUIRE a bob 60000 BLOCK 5"), error(text));
        assert!(matches!(client.cmd("LOCK.ACQUIRE free bob 60000 BLOCK 5"), Value::Int(1..)));
        assert_eq!(waiters(&server), 0);
    }
}

#[test]
fn the_limits_can_be_changed_while_the_server_runs() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let (server, mut client) = limited("");
    for name in ["max-waiters", "max-waiters-per-lock"] {
        let shown = client.cmd(format!("CONFIG GET leasehold.{name}"));
        assert_eq!(strings(&shown), [format!("leasehold.{name}"), "8000".to_owned()]);
    }
    let mut bob = Waiter::of(&server, "a", "bob");
    let mut carol = Waiter::of(&server, "a", "carol");
    client.cmd("CONFIG SET leasehold.max-waiters-per-lock 1");
    assert_eq!(client.cmd("LOCK.ACQUIRE a dave 60000 BLOCK 5"), error(LOCK_FULL));
    client.cmd("CONFIG SET leasehold.max-waiters 2 leasehold.max-waiters-per-lock 1000000");
    assert_eq!(client.cmd("LOCK.ACQUIRE a dave 60000 BLOCK 5"), error(FULL));
    // Those who wait already are not sent away by a lower limit.
    client.cmd("CONFIG SET leasehold.max-waiters 0");
    assert_eq!(owners(&server, "a"), ["bob", "carol"]);
    client.release("a", "alice");
    bob.fence();
    client.release("a", "bob");
    carol.fence();
    for refused in ["-1", "1000001", "x"] {
        let reply = client.cmd(format!("CONFIG SET leasehold.max-waiters {refused}"));
        assert!(matches!(reply, Value::ServerError(_)), "{refused}: {reply:?}");
    }
}

#[test]
fn those_who_wait_leave_connections_for_those_who_hold() {
    for (percent, most) in [("", 16), ("max-waiters-percent 50", 10)] {
        let server = Server::builder().config("maxclients", "20").module_args(percent).start();
        let mut client = server.client();
        client.grant("a", "alice", LONG);
        let mut crowd = Crowd::of(&server, most + 1);
        for waiting in 0..most {
            crowd.send(waiting, format!("LOCK.ACQUIRE a w{waiting} 60000 BLOCK 0"));
            eventually("it waits", || match waiters(&server) {
                now if now == waiting as u64 + 1 => Ok(()),
                now => Err(now),
            });
        }
        assert_eq!(client.cmd("LOCK.ACQUIRE a late 60000 BLOCK 0"), error(SHARE_FULL));
        assert_eq!(client.counter("queue_full"), 1);
        assert_eq!(client.counter("effective_max_waiters"), most as u64);
        assert!(server.client().release("a", "alice"), "by a connection of its own");
        let replies = crowd.receive();
        assert!(matches!(replies[..], [(0, Some(Value::Int(_)))]), "{replies:?}");
    }
}

#[test]
fn the_share_of_those_who_wait_is_followed_while_the_server_runs() {
    let setup = Server::builder().config("maxclients", "100").module_args("max-waiters 60");
    let server = setup.start();
    let mut client = server.client();
    client.grant("a", "alice", LONG);
    // A server that tells modules of no change is asked when somebody begins to wait, and once a second at most.
    let mut becomes = |most: u64| {
        eventually("the limit is followed", || {
            let _gave_up = client.cmd("LOCK.ACQUIRE a bob 60000 BLOCK 1");
            match client.counter("effective_max_waiters") {
                now if now == most => Ok(()),
                now => Err(now),
            }
        });
    };
    becomes(60);
    server.cmd("CONFIG SET maxclients 30");
    becomes(24);
    server.cmd("CONFIG SET maxclients 200");
    becomes(60);
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    server.cmd("CONFIG SET leasehold.max-waiters 1000");
    becomes(160);
    server.cmd("CONFIG SET leasehold.max-waiters-percent 10 maxclients 50");
    assert_eq!(server.client().counter("effective_max_waiters"), 5, "at once");
    let mut crowd: Vec<_> = (0..5).map(|n| Waiter::of(&server, "a", &format!("w{n}"))).collect();
    let refused = server.cmd("LOCK.ACQUIRE a late 60000 BLOCK 0");
    assert_eq!(refused, error(SHARE_FULL));
    server.cmd("CONFIG SET leasehold.max-waiters-percent 100");
    crowd.push(Waiter::of(&server, "a", "late"));
    server.cmd("CONFIG SET leasehold.max-waiters 6");
    assert_eq!(server.cmd("LOCK.ACQUIRE a later 60000 BLOCK 0"), error(FULL));
}

#[test]
fn the_log_warns_once_if_fewer_may_wait_than_the_operator_has_set() {
    let warnings = |maxclients: &str, args: &str| {
        let server = Server::builder().config("maxclients", maxclients).module_args(args).start();
        server.client().grant("a", "alice", LONG);
        let _bob = Waiter::of(&server, "a", "bob");
        server.log().lines().filter(|line| line.contains("may wait")).map(str::to_owned).collect()
    };
    let told: Vec<String> = warnings("100", "max-waiters 200");
    let expected = "at most 80 clients may wait, not the 200 of max-waiters: each keeps a connection, and \
                    waiters may take 80 % of maxclients (100)";
    assert!(told.len() == 1 && told[0].ends_with(expected), "{told:?}");
    let told: Vec<String> = warnings("100", "max-waiters 80");
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn the_log_warns_when_those_who_wait_leave_hardly_a_connection() {
    let server = Server::builder().config("maxclients", "200").module_args("max-waiters 100");
    let server = server.start();
    let warnings = || -> Vec<String> {
        let log = server.log();
        log.lines().filter(|line| line.contains("connections of")).map(str::to_owned).collect()
    };
    assert!(warnings().is_empty(), "{:?}", warnings());
    let tight =
        Server::builder().config("maxclients", "200").module_args("max-waiters-percent 100");
    let log = tight.start().log();
    let expected =
        "those who wait leave 0 connections of maxclients (200): a holder that has to connect";
    assert!(log.contains(expected), "{log}");
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    for (change, left) in [
        ("maxclients 120", Some("24 connections of maxclients (120)")),
        ("leasehold.max-waiters-percent 50", None),
        ("leasehold.max-waiters-percent 100", Some("20 connections of maxclients (120)")),
        ("leasehold.max-waiters 1000", Some("0 connections of maxclients (120)")),
        ("leasehold.max-ttl 1000", None),
        ("leasehold.max-waiters 0", None),
    ] {
        let before = warnings().len();
        assert_eq!(server.cmd(format!("CONFIG SET {change}").as_str()), Value::Okay);
        let told = warnings();
        assert_eq!(told.len(), before + usize::from(left.is_some()), "{change}: {told:?}");
        assert!(left.is_none_or(|left| told[before].contains(left)), "{change}: {told:?}");
    }
}

/// The share holds off waiters, and nobody else: docs/safety.md says what follows.
#[test]
fn those_who_were_refused_and_stay_connected_keep_the_holder_out_until_one_of_them_leaves() {
    let server = Server::builder().config("maxclients", "20").start();
    let mut client = server.client();
    client.grant("a", "alice", LONG);
    let mut crowd = Crowd::of(&server, 19);
    (0..19).for_each(|member| {
        crowd.send(member, format!("LOCK.ACQUIRE a w{member} 60000 BLOCK 0"));
    });
    let mut refused = Vec::new();
    while refused.len() < 3 {
        refused.extend(crowd.receive());
    }
    assert!(refused.iter().all(|(_, reply)| reply == &Some(error(SHARE_FULL))), "{refused:?}");
    let release = || match server.stranger().try_cmd("LOCK.RELEASE a alice") {
        Ok(Value::Int(1)) => Ok(()),
        told => Err(told),
    };
    assert!(release().is_err(), "all of maxclients are connected");
    crowd.leave(refused[0].0);
    eventually("the holder can connect", release);
}

#[test]
fn a_try_gets_nil_while_others_wait_also_in_the_very_moment_of_the_release() {
    let (server, mut client) = limited("");
    let mut bob = Waiter::of(&server, "a", "bob");
    let replies = client.pipeline(&[
        "LOCK.ACQUIRE a carol 60000",
        "LOCK.RELEASE a alice",
        "LOCK.ACQUIRE a carol 60000",
        "LOCK.ACQUIRE a alice 60000",
    ]);
    assert_eq!(replies, [Value::Nil, int(1), Value::Nil, Value::Nil]);
    assert_eq!(Some(bob.fence()), client.check("a", "bob"));
}

#[test]
fn a_try_right_behind_a_deletion_by_others_does_not_overtake() {
    let (server, mut client) = limited("");
    for (free, request) in [
        ("DEL a", "LOCK.ACQUIRE a carol 60000"),
        ("UNLINK a", "LOCK.ACQUIRE a carol 60000 BLOCK 1"),
        ("FLUSHALL", "LOCK.ACQUIRE a carol 60000"),
        ("EVAL redis.call('DEL',KEYS[1]) 1 a", "LOCK.ACQUIRE a alice 60000"),
    ] {
        let mut bob = Waiter::of(&server, "a", "bob");
        // In one packet: no timer of the server's runs in between.
        let replies = client.pipeline(&[free, request]);
        assert_eq!(replies[1], Value::Nil, "{free}");
        let fence = bob.fence();
        assert_eq!(client.check("a", "bob"), Some(fence), "{free}");
        client.release("a", "bob");
        client.grant("a", "alice", LONG);
    }
}

#[test]
fn a_request_that_may_wait_queues_up_behind_those_who_do() {
    let (server, mut client) = limited("");
    let mut bob = Waiter::of(&server, "a", "bob");
    let mut carol = Waiter::of(&server, "a", "carol");
    let dave_id = super::id_of(&mut client);
    // Free for nobody but bob: dave, in the same packet, comes after carol.
    client.send_bytes(b"LOCK.RELEASE a alice\r\nLOCK.ACQUIRE a dave 60000 BLOCK 0\r\n");
    assert_eq!(client.receive(), int(1));
    bob.fence();
    super::wait_until_parked(&server, dave_id);
    assert_eq!(owners(&server, "a"), ["carol", "dave"]);
    bob.client.release("a", "bob");
    carol.fence();
}

#[test]
fn a_waiter_is_granted_no_longer_lease_than_is_allowed_by_then() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let (server, mut client) = limited("");
    let mut bob = Waiter::of(&server, "a", "bob");
    let mut carol = Waiter::of(&server, "b", "carol");
    assert_eq!(client.cmd("CONFIG SET leasehold.max-ttl 1000"), Value::Okay);
    // By a command of the module's, and by another.
    assert!(client.release("a", "alice"));
    client.cmd("DEL b");
    for (key, waiter) in [("a", &mut bob), ("b", &mut carol)] {
        waiter.fence();
        let Value::Int(left) = client.cmd(["PTTL", key]) else { panic!("no PTTL") };
        assert!(left <= 1_000, "{left} ms are left of {key}, and max-ttl is 1000");
    }
}
