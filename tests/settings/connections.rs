//! How clients reach the server, and what it does about those who are silent or slow.

use super::{LONG, smoke, start_with};
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
