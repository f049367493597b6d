//! In a cluster: the slot of a lock moves that a hundred hold and a hundred wait for.

use super::{Hold, LONG, asks, holds};
use redis::Value;
use std::time::Duration;
use testkit::crowd::Crowd;
use testkit::{Cluster, SlotMove, Stopwatch, error, until};

const MANY: usize = 100;

const TRYAGAIN: &str = "TRYAGAIN this node does not grant the lock any more, ask again";

/// Sooner than the look each second.
const SOON: Duration = Duration::from_millis(200);

/// By how much the expiry of a key may be another after `MIGRATE`, which tells what is left of it. The deadlines of
/// holds are in the value.
const SLACK_MILLIS: i64 = 1_000;

/// Queues one up after another: first a writer, then readers.
fn queue_up(cluster: &Cluster, node: usize, key: &str) -> Crowd {
    let server = cluster.node(node);
    let mut crowd = Crowd::of(server, MANY);
    let mut client = server.client();
    for index in 0..MANY {
        let tolerates = u32::from(index == 0);
        crowd.send(index, format!("{} BLOCK 0", asks(key, &format!("w{index}"), LONG, tolerates)));
        until("it is queued", || client.info(key).unwrap().waiters, |all| *all > index as i64);
    }
    crowd
}

/// Without their ends, which the key's may cut short.
fn who(holds: &[Hold]) -> Vec<(&[u8], i64, i64)> {
    holds.iter().map(|hold| (&hold.owner[..], hold.fence, hold.share)).collect()
}

fn goes_on_over(cluster: &Cluster, moves: fn(SlotMove, &Cluster)) {
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let mut client = cluster.node(0).client();
    let owners: Vec<_> = (0..MANY).map(|number| format!("r{number}")).collect();
    for owner in &owners {
        // Those in between have left again.
        let gone = format!("gone-{owner}");
        for owner in [owner, &gone] {
            assert!(matches!(client.cmd(asks(&key, owner, LONG, 0)), Value::Int(_)));
        }
        assert!(client.release(&key, gone));
    }
    let before = holds(&mut client, &key);
    assert_eq!(before.len(), MANY);
    let mut crowd = queue_up(cluster, 0, &key);

    moves(SlotMove { slot: slot.number, from: 0, to: 1 }, cluster);
    let moved = Stopwatch::start();
    assert_eq!(crowd.one_reply_each(), vec![Some(error(TRYAGAIN)); MANY]);
    assert!(moved.elapsed() < SOON, "after {:?}", moved.elapsed());
    assert_eq!(cluster.node(0).client().counter("waiters"), 0);

    let mut client = cluster.node(1).client();
    let after = holds(&mut client, &key);
    assert_eq!(who(&after), who(&before));
    for (after, before) in after.iter().zip(&before) {
        assert!((after.deadline - before.deadline).abs() <= SLACK_MILLIS, "{after:?} {before:?}");
    }
    let mut crowd = queue_up(cluster, 1, &key);
    for owner in &owners {
        assert!(client.release(&key, owner), "{owner} has lost it");
    }
    let (writer, reply) = crowd.receive().remove(0);
    let Some(Value::Int(fence)) = reply else { panic!("{writer} received {reply:?}") };
    assert_eq!(writer, 0);
    assert!(before.iter().all(|hold| hold.fence < fence));
    assert!(client.release(&key, "w0"));
    crowd.leave(0);
    for reply in &crowd.one_reply_each()[1..] {
        assert!(matches!(reply, Some(Value::Int(later)) if *later > fence), "{reply:?}");
    }
    assert_eq!(holds(&mut client, &key).len(), MANY - 1);
}

#[test]
fn a_lock_that_a_hundred_hold_and_a_hundred_wait_for_goes_on_where_its_slot_moves() {
    for moves in SlotMove::ways() {
        goes_on_over(&Cluster::of(2, 0), moves);
    }
}
