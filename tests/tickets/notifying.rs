//! `NOTIFY channel`: what is published of which grant.

use super::{
    CHANNEL, LONG, Subscriber, asked, by_ticket, held, lacks_notify, notice, queue_up,
    until_held_by, until_no_tickets,
};
use redis::Value;
use testkit::{Client, Server, Waiter, eventually, int};

/// A request for `k` whose grant is to be published.
pub(super) fn notified(owner: &str, lasts: u64) -> String {
    format!("{} NOTIFY {CHANNEL}", by_ticket(owner, lasts))
}

#[test]
fn the_message_tells_the_fence_the_owner_and_the_key() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    assert_eq!(asked(&mut client, notified("bob", LONG)), None);
    assert!(subscriber.messages().is_empty(), "not before the grant");
    assert!(client.release("k", "alice"));
    let fence = client.check("k", "bob").unwrap();
    assert_eq!(subscriber.messages(), [format!("{fence} 3 bob k").into_bytes()]);
}

/// What hands the lock on that alice holds.
const WAYS: [&str; 6] = [
    "LOCK.RELEASE k alice",
    "DEL k",
    "LOCK.EXTEND k alice 5",
    "FLUSHALL",
    "EVAL redis.call('LOCK.RELEASE',KEYS[1],'alice') 1 k",
    "RENAME k other",
];

#[test]
fn each_grant_is_published_once_whatever_freed_the_lock() {
    if lacks_notify() {
        return;
    }
    for way in WAYS {
        let (server, mut client) = held();
        let mut subscriber = Subscriber::on(&server);
        // However often it has asked.
        for _ in 0..3 {
            assert_eq!(asked(&mut client, notified("bob", LONG)), None);
        }
        assert_eq!(asked(&mut client, notified("carol", LONG)), None);
        client.cmd(way);
        let bob = until_held_by(&mut client, "bob");
        assert_eq!(subscriber.message(), notice(bob, b"bob", b"k"), "{way}");
        assert_eq!(asked(&mut client, notified("bob", LONG)), Some(bob));
        assert!(subscriber.messages().is_empty(), "a claim is no grant");
        assert!(client.release("k", "bob"));
        let carol = until_held_by(&mut client, "carol");
        assert_eq!(subscriber.messages(), [notice(carol, b"carol", b"k")], "{way}");
    }
}

#[test]
fn nothing_is_published_of_what_is_answered_at_once() {
    if lacks_notify() {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let mut subscriber = Subscriber::on(&server);
    assert!(asked(&mut client, notified("bob", LONG)).is_some());
    assert!(asked(&mut client, notified("bob", LONG)).is_some(), "asking again");
    assert!(client.release("k", "bob"));
    assert!(subscriber.messages().is_empty());
}

/// The lock is freed in the very transaction that asks: the reply tells it, and no message need to.
#[test]
fn a_place_that_is_granted_when_it_is_asked_for_again_is_published_too() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    assert_eq!(asked(&mut client, notified("bob", LONG)), None);
    let ask = notified("bob", LONG);
    let replies = client.transaction(&["DEL k", &ask]);
    let Value::Int(fence) = replies[1] else { panic!("{replies:?}") };
    assert_eq!(subscriber.messages(), [notice(fence.unsigned_abs(), b"bob", b"k")]);
}

#[test]
fn nothing_is_published_of_a_ticket_that_ends_or_is_given_up() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    assert_eq!(asked(&mut client, notified("bob", 5)), None);
    assert_eq!(asked(&mut client, notified("carol", LONG)), None);
    assert!(!client.release("k", "carol"));
    until_no_tickets(&mut client);
    assert!(client.release("k", "alice"));
    assert!(subscriber.messages().is_empty());
}

#[test]
fn the_last_request_says_whether_and_where_the_grant_is_published() {
    if lacks_notify() {
        return;
    }
    let elsewhere = format!("{} NOTIFY elsewhere", by_ticket("bob", LONG));
    let in_silence = by_ticket("bob", LONG);
    let waits = format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0");
    for last in [elsewhere, in_silence, waits] {
        let (server, mut client) = held();
        let (mut first, mut second) =
            (Subscriber::on(&server), Subscriber::to(&server, "elsewhere"));
        assert_eq!(asked(&mut client, notified("bob", LONG)), None);
        let mut other = server.client();
        other.send(&*last);
        if !last.contains("BLOCK") {
            assert_eq!(other.receive(), Value::Nil);
        }
        if last.contains("BLOCK") {
            eventually("it waits on a connection", || match &super::queue(&mut client)[0][..] {
                "block bob" => Ok(()),
                other => Err(other.to_owned()),
            });
        }
        assert!(client.release("k", "alice"));
        let fence = client.check("k", "bob").unwrap();
        assert!(first.messages().is_empty(), "{last}");
        let expected: Vec<_> =
            last.contains("elsewhere").then(|| notice(fence, b"bob", b"k")).into_iter().collect();
        assert_eq!(second.messages(), expected, "{last}");
    }
}

#[test]
fn owners_keys_and_channels_are_any_bytes() {
    if lacks_notify() {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let (longest_owner, longest_channel) = ([b' '; 255], [0xfe; 255]);
    for (key, owner, channel) in [
        (&b"a b\r\n\0"[..], &b" 7 \0\r\n* \xff"[..], &b"\0 c\r\n"[..]),
        (b"", b"7 ", b"NOTIFY"),
        (b"\xc3\x28", &longest_owner, &longest_channel),
        (b" k ", b"3 bob k", b"*"),
    ] {
        client.grant(key, "alice", LONG);
        let mut subscriber = Subscriber::to(&server, channel);
        let request =
            [b"LOCK.ACQUIRE", key, owner, b"60000", b"TICKET", b"60000", b"NOTIFY", channel];
        assert_eq!(asked(&mut client, request), None);
        assert!(client.release(key, "alice"));
        let fence = client.check(key, owner).unwrap();
        assert_eq!(subscriber.messages(), [notice(fence, owner, key)]);
    }
}

#[test]
fn an_owner_that_is_made_up_is_in_the_message() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    let Value::Array(pair) = client.cmd(notified("*", LONG)) else { panic!("no pair") };
    let Value::BulkString(owner) = &pair[0] else { panic!("{pair:?}") };
    assert!(client.release("k", "alice"));
    let fence = client.check("k", owner).unwrap();
    assert_eq!(subscriber.messages(), [notice(fence, owner, b"k")]);
}

#[test]
fn the_messages_of_many_grants_come_in_the_order_of_their_fences() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    let owners: Vec<_> = (0..200).map(|number| format!("w{number}")).collect();
    for owner in &owners {
        assert_eq!(asked(&mut client, notified(owner, LONG)), None);
    }
    let mut holder = "alice";
    for owner in &owners {
        assert!(client.release("k", holder));
        let fence = client.check("k", owner).unwrap();
        assert_eq!(subscriber.message(), notice(fence, owner.as_bytes(), b"k"));
        holder = owner;
    }
}

#[test]
fn readers_that_go_in_together_are_published_one_by_one() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    for reader in ["r1", "r2", "r3"] {
        let request =
            format!("LOCK.ACQUIRE k {reader} {LONG} SHARE 0 TICKET {LONG} NOTIFY {CHANNEL}");
        assert_eq!(asked(&mut client, request), None);
    }
    assert!(client.release("k", "alice"));
    let told = ["r1", "r2", "r3"]
        .map(|reader| notice(client.check("k", reader).unwrap(), reader.as_bytes(), b"k"));
    assert_eq!(subscriber.messages(), told);
}

#[test]
fn what_is_published_in_a_transaction_comes_when_the_transaction_is_executed() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    let ask = notified("bob", LONG);
    let replies = client.transaction(&[&ask, "LOCK.RELEASE k alice", "LOCK.CHECK k bob"]);
    assert_eq!(replies[..2], [Value::Nil, int(1)]);
    let Value::Int(fence) = replies[2] else { panic!("{replies:?}") };
    assert_eq!(subscriber.messages(), [notice(fence.unsigned_abs(), b"bob", b"k")]);
}

#[test]
fn a_grant_to_one_that_waits_on_a_connection_is_not_published() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscriber = Subscriber::on(&server);
    let mut bob = Waiter::of(&server, "k", "bob");
    queue_up(&mut client, "carol");
    assert!(client.release("k", "alice"));
    bob.fence();
    assert!(client.release("k", "bob"));
    until_held_by(&mut client, "carol");
    assert!(subscriber.messages().is_empty());
}

/// Reads the reply to a command, and the messages that came before it.
fn reply_and_messages(client: &mut Client) -> (Value, Vec<Vec<u8>>) {
    let mut messages = Vec::new();
    loop {
        match client.receive() {
            push @ Value::Push { .. } => messages.push(super::message_in(&push)),
            reply => return (reply, messages),
        }
    }
}

/// RESP3: the connection that releases the lock is the one that is subscribed.
#[test]
fn the_connection_that_frees_the_lock_hears_the_message_beside_its_reply() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut both = server.client_resp3();
    both.cmd(["SUBSCRIBE", CHANNEL]);
    assert_eq!(asked(&mut both, notified("bob", LONG)), None);
    both.send("LOCK.RELEASE k alice");
    both.send("PING");
    let (released, mut messages) = reply_and_messages(&mut both);
    assert_eq!(released, int(1));
    let (pong, more) = reply_and_messages(&mut both);
    assert_eq!(pong, Value::SimpleString("PONG".to_owned()));
    messages.extend(more);
    let fence = client.check("k", "bob").unwrap();
    assert_eq!(messages, [notice(fence, b"bob", b"k")]);
}
