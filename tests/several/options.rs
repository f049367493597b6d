//! With `SHARE`, `TICKET`, `NOTIFY` and `EPHEMERAL`.

use super::{LONG, asks, holds_all, holds_none, takes, until_waiting, waiting, waits};
use redis::Value;
use testkit::{Client, Server, Waiter, eventually, int};

const KEYS: [&str; 2] = ["a", "b"];

fn with(owner: &str, options: &str) -> String {
    format!("{} {options}", asks(owner, &KEYS))
}

#[track_caller]
fn granted(client: &mut Client, request: &str) -> u64 {
    match client.cmd(request) {
        Value::Int(fence) => fence.try_into().unwrap(),
        other => panic!("{request}: {other:?}"),
    }
}

#[test]
fn readers_of_all_go_in_together_and_a_writer_of_one_keeps_them_out() {
    let server = Server::start();
    let mut client = server.client();
    let r0 = granted(&mut client, &with("r0", "SHARE 0"));
    let r1 = granted(&mut client, &with("r1", "SHARE 0"));
    holds_all(&mut client, "r0", &KEYS, r0);
    holds_all(&mut client, "r1", &KEYS, r1);
    assert_eq!(takes(&mut client, "w", &["b", "c"]), None);
    let mut writer = waits(&server, "w", &["b", "c"]);
    assert_eq!(client.cmd(with("r2", "SHARE 0")), Value::Nil, "the writer was first");
    assert_eq!(client.cmd("LOCK.RELEASE a r0 ALSO 1 b"), int(2));
    writer.assert_waits(&server);
    assert_eq!(client.cmd("LOCK.RELEASE a r1 ALSO 1 b"), int(2));
    assert!(writer.fence() > r1);
}

#[test]
fn a_full_pool_of_one_of_them_is_full_for_the_request() {
    let server = Server::start();
    let mut client = server.client();
    for owner in ["p0", "p1"] {
        let Value::Int(_) = client.cmd(format!("LOCK.ACQUIRE b {owner} {LONG} SHARE 2")) else {
            panic!("{owner}")
        };
    }
    assert_eq!(client.cmd(with("p2", "SHARE 2")), Value::Nil);
    let mut waiter = Waiter::sends(&server, &with("p2", "SHARE 2 BLOCK 0"));
    assert!(client.release("b", "p0"));
    let fence = waiter.fence();
    holds_all(&mut client, "p2", &KEYS, fence);
}

#[test]
fn an_upgrade_of_all_is_a_new_grant_where_nobody_else_holds_one() {
    let server = Server::start();
    let mut client = server.client();
    let shared = granted(&mut client, &with("r0", "SHARE 0"));
    let Value::Int(_) = client.cmd(format!("LOCK.ACQUIRE b r1 {LONG} SHARE 0")) else { panic!() };
    assert_eq!(takes(&mut client, "r0", &KEYS), None);
    holds_all(&mut client, "r0", &KEYS, shared);
    assert!(client.release("b", "r1"));
    let alone = takes(&mut client, "r0", &KEYS).unwrap();
    assert!(alone > shared);
    holds_all(&mut client, "r0", &KEYS, alone);
    // A downgrade keeps the fence, and lets others in.
    assert_eq!(granted(&mut client, &with("r0", "SHARE 0")), alone);
    granted(&mut client, &with("r1", "SHARE 0"));
}

#[test]
fn a_ticket_keeps_all_places_and_claims_all() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    let ask = with("bob", "TICKET 60000");
    for _ in 0..2 {
        assert_eq!(client.cmd(&*ask), Value::Nil);
        assert_eq!(waiting(&mut client, &KEYS), [1, 1]);
    }
    let mut behind = waits(&server, "carol", &KEYS);
    assert!(client.release("a", "alice"));
    assert_eq!(client.cmd(&*ask), Value::Nil);
    assert!(client.release("b", "alice"));
    let fence = granted(&mut client, &ask);
    holds_all(&mut client, "bob", &KEYS, fence);
    behind.assert_waits(&server);
    assert_eq!(client.cmd("LOCK.RELEASE b bob ALSO 1 a"), int(2));
    assert!(behind.fence() > fence);
}

#[test]
fn an_unclaimed_ticket_holds_all_no_longer_than_it_lasts() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    assert_eq!(client.cmd(with("bob", "TICKET 300")), Value::Nil);
    let mut behind = waits(&server, "carol", &KEYS);
    let _replies = client.pipeline(&[&with("bob", "TICKET 300"), "LOCK.RELEASE a alice ALSO 1 b"]);
    // For bob, or right away if the machine stood still.
    let fence = behind.fence();
    holds_all(&mut client, "carol", &KEYS, fence);
    holds_none(&mut client, "bob", &KEYS);
}

#[test]
fn a_ticket_that_nobody_asks_for_gives_up_all_its_places() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    assert_eq!(client.cmd(with("bob", "TICKET 30")), Value::Nil);
    until_waiting(&mut client, &KEYS, 0);
}

#[test]
fn a_release_of_one_gives_up_the_places_in_all_queues() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    for release in ["LOCK.RELEASE b bob", "LOCK.RELEASE x bob ALSO 1 a"] {
        assert_eq!(client.cmd(with("bob", "TICKET 60000")), Value::Nil);
        assert_eq!(client.cmd(release), int(0));
        assert_eq!(waiting(&mut client, &KEYS), [0, 0], "{release}");
    }
}

#[test]
fn from_a_ticket_to_a_connection_and_back_in_the_same_places() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    assert_eq!(client.cmd(with("bob", "TICKET 60000")), Value::Nil);
    let mut behind = waits(&server, "carol", &KEYS);
    let mut blocked = Waiter::sends(&server, &with("bob", "BLOCK 0"));
    assert_eq!((client.counter("tickets"), client.counter("waiters")), (0, 2));
    assert_eq!(client.cmd(with("bob", "TICKET 60000")), Value::Nil);
    assert!(matches!(blocked.reply(), Value::ServerError(told) if told.code() == "REPLACED"));
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 1 b"), int(2));
    let fence = granted(&mut client, &with("bob", "TICKET 60000"));
    assert_eq!(client.cmd("LOCK.RELEASE a bob ALSO 1 b"), int(2));
    assert!(behind.fence() > fence);
}

#[test]
fn the_grant_of_a_ticket_is_published_once_with_the_first_key() {
    if testkit::lacks_notify() {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let mut subscriber = server.client();
    subscriber.cmd("SUBSCRIBE grants");
    takes(&mut client, "alice", &KEYS).unwrap();
    let ask = format!("{} TICKET 60000 NOTIFY grants", asks("bob", &["b", "a"]));
    assert_eq!(client.cmd(&*ask), Value::Nil);
    assert!(client.release("b", "alice"));
    assert!(client.release("a", "alice"));
    let fence = client.check("a", "bob").unwrap();
    client.cmd("PUBLISH grants end");
    for expected in [format!("{fence} 3 bob b"), "end".to_owned()] {
        let message = format!("{:?}", subscriber.receive());
        assert!(message.contains(&format!("bulk-string('{expected:?}')")), "{expected}: {message}");
    }
}

#[test]
fn a_channel_called_like_the_option_is_refused() {
    let server = Server::builder().aof().start();
    let text = "ERR channel must not be called ALSO";
    testkit::assert_each_is_refused(
        &server,
        &[
            ("LOCK.ACQUIRE a o 5 TICKET 5 NOTIFY ALSO", text),
            ("LOCK.ACQUIRE a o 5 TICKET 5 NOTIFY also ALSO 1 b", text),
            ("LOCK.ACQUIRE a o 5 ALSO 1 b TICKET 5 NOTIFY Also", text),
        ],
    );
}

#[test]
fn all_end_with_the_connection_that_they_are_bound_to() {
    let server = Server::start();
    let mut client = server.client();
    let mut bound = server.client();
    let fence = granted(&mut bound, &with("alice", "EPHEMERAL 0"));
    holds_all(&mut client, "alice", &KEYS, fence);
    assert_eq!(client.counter("bindings"), 2);
    let mut waiter = waits(&server, "bob", &["b", "a"]);
    drop(bound);
    let fence = waiter.fence();
    holds_all(&mut client, "bob", &KEYS, fence);
    eventually("nothing is bound", || match client.counter("bindings") {
        0 => Ok(()),
        left => Err(left),
    });
}

#[test]
fn one_who_waited_for_all_holds_them_as_long_as_its_connection_lasts() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    let mut bound = Waiter::sends(&server, &with("bob", "BLOCK 0 EPHEMERAL 0"));
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 1 b"), int(2));
    let fence = bound.fence();
    holds_all(&mut client, "bob", &KEYS, fence);
    drop(bound);
    eventually("all are free", || takes(&mut client, "carol", &KEYS).ok_or("held"));
}
