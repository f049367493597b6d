//! The many ways in which a connection ends: each frees the lock, or leaves it the grace.

use super::{LONG, asks, binds, exact, let_it_work, until_free, until_short};
use redis::Value;
use std::net::Ipv4Addr;
use testkit::{Client, Proxy, Server, Session, Waiter, becomes, bulk, int, is_older_than};

/// Whether the lock goes on to the next one, who waits, when this has happened to a connection that alice holds it on.
#[track_caller]
fn hands_on(server: &Server, mut alice: Client, end: impl FnOnce(Client, &mut Client, i64)) {
    let id = testkit::waiter::id_of(&mut alice);
    let fence = binds(&mut alice, "k", "alice", 0);
    let mut bob = Waiter::of(server, "k", "bob");
    let mut client = server.client();
    assert_eq!(client.check("k", "alice"), Some(fence));
    end(alice, &mut client, id);
    assert!(bob.fence() > fence);
    assert!(client.release("k", "bob"));
    assert_eq!(super::bindings(&mut client), 0);
}

#[test]
fn a_connection_that_the_client_closes_frees_the_lock() {
    let server = Server::start();
    hands_on(&server, server.client(), |alice, _, _| drop(alice));
}

/// A connection of a user who may do everything, and who can be deleted.
fn temp_user(server: &Server) -> Client {
    server.user("temp", "~* &* +@all")
}

#[test]
fn a_connection_that_ends_in_any_other_way_frees_the_lock() {
    let limit = "pubsub 20000 0 0";
    let server = Server::builder().tcp().config("client-output-buffer-limit", limit).start();
    let over_tcp = Client::over_tcp((Ipv4Addr::LOCALHOST, server.port())).unwrap();
    hands_on(&server, over_tcp, |alice, _, _| alice.reset());
    hands_on(&server, server.client(), |mut alice, _, _| {
        assert_eq!(alice.cmd("QUIT"), Value::Okay);
    });
    hands_on(&server, server.client(), |_alice, client, id| {
        assert_eq!(client.cmd(format!("CLIENT KILL ID {id}")), int(1));
    });
    hands_on(&server, temp_user(&server), |_alice, client, _| {
        assert_eq!(client.cmd("CLIENT KILL USER temp"), int(1));
    });
    hands_on(&server, temp_user(&server), |_alice, client, _| {
        assert_eq!(client.cmd("ACL DELUSER temp"), int(1));
    });
    hands_on(&server, server.client(), |mut alice, _, _| {
        alice.send_bytes(b"*1\r\n$x\r\n");
        assert!(matches!(alice.receive(), Value::ServerError(_)));
    });
    // A reset and another user leave the hold bound.
    hands_on(&server, temp_user(&server), |mut alice, client, _| {
        assert_eq!(alice.cmd("RESET"), Value::SimpleString("RESET".into()));
        assert_eq!(alice.cmd("AUTH temp any"), Value::Okay);
        let_it_work(client);
        assert!(client.check("k", "alice").is_some());
    });
    // More is published than the socket and the limit take.
    hands_on(&server, server.client_resp3(), |mut alice, client, _| {
        alice.send("SUBSCRIBE news");
        let subscribed = |client: &mut Client, wanted: i64| {
            let wanted = Value::Array(vec![bulk("news"), int(wanted)]);
            becomes("so many are subscribed", wanted, || client.cmd("PUBSUB NUMSUB news"));
        };
        subscribed(client, 1);
        let text = "x".repeat(10_000);
        for _ in 0..200 {
            client.cmd(["PUBLISH", "news", &text]);
        }
        subscribed(client, 0);
    });
}

/// In the packet of its grant, or without having heard of it.
#[test]
fn a_connection_that_ends_right_behind_its_request_frees_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    for (first, last) in
        [("PING", "QUIT"), ("PING", "CLIENT KILL ID"), ("CLIENT REPLY OFF", "PING")]
    {
        let mut alice = server.client();
        let id = testkit::waiter::id_of(&mut alice);
        let kill = format!("{last} {id} SKIPME no");
        let last = if last.starts_with("CLIENT") { &kill } else { last };
        alice.send_all(&[first, &asks("k", "alice", 0), "SET done 1", last]);
        becomes("it is done", Value::Int(1), || client.cmd("DEL done"));
        drop(alice);
        until_free(&mut client, "k");
    }
}

#[test]
fn a_connection_leaves_the_lock_the_grace_and_no_more_than_was_left() {
    let server = exact().start();
    let mut client = server.client();
    let mut alice = server.client();
    binds(&mut alice, "k", "alice", 20_000);
    binds(&mut alice, "ending", "alice", 2 * LONG);
    binds(&mut alice, "short", "alice", 50);
    let mut bob = Waiter::of(&server, "short", "bob");
    let before = client.now();
    drop(alice);
    let late = crate::waiting::granted_at(bob.fence()) - before;
    assert!(late >= 50, "after {late} ms of a grace of 50");
    let left = until_short(&mut client, "k", 20_000);
    assert!(left > 10_000, "{left} ms are left of a grace of 20 s");
    let Value::Int(left) = client.cmd("PTTL ending") else { panic!("no lease") };
    assert!((50_000..=LONG.cast_signed()).contains(&left), "{left}");
    assert_eq!(super::bindings(&mut client), 0);
}

#[test]
fn a_connection_whose_other_end_is_gone_without_a_word_ends_the_hold_with_its_ttl_alone() {
    let server = Server::builder().tcp().start();
    let proxy = Proxy::to(server.port());
    let mut alice = proxy.client();
    let reply = alice.cmd("LOCK.ACQUIRE k alice 400 EPHEMERAL 0");
    assert!(matches!(reply, Value::Int(_)));
    let mut client = server.client();
    let end = testkit::deadline(&mut client, b"k");
    let mut bob = Waiter::of(&server, "k", "bob");
    proxy.cut();
    drop(alice);
    assert_eq!(super::bindings(&mut client), 1);
    bob.fence();
    assert!(client.now() >= end);
}

#[test]
fn a_connection_that_ends_while_writes_are_paused_or_the_server_loads_frees_the_lock_afterwards() {
    Session::play(
        &Server::builder().aof().start(),
        "
        # the grace goes by in the pause, in which the lock is free, and nobody may take it
        alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0; LOCK.ACQUIRE short alice 60000 EPHEMERAL 300 -> A; B
        alice: LOCK.ACQUIRE long alice 60000 EPHEMERAL 40000 -> C
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        LOCK.CHECK k alice; CLIENT PAUSE 60000 WRITE -> A; OK
        alice: leaves
        LOCK.CHECK k alice -> until nil
        bob: -> waits
        LOCK.INFO k -> nil
        401 ms pass
        LOCK.CHECK short alice; LOCK.CHECK long alice; CLIENT UNPAUSE -> nil; C; OK
        bob: -> D
        LOCK.INFO short -> until nil
        PTTL long -> until 1..40000
        PTTL long -> 1..39600
        # only what ended with the connection is free after the load
        alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A
        stays: LOCK.ACQUIRE other carol 60000 EPHEMERAL 0 -> B
        alice: DEBUG RELOAD; QUIT -> OK; OK
        LOCK.INFO k -> until nil
        LOCK.CHECK other carol -> B
        stays: leaves
        LOCK.INFO other -> until nil
        ",
    );
}

#[test]
fn a_server_that_starts_again_knows_no_bindings_and_leaves_the_lease_its_ttl() {
    let mut server = Server::builder().aof().start();
    let mut alice = server.client();
    let fence = binds(&mut alice, "k", "alice", 0);
    server.kill();
    server.start_again();
    drop(alice);
    let mut client = server.client();
    let_it_work(&mut client);
    assert_eq!(client.check("k", "alice"), Some(fence));
    assert_eq!(super::bindings(&mut client), 0);
    // Whoever asks again is bound again.
    let mut alice = server.client();
    assert_eq!(binds(&mut alice, "k", "alice", 0), fence);
    drop(alice);
    until_free(&mut client, "k");
}

#[test]
fn with_threads_that_read_and_write_the_lock_is_freed_as_well() {
    let setup = Server::builder().config("io-threads", "4");
    let setup =
        if is_older_than((8, 0)) { setup.config("io-threads-do-reads", "yes") } else { setup };
    let server = setup.start();
    for _ in 0..20 {
        let traffic: Vec<_> = (0..8).map(|_| server.client()).collect();
        hands_on(&server, server.client(), |alice, client, _| {
            for mut other in traffic {
                other.send("PING");
                drop(other);
            }
            drop(alice);
            client.cmd("PING");
        });
        hands_on(&server, server.client(), |_alice, client, id| {
            assert_eq!(client.cmd(format!("CLIENT KILL ID {id}")), int(1));
        });
    }
}
