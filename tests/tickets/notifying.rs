//! `NOTIFY channel`: what is published of which grant.

use super::{lacks_notify, message, notice, subscribed};
use crate::waiting::play;
use testkit::Server;

/// A request for `k` whose grant is to be published.
pub(super) fn notified(owner: &str, lasts: u64) -> String {
    format!("{} NOTIFY {}", super::by_ticket(owner, lasts), super::CHANNEL)
}

/// What is published to mark the end is all that comes.
const SESSIONS: &str = "
    # nothing is published of what is answered at once
    sub: SUBSCRIBE grants -> subscribe grants 1
    LOCK.ACQUIRE free bob 60000 TICKET 60000 NOTIFY grants -> B
    LOCK.ACQUIRE free bob 60000 TICKET 60000 NOTIFY grants -> B
    LOCK.RELEASE free bob -> 1
    PUBLISH grants end -> 1
    sub: -> message grants end

    # a place that is granted when it is asked for again is published too, once
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    sub: SUBSCRIBE grants -> subscribe grants 1
    MULTI: DEL k; LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> 1; B
    PUBLISH grants end -> 1
    sub: -> message grants {B} 3 bob k; message grants end

    # nothing is published of a ticket that ends or is given up
    sub: SUBSCRIBE grants -> subscribe grants 1
    LOCK.ACQUIRE k bob 60000 TICKET 5 NOTIFY grants -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 NOTIFY grants -> nil
    LOCK.RELEASE k carol -> 0
    INFO leasehold_tickets -> until 0
    LOCK.RELEASE k alice -> 1
    PUBLISH grants end -> 1
    sub: -> message grants end

    # the last request says where the grant is published
    sub: SUBSCRIBE grants -> subscribe grants 1
    else: SUBSCRIBE elsewhere -> subscribe elsewhere 1
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY elsewhere -> nil
    LOCK.RELEASE k alice -> 1
    else: -> message elsewhere {B} 3 bob k
    PUBLISH grants end -> 1
    sub: -> message grants end

    # the last request says that the grant is not published
    sub: SUBSCRIBE grants -> subscribe grants 1
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    PUBLISH grants end -> 1
    sub: -> message grants end

    # a grant to one that waits on a connection is not published, though it had a ticket before
    sub: SUBSCRIBE grants -> subscribe grants 1
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.WAITERS k -> bob
    LOCK.RELEASE k alice -> 1
    bob: -> B
    PUBLISH grants end -> 1
    sub: -> message grants end

    # an owner that the server makes up is in the message
    sub: SUBSCRIBE grants -> subscribe grants 1
    LOCK.ACQUIRE k * 60000 TICKET 60000 NOTIFY grants -> … nil
    LOCK.RELEASE k alice -> 1
    sub: -> message grants {B} 36 …

    # readers that go in together are published one by one, in the order of their fences
    sub: SUBSCRIBE grants -> subscribe grants 1
    LOCK.ACQUIRE k ra 60000 SHARE 0 TICKET 60000 NOTIFY grants -> nil
    LOCK.ACQUIRE k rb 60000 SHARE 0 TICKET 60000 NOTIFY grants -> nil
    LOCK.RELEASE k alice -> 1
    LOCK.CHECK k ra; LOCK.CHECK k rb; PUBLISH grants end -> B; C; 1
    sub: -> message grants {B} 2 ra k; message grants {C} 2 rb k; message grants end

    # what is published in a transaction comes when that is executed
    sub: SUBSCRIBE grants -> subscribe grants 1
    MULTI: LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants; LOCK.RELEASE k alice -> nil; 1
    LOCK.CHECK k bob -> B
    sub: -> message grants {B} 3 bob k
";

#[test]
fn the_grant_of_a_ticket_is_published_where_its_last_request_says() {
    if !lacks_notify() {
        play(Server::builder, SESSIONS);
    }
}

#[test]
fn each_grant_is_published_once_whatever_freed_the_lock() {
    if lacks_notify() {
        return;
    }
    for way in [
        "LOCK.RELEASE k alice",
        "DEL k",
        "LOCK.EXTEND k alice 5",
        "FLUSHALL",
        "EVAL \"return redis.call('LOCK.RELEASE',KEYS[1],'alice')\" 1 k",
        "RENAME k other",
    ] {
        let session = format!(
            "# {way}
            sub: SUBSCRIBE grants -> subscribe grants 1
            LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
            LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
            LOCK.ACQUIRE k carol 60000 TICKET 60000 NOTIFY grants -> nil
            PUBLISH grants before -> 1
            {way} -> …
            sub: -> message grants before; message grants {{B}} 3 bob k
            LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> B
            PUBLISH grants claimed -> 1
            LOCK.RELEASE k bob; LOCK.CHECK k carol; PUBLISH grants end -> 1; C; 1
            sub: -> message grants claimed; message grants {{C}} 5 carol k; message grants end"
        );
        play(Server::builder, &session);
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
        client.grant(key, "alice", super::LONG);
        let mut subscriber = subscribed(&server, channel);
        let request =
            [b"LOCK.ACQUIRE", key, owner, b"60000", b"TICKET", b"60000", b"NOTIFY", channel];
        assert_eq!(client.fence(request), None);
        assert!(client.release(key, "alice"));
        let fence = client.check(key, owner).unwrap();
        assert_eq!(message(&mut subscriber), notice(fence, owner, key));
    }
}
