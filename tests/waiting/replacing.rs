//! A primary that becomes a replica: every waiter is told, none hangs, and the new primary decides.

use super::{LONG, Waiter, owners, waiters};
use redis::Value;
use testkit::{Server, Snapshot, deadline, eventually, int, start_pair, wait_until_in_sync};

/// The waiter is told that the server decides no longer, by an error that says so or by the end of its
/// connection right behind it.
#[track_caller]
fn assert_sent_away(waiter: &mut Waiter) {
    match waiter.client.try_receive() {
        Ok(Value::ServerError(told)) => {
            assert!(["UNBLOCKED", "TRYAGAIN"].contains(&told.code()), "{told}");
        }
        other => panic!("it was told {other:?}"),
    }
}

#[test]
fn every_waiter_of_a_primary_that_becomes_a_replica_is_sent_away() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    let mut queued = Vec::new();
    for number in 0..30 {
        let key = format!("k{}", number % 3);
        client.acquire(&key, "alice", LONG);
        queued.push(Waiter::of(&primary, &key, &format!("w{number}")));
    }
    other.cmd("REPLICAOF NO ONE");
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    for waiter in &mut queued {
        assert_sent_away(waiter);
    }
    assert_eq!(waiters(&primary), 0);
    assert_eq!(owners(&primary, "k0").len(), 0);
}

#[test]
fn a_former_primary_grants_nothing_when_a_lease_ends() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    client.grant("k", "alice", 300);
    let mut bob = Waiter::of(&primary, "k", "bob");
    other.cmd("REPLICAOF NO ONE");
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    assert_sent_away(&mut bob);
    eventually("the lease ends", || client.info("k").map_or(Ok(()), Err));
    // The new primary has it free for whoever asks there.
    assert!(other.client().acquire("k", "carol", LONG).is_some());
    wait_until_in_sync(&other, &primary);
    assert_eq!(Snapshot::of(&primary), Snapshot::of(&other));
}

#[test]
fn one_that_was_sent_away_may_wait_at_the_new_primary() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    primary.client().grant("k", "alice", LONG);
    let mut bob = Waiter::of(&primary, "k", "bob");
    wait_until_in_sync(&primary, &other);
    other.cmd("REPLICAOF NO ONE");
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    assert_sent_away(&mut bob);
    let mut bob = Waiter::of(&other, "k", "bob");
    assert!(other.client().release("k", "alice"));
    bob.fence();
}

#[test]
fn a_server_that_became_primary_again_lets_wait_again() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    for _ in 0..2 {
        primary.client().grant("k", "alice", LONG);
        let mut bob = Waiter::of(&primary, "k", "bob");
        primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
        assert_sent_away(&mut bob);
        primary.cmd("REPLICAOF NO ONE");
    }
    primary.client().acquire("k", "alice", LONG);
    let mut carol = Waiter::of(&primary, "k", "carol");
    primary.cmd("DEL k");
    carol.fence();
}

#[test]
fn every_waiter_is_sent_away_by_a_failover() {
    // The replica follows at the same moment, without a full copy that would take its time.
    let (primary, replica) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    client.grant("ending", "alice", LONG);
    let mut queued: Vec<_> =
        (0..20).map(|number| Waiter::of(&primary, "k", &format!("w{number}"))).collect();
    // Its lease ends while the failover has paused all writes, or before.
    let mut ending = Waiter::of(&primary, "ending", "bob");
    let replies = client.pipeline(&["LOCK.EXTEND ending alice 50", "FAILOVER"]);
    assert_eq!(replies, [int(1), Value::Okay]);
    eventually("the two change roles", || {
        let role = |server: &Server| server.client().info_field("replication", "role").unwrap();
        match (role(&primary).as_str(), role(&replica).as_str()) {
            ("slave", "master") => Ok(()),
            (one, other) => Err((one.to_owned(), other.to_owned())),
        }
    });
    for waiter in &mut queued {
        assert_sent_away(waiter);
    }
    match ending.client.try_receive() {
        Ok(Value::Int(1..)) => {}
        Ok(Value::ServerError(told)) => assert!(["UNBLOCKED", "TRYAGAIN"].contains(&told.code())),
        other => panic!("it was told {other:?}"),
    }
    assert_eq!(waiters(&primary), 0);
    wait_until_in_sync(&replica, &primary);
    assert_eq!(Snapshot::of(&primary), Snapshot::of(&replica));
    let mut bob = Waiter::of(&replica, "k", "bob");
    assert!(replica.client().release("k", "alice"));
    bob.fence();
}

#[test]
fn a_lease_that_ends_during_a_failover_that_fails_is_handed_on_after_it() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&primary, "k", "bob");
    // The replica cannot catch up, and after a second the primary gives up.
    replica.client().send("DEBUG SLEEP 2");
    eventually("the replica sleeps", || {
        client.cmd("SET missed 1");
        match client.cmd("WAIT 1 20") {
            Value::Int(0) => Ok(()),
            other => Err(other),
        }
    });
    client.cmd("PEXPIRE k 200");
    let end = deadline(&mut client, b"k");
    assert_eq!(client.cmd("FAILOVER TIMEOUT 1000"), Value::Okay);
    let paused_at_the_end = eventually("the lease ends", || {
        let state = client.info_field("replication", "master_failover_state");
        let now = client.now();
        if now > end + 50 { Ok(state.unwrap() == "waiting-for-sync") } else { Err((state, now)) }
    });
    assert!(paused_at_the_end, "the failover was over too soon to show anything");
    let fence = bob.fence();
    assert_eq!(client.check("k", "bob"), Some(fence));
    let role = client.info_field("replication", "role");
    assert_eq!(role.as_deref(), Some("master"), "it failed");
}

#[test]
fn a_grant_that_nobody_heard_is_no_matter_to_a_former_primary() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&primary, "k", "bob");
    let mut carol = Waiter::of(&primary, "k", "carol");
    client.pipeline(&[
        "LOCK.RELEASE k alice",
        &format!("CLIENT KILL ID {}", bob.id),
        &format!("REPLICAOF 127.0.0.1 {}", other.port()),
    ]);
    assert_sent_away(&mut carol);
    assert_eq!(waiters(&primary), 0);
}
