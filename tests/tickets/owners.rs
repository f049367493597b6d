//! Owners that the server makes up, and owners and keys of any bytes.

use super::{LONG, asked, held, queue, queue_of, until_held_by};
use redis::Value;
use testkit::{LineClient, Server};

const MINTED: &str = "LOCK.ACQUIRE k * 60000 TICKET 60000";

#[track_caller]
fn owner_and_fence(reply: &Value) -> (String, Option<i64>) {
    match reply {
        Value::Array(pair) => match &pair[..] {
            [Value::BulkString(owner), Value::Nil] => (text(owner), None),
            [Value::BulkString(owner), Value::Int(fence)] => (text(owner), Some(*fence)),
            other => panic!("{other:?}"),
        },
        other => panic!("no pair: {other:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn who_has_the_server_make_up_its_owner_learns_it_with_its_place() {
    let (server, _) = held();
    for mut client in [server.client(), server.client_resp3()] {
        let (owner, fence) = owner_and_fence(&client.cmd(MINTED));
        assert_eq!((owner.len(), fence), (36, None));
        let row = format!("ticket {owner}");
        assert!(queue(&mut client).contains(&row));
        let again = format!("LOCK.ACQUIRE k {owner} {LONG} TICKET {LONG}");
        assert_eq!(asked(&mut client, &*again), None, "it asks again by that name");
        assert_eq!(queue(&mut client).iter().filter(|shown| **shown == row).count(), 1);
        let holder = String::from_utf8(client.info("k").unwrap().owner).unwrap();
        assert!(client.release("k", holder));
        let fence = until_held_by(&mut client, &owner);
        assert_eq!(asked(&mut client, &*again), Some(fence));
    }
}

#[test]
fn who_has_the_server_make_up_its_owner_and_is_granted_the_lock_learns_both() {
    let server = Server::start();
    for mut client in [server.client(), server.client_resp3()] {
        let (owner, fence) = owner_and_fence(&client.cmd(MINTED));
        assert_eq!(client.check("k", &owner).map(|fence| fence as i64), fence);
        assert!(client.release("k", &owner));
    }
}

/// The lines of one reply, after whatever was sent before.
fn lines(client: &mut LineClient, request: &str, count: usize) -> Vec<String> {
    client.send(format!("PING\r\n{request}\r\n").as_bytes());
    while client.line() != b"+PONG" {}
    (0..count).map(|_| text(client.line())).collect()
}

#[test]
fn nil_is_what_each_version_of_the_protocol_has_for_it() {
    let (server, _) = held();
    let mut client = server.line_client();
    let minted = lines(&mut client, MINTED, 4);
    assert_eq!([&*minted[0], &*minted[1], &*minted[3]], ["*2", "$36", "$-1"]);
    assert_eq!(lines(&mut client, "LOCK.ACQUIRE k bob 60000 TICKET 60000", 1), ["$-1"]);
    client.send(b"HELLO 3\r\n");
    let minted = lines(&mut client, MINTED, 4);
    assert_eq!([&*minted[0], &*minted[1], &*minted[3]], ["*2", "$36", "_"]);
    assert_eq!(lines(&mut client, "LOCK.ACQUIRE k bob 60000 TICKET 60000", 1), ["_"]);
}

#[test]
fn an_owner_that_is_made_up_is_another_one_each_time() {
    let (_server, mut client) = held();
    let owners = [(); 3].map(|()| owner_and_fence(&client.cmd(MINTED)).0);
    assert_eq!(queue(&mut client), owners.map(|owner| format!("ticket {owner}")));
}

#[test]
fn owners_and_keys_are_any_bytes() {
    let server = Server::start();
    let mut client = server.client();
    let longest = [0xff; 255];
    for (key, owner) in [
        (&b"a b\r\n\0"[..], &b" \0\r\n* \xff"[..]),
        (b"", b"bob"),
        (b"\xc3\x28", &longest),
        (b"LOCK.ACQUIRE", b"TICKET"),
        (b"NOTIFY", b"BLOCK"),
    ] {
        client.grant(key, "alice", LONG);
        let request = [b"LOCK.ACQUIRE", key, owner, b"60000", b"TICKET", b"60000"];
        assert_eq!(asked(&mut client, request), None);
        assert_eq!(asked(&mut client, request), None);
        assert!(client.release(key, "alice"));
        let fence = client.check(key, owner);
        assert!(fence.is_some(), "{}", owner.escape_ascii());
        assert_eq!(asked(&mut client, request), fence);
    }
    assert!(queue_of(&mut client, "NOTIFY").is_empty());
}
