//! A primary that becomes a replica: every waiter is told, none hangs, and the new primary decides.

use super::{LONG, Waiter, waiters};
use redis::Value;
use testkit::{Server, Snapshot, becomes, int, start_pair, wait_until_in_sync, wait_until_it_is};

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
fn a_former_primary_grants_nothing_when_a_lease_ends_and_lets_wait_when_it_is_primary_again() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    client.grant("k", "alice", 300);
    let mut bob = Waiter::of(&primary, "k", "bob");
    wait_until_in_sync(&primary, &other);
    other.promote();
    primary.follow(&other);
    assert_sent_away(&mut bob);
    // He may wait at the new primary, which decides.
    let granted = other.client().cmd("LOCK.ACQUIRE k bob 60000 BLOCK 0");
    assert!(matches!(granted, Value::Int(1..)), "{granted:?}");
    becomes("the lease ends", None, || client.check("k", "alice"));
    wait_until_in_sync(&other, &primary);
    assert_eq!(Snapshot::of(&primary), Snapshot::of(&other));
    for _ in 0..2 {
        primary.cmd("REPLICAOF NO ONE");
        client.acquire("k", "alice", LONG);
        let mut carol = Waiter::of(&primary, "k", "carol");
        primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
        assert_sent_away(&mut carol);
    }
    primary.cmd("REPLICAOF NO ONE");
    client.acquire("k", "alice", LONG);
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
    wait_until_it_is(&primary, "slave");
    wait_until_it_is(&replica, "master");
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
