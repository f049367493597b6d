//! Who hears a message, and what becomes of a grant whose message nobody hears: asking again is the truth.

use super::notifying::notified;
use super::{
    CHANNEL, LONG, Subscriber, asked, held, held_on, lacks_notify, left, notice, queue_of,
    until_held_by,
};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Client, Cluster, Server, eventually, start_pair};

#[test]
fn without_a_subscriber_the_grant_is_made_and_told_to_who_asks_again() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    assert_eq!(asked(&mut client, notified("bob", LONG)), None);
    // One that subscribes too late hears nothing.
    assert!(client.release("k", "alice"));
    let mut subscriber = Subscriber::on(&server);
    let fence = client.check("k", "bob").unwrap();
    assert_eq!(asked(&mut client, notified("bob", LONG)), Some(fence));
    assert!(subscriber.messages().is_empty());
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
        assert_eq!(asked(&mut client, elsewhere(&format!("dead{number}"), "k")), None);
    }
    assert_eq!(asked(&mut client, elsewhere("dead", "other")), None);
    let mut subscriber = Subscriber::on(&server);
    assert_eq!(asked(&mut client, notified("bob", LONG)), None);
    assert_eq!(asked(&mut client, "LOCK.ACQUIRE other carol 60000 TICKET 60000"), None);
    let released = Instant::now();
    assert!(client.release("k", "alice"));
    assert!(left(&mut client) <= WINDOW, "the grant to dead0 is kept for long");
    let fence = until_held_by(&mut client, "bob");
    assert!(released.elapsed() < Duration::from_millis(PLACES * WINDOW / 2), "one each");
    assert_eq!(subscriber.message(), notice(fence, b"bob", b"k"));
    assert!(left(&mut client) > WINDOW, "bob heard of it");
    assert_eq!(queue_of(&mut client, "other"), ["ticket carol"], "its other places are gone, too");
}

#[test]
fn who_claims_in_time_what_nobody_heard_of_keeps_it_and_its_other_places() {
    if lacks_notify() {
        return;
    }
    for claim in [
        format!("LOCK.ACQUIRE k bob {LONG}"),
        format!("LOCK.EXTEND k bob {LONG}"),
        notified("bob", LONG),
    ] {
        let (_server, mut client) = held();
        client.grant("other", "alice", LONG);
        assert_eq!(asked(&mut client, notified("bob", LONG)), None);
        let other = notified("bob", LONG).replace(" k ", " other ");
        assert_eq!(asked(&mut client, &*other), None);
        let replies = client.transaction(&["LOCK.RELEASE k alice", &claim]);
        assert!(!matches!(replies[1], Value::Nil), "{claim}: {replies:?}");
        let begun = Instant::now();
        eventually("the window is over", || match begun.elapsed().as_millis() {
            elapsed if elapsed > u128::from(WINDOW + 500) => Ok(()),
            elapsed => Err(elapsed),
        });
        assert_eq!(client.info("k").unwrap().owner, b"bob", "{claim}");
        assert_eq!(queue_of(&mut client, "other"), ["ticket bob"], "{claim}");
    }
}

#[test]
fn a_pattern_and_several_subscribers_hear_each_message() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscribers = [(); 3].map(|()| Subscriber::on(&server));
    let mut pattern = server.client();
    pattern.cmd("PSUBSCRIBE gra*");
    assert_eq!(asked(&mut client, notified("bob", LONG)), None);
    assert!(client.release("k", "alice"));
    let told = notice(client.check("k", "bob").unwrap(), b"bob", b"k");
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.message(), told);
    }
    let Value::Array(words) = pattern.receive() else { panic!("no message") };
    assert_eq!(words.last(), Some(&Value::BulkString(told)));
}

/// How much of what one is sent the server keeps for it.
const LIMIT: &str = "normal 0 0 0 replica 0 0 0 pubsub 20000 0 0";

/// A subscriber that reads nothing is cut off at its limit, in the middle of the grants, and nobody else is kept waiting.
#[test]
fn a_subscriber_that_reads_nothing_is_cut_off_and_the_grants_go_on() {
    if lacks_notify() {
        return;
    }
    let setup = Server::builder().config("client-output-buffer-limit", "pubsub 20000 0 0");
    let (server, mut client) = held_on(setup);
    assert_eq!(client.cmd(["CONFIG", "SET", "client-output-buffer-limit", LIMIT]), Value::Okay);
    let mut slow = server.client();
    slow.cmd(["SUBSCRIBE", CHANNEL]);
    let padding = "w".repeat(200);
    let mut holder = "alice".to_owned();
    let mut granted = 0;
    eventually("it is cut off", || {
        for _ in 0..100 {
            let owner = format!("{padding}{granted}");
            assert_eq!(asked(&mut client, notified(&owner, LONG)), None);
            assert!(client.release("k", &holder));
            assert!(client.check("k", &owner).is_some());
            granted += 1;
            holder = owner;
        }
        let Value::Array(counts) = client.cmd(["PUBSUB", "NUMSUB", CHANNEL]) else { panic!() };
        if counts[1] == Value::Int(0) { Ok(()) } else { Err(granted) }
    });
    assert_eq!(asked(&mut client, notified("next", LONG)), None);
    assert!(client.release("k", &holder));
    until_held_by(&mut client, "next");
    while slow.try_receive().is_ok() {}
}

/// The subscriber that is cut off is the connection that frees the locks, in RESP3.
#[test]
fn a_connection_that_is_cut_off_by_the_messages_of_its_own_releases_leaves_the_grants_as_they_are()
{
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    assert_eq!(client.cmd(["CONFIG", "SET", "client-output-buffer-limit", LIMIT]), Value::Okay);
    let mut both = server.client_resp3();
    both.cmd(["SUBSCRIBE", CHANNEL]);
    let padding = "r".repeat(200);
    let readers: Vec<_> = (0..400).map(|number| format!("{padding}{number}")).collect();
    for reader in &readers {
        let request =
            format!("LOCK.ACQUIRE k {reader} {LONG} SHARE 0 TICKET {LONG} NOTIFY {CHANNEL}");
        assert_eq!(asked(&mut client, request), None);
    }
    both.send("LOCK.RELEASE k alice");
    while both.try_receive().is_ok() {}
    eventually("all hold the lock", || match client.info("k") {
        Some(info) if info.holders == 400 => Ok(()),
        other => Err(other),
    });
    for reader in &readers {
        assert!(client.check("k", reader).is_some(), "{reader}");
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
    let mut there = Subscriber::on(&replica);
    let mut here = Subscriber::on(&primary);
    assert_eq!(asked(&mut client, notified("bob", LONG)), None);
    assert!(client.release("k", "alice"));
    let told = notice(client.check("k", "bob").unwrap(), b"bob", b"k");
    assert_eq!(here.messages(), [told]);
    testkit::wait_until_in_sync(&primary, &replica);
    assert!(there.messages().is_empty());
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
    let mut subscribers: Vec<_> = cluster.nodes().iter().map(|node| Subscriber::on(node)).collect();
    let mut of_shard = cluster.node(0).client();
    of_shard.cmd(["SSUBSCRIBE", &cluster.slot_of(0).key(CHANNEL)]);
    let request = format!("LOCK.ACQUIRE {key} bob {LONG} TICKET {LONG} NOTIFY {CHANNEL}");
    assert_eq!(asked(&mut client, request), None);
    assert!(client.release(&key, "alice"));
    let told = notice(client.check(&key, "bob").unwrap(), b"bob", key.as_bytes());
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.message(), told);
    }
    assert!(!of_shard.has_reply().unwrap());
}

/// Each of them is sent each message, and other clients have their turn meanwhile.
#[test]
fn readers_whose_grants_many_hear_of_are_let_in_a_few_at_a_time() {
    const READERS: i64 = 40;
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut subscribers: Vec<_> = (0..400).map(|_| server.client()).collect();
    for subscriber in &mut subscribers {
        subscriber.cmd(["SUBSCRIBE", CHANNEL]);
    }
    for number in 0..READERS {
        let request =
            format!("LOCK.ACQUIRE k r{number} {LONG} SHARE 0 TICKET {LONG} NOTIFY {CHANNEL}");
        assert_eq!(asked(&mut client, request), None);
    }
    let replies = client.pipeline(&["LOCK.RELEASE k alice", "LOCK.INFO k"]);
    let Some(&Value::Int(first)) = testkit::field(&replies[1], "holders") else {
        panic!("{replies:?}")
    };
    assert!((1..READERS / 2).contains(&first), "{first} were let in by one command");
    eventually("all hold the lock", || match client.info("k") {
        Some(info) if info.holders == READERS => Ok(()),
        other => Err(other),
    });
    let told = (0..READERS).map(|number| {
        let owner = format!("r{number}");
        notice(client.check("k", &owner).unwrap(), owner.as_bytes(), b"k")
    });
    for message in told.collect::<Vec<_>>() {
        for subscriber in &mut subscribers {
            assert_eq!(super::message_in(&subscriber.receive()), message);
        }
    }
}
