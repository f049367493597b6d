//! Who hears a message, and what becomes of a grant whose message nobody hears: asking again is the truth.

use super::notifying::notified;
use super::{
    CHANNEL, LONG, held, lacks_notify, left, message, notice, queue_of, subscribed, until_held_by,
};
use crate::waiting::play;
use std::time::{Duration, Instant};
use testkit::{Client, Cluster, Server, start_pair};

const SESSIONS: &str = "
    # without a subscriber the grant is made, and told to who asks again
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    LOCK.RELEASE k alice -> 1
    late: SUBSCRIBE grants -> subscribe grants 1
    LOCK.CHECK k bob -> B
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> B
    PUBLISH grants end -> 1
    late: -> message grants end

    # several subscribers and a pattern hear each message
    one: SUBSCRIBE grants -> subscribe grants 1
    two: SUBSCRIBE grants -> subscribe grants 1
    pattern: PSUBSCRIBE gra* -> psubscribe gra* 1
    LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    one: -> message grants {B} 3 bob k
    two: -> message grants {B} 3 bob k
    pattern: -> pmessage gra* grants {B} 3 bob k
";

#[test]
fn whoever_is_subscribed_at_the_grant_hears_of_it() {
    if !lacks_notify() {
        play(Server::builder, SESSIONS);
    }
}

/// What the server keeps a grant for that nobody heard of, in milliseconds.
const WINDOW: u64 = 1_000;

#[test]
fn a_killed_program_costs_a_lock_one_short_window_however_many_places_it_had() {
    const PLACES: u64 = 10;
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    client.grant("other", "alice", LONG);
    let elsewhere = |owner: &str, key: &str| {
        format!("LOCK.ACQUIRE {key} {owner} {LONG} TICKET {LONG} NOTIFY nobody")
    };
    for number in 0..PLACES {
        assert_eq!(client.fence(elsewhere(&format!("dead{number}"), "k")), None);
    }
    assert_eq!(client.fence(elsewhere("dead", "other")), None);
    let mut subscriber = subscribed(&server, CHANNEL.as_bytes());
    assert_eq!(client.fence(notified("bob", LONG)), None);
    assert_eq!(client.fence("LOCK.ACQUIRE other carol 60000 TICKET 60000"), None);
    let released = Instant::now();
    assert!(client.release("k", "alice"));
    assert!(left(&mut client) <= WINDOW, "the grant to dead0 is kept for long");
    let fence = until_held_by(&mut client, "bob");
    assert!(released.elapsed() < Duration::from_millis(PLACES * WINDOW / 2), "one each");
    assert_eq!(message(&mut subscriber), notice(fence, b"bob", b"k"));
    assert!(left(&mut client) > WINDOW, "bob heard of it");
    assert_eq!(queue_of(&mut client, "other"), ["ticket carol"], "its other places are gone, too");
}

#[test]
fn who_claims_in_time_what_nobody_heard_of_keeps_it_and_its_other_places() {
    if lacks_notify() {
        return;
    }
    for (claim, told) in [
        ("LOCK.ACQUIRE k bob 60000", "C"),
        ("LOCK.EXTEND k bob 60000", "1"),
        ("LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants", "C"),
    ] {
        let session = format!(
            "# {claim}
            LOCK.ACQUIRE other alice 60000 -> B
            LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
            LOCK.ACQUIRE other bob 60000 TICKET 60000 NOTIFY grants -> nil
            MULTI: LOCK.RELEASE k alice; {claim} -> 1; {told}
            1500 ms pass
            LOCK.CHECK k bob -> C
            LOCK.WAITERS other -> ticket(bob)"
        );
        play(Server::builder, &session);
    }
}

#[test]
fn a_subscriber_of_a_replica_hears_nothing() {
    if lacks_notify() {
        return;
    }
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    let [mut here, mut there] =
        [&primary, &replica].map(|server| subscribed(server, CHANNEL.as_bytes()));
    assert_eq!(client.fence(notified("bob", LONG)), None);
    assert!(client.release("k", "alice"));
    let told = notice(client.check("k", "bob").unwrap(), b"bob", b"k");
    assert_eq!(message(&mut here), told);
    testkit::wait_until_in_sync(&primary, &replica);
    replica.cmd(["PUBLISH", CHANNEL, "the first"]);
    assert_eq!(message(&mut there), b"the first");
}

/// `NOTIFY` is `PUBLISH`, not `SPUBLISH`: each node hears it, of whatever slot the lock is, replicas too.
#[test]
fn in_a_cluster_a_subscriber_of_any_node_hears_the_message() {
    if lacks_notify() {
        return;
    }
    let cluster = Cluster::of(2, 1);
    let key = cluster.slot_of(0).key("k");
    let mut client: Client = cluster.node(0).client();
    client.grant(&key, "alice", LONG);
    let subscribers = cluster.nodes().iter().map(|node| subscribed(node, CHANNEL.as_bytes()));
    let subscribers: Vec<_> = subscribers.collect();
    let mut of_shard = cluster.node(0).client();
    of_shard.cmd(["SSUBSCRIBE", &cluster.slot_of(0).key(CHANNEL)]);
    let request = format!("LOCK.ACQUIRE {key} bob {LONG} TICKET {LONG} NOTIFY {CHANNEL}");
    assert_eq!(client.fence(request), None);
    assert!(client.release(&key, "alice"));
    let told = notice(client.check(&key, "bob").unwrap(), b"bob", key.as_bytes());
    for mut subscriber in subscribers {
        assert_eq!(message(&mut subscriber), told);
    }
    assert!(!of_shard.has_reply().unwrap());
}
