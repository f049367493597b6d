//! Owners that the server makes up.

use super::{LONG, held, queue, until_held_by};
use redis::Value;
use testkit::LineClient;

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
fn who_has_the_server_make_up_its_owner_learns_it_with_its_place_or_its_fence() {
    let (server, _) = held();
    for mut client in [server.client(), server.client_resp3()] {
        let (owner, fence) = owner_and_fence(&client.cmd(MINTED));
        let (other, _) = owner_and_fence(&client.cmd(MINTED));
        assert_eq!((owner.len(), fence), (36, None));
        assert_eq!(queue(&mut client), [&owner, &other].map(|owner| format!("ticket {owner}")));
        let again = format!("LOCK.ACQUIRE k {owner} {LONG} TICKET {LONG}");
        assert_eq!(client.fence(&*again), None, "it asks again by that name");
        assert_eq!(queue(&mut client).len(), 2);
        client.release("k", &other);
        let holder = client.info("k").unwrap().owner;
        assert!(client.release("k", holder));
        let fence = until_held_by(&mut client, &owner);
        assert_eq!(client.fence(&*again), Some(fence));
        let (owner, fence) = owner_and_fence(&client.cmd(MINTED.replace(" k ", " free ")));
        assert_eq!(client.check("free", &owner).map(|fence| fence as i64), fence);
        assert!(client.release("free", &owner));
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
