//! The queue of a lock: who is in it, in which order, for how long, and how many may be.

use super::play;
use super::{LONG, Row, Waiter, held, owners, queue, rows, waiters};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::{Server, bulk, field, int, lacks, until};

const SESSIONS: &str = "
    # a free lock is granted without waiting
    LOCK.ACQUIRE a alice 60000 BLOCK 0 -> B
    LOCK.ACQUIRE b alice 60000 BLOCK 1 -> C
    LOCK.ACQUIRE c alice 60000 BLOCK 3153600000000 -> D
    INFO leasehold_waiters -> 0

    # who leaves from anywhere leaves the order of the others alone, and each has its turn in that order
    ba: LOCK.ACQUIRE k ba 60000 BLOCK 0 -> waits
    bb: LOCK.ACQUIRE k bb 60000 BLOCK 0 -> waits
    bc: LOCK.ACQUIRE k bc 60000 BLOCK 0 -> waits
    bd: LOCK.ACQUIRE k bd 60000 BLOCK 0 -> waits
    be: LOCK.ACQUIRE k be 60000 BLOCK 0 -> waits
    CLIENT KILL ID {bc}; LOCK.WAITERS k -> 1; ba bb bd be
    CLIENT KILL ID {ba}; LOCK.WAITERS k -> 1; bb bd be
    CLIENT KILL ID {be}; LOCK.WAITERS k -> 1; bb bd
    late: LOCK.ACQUIRE k late 60000 BLOCK 0 -> waits
    INFO leasehold_waiters -> 3
    LOCK.WAITERS k COUNT 2 -> bb bd
    LOCK.WAITERS k count 1 -> bb
    LOCK.WAITERS k COUNT 18446744073709551615 -> bb bd late
    LOCK.WAITERS k COUNT -1 -> bb bd late
    LOCK.RELEASE k alice -> 1
    bb: -> B
    LOCK.CHECK k bb -> B
    LOCK.RELEASE k bb -> 1
    bd: -> C
    late: -> waits
    LOCK.RELEASE k bd -> 1
    late: -> D
    LOCK.RELEASE k late; LOCK.INFO k -> 1; nil

    # each waiter has a patience of its own
    endless: LOCK.ACQUIRE k endless 60000 BLOCK 0 -> waits
    brief: LOCK.ACQUIRE k brief 60000 BLOCK 100 -> waits
    longer: LOCK.ACQUIRE k longer 60000 bLoCk 30000 -> waits
    brief: -> nil
    LOCK.WAITERS k -> endless longer
    LOCK.RELEASE k alice -> 1
    endless: -> B
    LOCK.RELEASE k endless -> 1
    longer: -> C

    # where nobody waits the queue is empty
    LOCK.WAITERS k -> (empty)
    LOCK.WAITERS free -> (empty)
    LOCK.WAITERS k COUNT 1 -> (empty)
    RPUSH list x; LOCK.WAITERS list; LOCK.WAITERS list COUNT 1 -> 1; -WRONGTYPE; -WRONGTYPE
    LOCK.WAITERS; LOCK.WAITERS list COUNT -> -ERR wrong number…; -ERR unknown option, expected COUNT and a positive integer or -1
    LOCK.WAITERS list COUNT 0 -> -ERR unknown option, expected COUNT and a positive integer or -1

    # the holder that is ready to wait gets its fence at once, and the lease is never shorter
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.ACQUIRE k alice 1000 BLOCK 0 -> A
    PTTL k -> 10001..60000
    LOCK.ACQUIRE k alice 90000 BLOCK 0 -> A
    PTTL k -> 60001..90000
    LOCK.WAITERS k -> bob

    # the holder of a foreign lock that is ready to wait gets 0 at once
    SET old stranger PX 50000 -> OK
    LOCK.ACQUIRE old stranger 60000 BLOCK 0 -> 0
    GET old -> stranger

    # one that waits for two locks on two connections is granted both
    LOCK.ACQUIRE l alice 60000 -> B
    one: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    two: LOCK.ACQUIRE l bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice -> 1
    one: -> C
    LOCK.RELEASE l alice -> 1
    two: -> D

    # an owner that asks again takes its former place with the newer patience and ttl
    former: LOCK.ACQUIRE k bob 5000 BLOCK 20000 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    newer: LOCK.ACQUIRE k bob 60000 BLOCK 100 -> waits
    former: -> -REPLACED a newer request of the same owner took this place in the queue
    LOCK.WAITERS k -> bob carol
    newer: -> nil
    LOCK.WAITERS k -> carol
    former: LOCK.ACQUIRE k bob 5000 BLOCK 100 -> waits
    newer: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    former: -> -REPLACED
    CLIENT KILL ID {former} -> 1
    LOCK.WAITERS k -> carol bob
    LOCK.RELEASE k alice -> 1
    carol: -> B
    LOCK.RELEASE k carol -> 1
    newer: -> C
    PTTL k -> 30001..60000
";

#[test]
fn who_waits_has_its_turn_in_the_order_of_arrival_unless_it_leaves() {
    play(Server::builder, SESSIONS);
}

#[test]
fn patience_ends_on_time_with_nil_and_never_early() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    for patience in [1, 20, 150] {
        let mut client = server.client();
        let asked = Instant::now();
        let reply = client.cmd(format!("LOCK.ACQUIRE k bob 60000 BLOCK {patience}"));
        let waited = asked.elapsed();
        assert_eq!(reply, Value::Nil);
        assert!(waited >= Duration::from_millis(patience), "{waited:?} of {patience} ms");
        // Far from what a loaded machine does, and from the next look at the lock.
        assert!(waited < Duration::from_millis(patience + 700), "{waited:?} of {patience} ms");
        assert_eq!(client.cmd("PING"), Value::SimpleString("PONG".to_owned()));
    }
    assert_eq!((owners(&server, "k").len(), waiters(&server)), (0, 0));
}

#[test]
fn the_queue_is_shown_oldest_first_with_owner_client_time_and_patience() {
    let (server, mut client) = held();
    let bob = Waiter::of(&server, "k", "bob");
    let carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 60000 BLOCK 3153600000000");
    // So that every number has something to show.
    let both = until("time passes", || queue(&server, "k"), |both| both[1].waited > 20);
    let [Row { waited: longer, .. }, Row { waited, patience, .. }] = both[..] else {
        panic!("{both:?}")
    };
    assert!(longer >= waited);
    // Each of the two numbers is rounded down.
    assert!((3_153_599_999_998..=3_153_600_000_000).contains(&(waited + patience)), "{both:?}");
    let row = |owner: &str, client, waited, patience| Row {
        owner: owner.to_owned(),
        kind: "block".to_owned(),
        client,
        waited,
        patience,
    };
    assert_eq!(both, [row("bob", bob.id, longer, -1), row("carol", carol.id, waited, patience)]);
    assert_eq!((client.info("k").unwrap().waiters, waiters(&server)), (2, 2));
}

#[test]
fn the_rows_are_maps_in_resp3_and_flat_arrays_in_resp2() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    let _bob = Waiter::of(&server, "k", "bob");
    let names = ["owner", "client", "waited", "patience", "share", "kind", "locks"];
    let Value::Array(flat) = server.client().cmd("LOCK.WAITERS k") else { panic!("no array") };
    let [Value::Array(fields)] = &flat[..] else { panic!("{flat:?}") };
    let even: Vec<_> = fields.iter().step_by(2).cloned().collect();
    assert_eq!(even, names.map(bulk));
    if lacks((7, 0), "maps in a module's reply") {
        return;
    }
    let Value::Array(maps) = server.client_resp3().cmd("LOCK.WAITERS k") else {
        panic!("no array")
    };
    let [Value::Map(pairs)] = &maps[..] else { panic!("{maps:?}") };
    assert_eq!(pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names.map(bulk));
    assert_eq!(field(&maps[0], "owner"), field(&flat[0], "owner"));
}

#[test]
fn without_a_count_a_hundred_are_listed_at_most() {
    let (server, mut client) = held();
    let mut crowd = Crowd::of(&server, 101);
    for index in 0..crowd.size() {
        crowd.send(index, format!("LOCK.ACQUIRE k w{index} 60000 BLOCK 0"));
    }
    client.wait_until_waiters(101);
    let all = rows(&client.cmd("LOCK.WAITERS k COUNT -1"));
    assert_eq!(all.len(), 101);
    let owner = |row: &Row| row.owner.clone();
    let usual: Vec<_> = rows(&client.cmd("LOCK.WAITERS k")).iter().map(owner).collect();
    assert_eq!(usual, all[..100].iter().map(owner).collect::<Vec<_>>());
}

#[test]
fn minted_owners_wait_side_by_side_and_are_told_with_the_fence() {
    let (server, mut client) = held();
    let mut holder = b"alice".to_vec();
    // Either protocol.
    let queued = [server.client(), server.client_resp3()];
    let queued = queued.map(|it| Waiter::sends_on(it, &server, "LOCK.ACQUIRE k * 60000 BLOCK 0"));
    let owners = owners(&server, "k");
    assert_eq!(owners.len(), 2);
    assert_ne!(owners[0], owners[1]);
    for mut giving_up in [server.client(), server.client_resp3()] {
        assert_eq!(giving_up.cmd("LOCK.ACQUIRE k * 60000 BLOCK 5"), Value::Nil);
    }
    for (mut waiter, owner) in queued.into_iter().zip(owners) {
        assert_eq!(owner.len(), 36, "{owner}");
        client.release("k", &holder);
        let reply = waiter.reply();
        let info = client.info("k").unwrap();
        assert_eq!(reply, Value::Array(vec![bulk(&owner), int(info.fence)]));
        holder = info.owner;
        assert_eq!(holder, owner.as_bytes());
    }
}
