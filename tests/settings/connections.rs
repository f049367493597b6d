//! How clients reach the server, and what it does about those who are silent or slow.

use super::{CROWD, LONG, crowd_for, smoke, start_with};
use crate::waiting::owners;
use redis::Value;
use std::net::{IpAddr, Ipv4Addr};
use testkit::{Server, Waiter, lacks_tls};

#[test]
fn a_server_reached_over_tls() {
    if lacks_tls() {
        return;
    }
    let server = start_with(Server::builder().clients_over_tls(), "io-threads", "1");
    let mut plain = server.stranger_at(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let _ = plain.try_send_bytes(b"PING\r\n");
    let reply = plain.try_receive();
    assert!(!matches!(reply, Ok(Value::SimpleString(_))), "it speaks without TLS: {reply:?}");
    smoke(&server);
    smoke(&start_with(Server::builder().clients_over_tls(), "io-threads", "4"));
}

#[test]
fn one_that_asks_silent_connections_whether_they_live() {
    smoke(&start_with(Server::builder().clients_over_tcp(), "tcp-keepalive", "1"));
}

#[test]
fn one_that_closes_idle_connections_and_not_those_of_who_waits() {
    let server = start_with(Server::builder(), "timeout", "1");
    server.client().grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let carol = Waiter::of(&server, "k", "carol");
    // Silent for as long as they are, and longer than it is allowed, twice over.
    for _ in 0..2 {
        let mut idle = server.client();
        assert_eq!(idle.cmd("PING"), Value::SimpleString("PONG".to_owned()));
        idle.assert_closed();
    }
    assert_eq!(owners(&server, "k"), ["bob", "carol"]);
    assert!(server.client().release("k", "alice"));
    let fence = bob.fence();
    assert_eq!(server.client().check("k", "bob"), Some(fence));
    // Told that it has the lock, and silent again, bob is as idle as any.
    bob.client.assert_closed();
    assert_eq!(server.client().check("k", "bob"), Some(fence), "a lock outlives its connection");
    carol.assert_waits(&server);
}

#[test]
fn one_with_a_timeout_that_nobody_reaches() {
    smoke(&start_with(Server::builder(), "timeout", "60"));
}

#[test]
fn one_that_limits_what_clients_leave_unread() {
    let server = Server::start();
    let limit = "normal 65536 32768 60";
    assert_eq!(server.cmd(["CONFIG", "SET", "client-output-buffer-limit", limit]), Value::Okay);
    smoke(&server);
}

#[test]
fn a_list_longer_than_a_client_may_leave_unread_costs_its_connection_and_nothing_else() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let long = "x".repeat(200);
    let mut first = Waiter::of(&server, "k", "first");
    let _others = crowd_for(&server, "k", &long);
    client.cmd(["CONFIG", "SET", "client-output-buffer-limit", "normal 4096 0 0"]);
    let mut greedy = server.client();
    let reply = greedy.try_cmd("LOCK.WAITERS k COUNT -1");
    assert!(reply.is_err(), "it got {reply:?}");
    greedy.assert_closed();
    assert_eq!(client.info("k").unwrap().waiters, 1 + CROWD as i64);
    client.release("k", "alice");
    first.fence();
}
