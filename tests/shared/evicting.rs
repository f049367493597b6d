//! The server evicts a lock that several hold: it is put back, with each of them.

use super::{LONG, Scene, holds, share, waits};
use crate::eviction::{EVICT, evict_and, is_back, tells_too_late};
use redis::Value;
use testkit::{Waiter, eventually, int};

fn evicting() -> Scene {
    let scene = Scene::start();
    assert_eq!(scene.primary.cmd("CONFIG SET maxmemory-policy volatile-lru"), Value::Okay);
    scene
}

#[test]
fn all_who_hold_a_lock_hold_it_as_before_after_its_eviction() {
    if tells_too_late() {
        return;
    }
    let scene = evicting();
    let mut client = scene.client();
    for (owner, ttl, tolerates) in [("r1", LONG, 0), ("r2", 2 * LONG, 5), ("r3", LONG / 2, 4)] {
        share(&mut client, owner, ttl, tolerates).unwrap();
    }
    assert!(client.release("k", "r1"));
    share(&mut client, "r4", LONG, 0).unwrap();
    let before = holds(&mut client, "k");
    let answers = evict_and(
        &mut client,
        &["GET k", "LOCK.CHECK k r2", "LOCK.CHECK k r1", "LOCK.RELEASE k r1"],
    );
    let fence = Value::Int(before[0].fence);
    assert_eq!(answers, [Value::Nil, fence, Value::Nil, Value::Int(0)]);
    is_back(&mut client, "k");
    assert_eq!(holds(&mut client, "k"), before);
    // One who comes or goes in the very turn of the eviction finds the others there.
    let answers = evict_and(
        &mut client,
        &["LOCK.ACQUIRE k w 60000", "LOCK.RELEASE k r3", "LOCK.ACQUIRE k r5 60000 SHARE 3"],
    );
    assert_eq!(answers[..2], [Value::Nil, Value::Int(1)]);
    let Value::Int(fence) = answers[2] else { panic!("{answers:?}") };
    is_back(&mut client, "k");
    let after = holds(&mut client, "k");
    assert_eq!(after[..2], [before[0].clone(), before[2].clone()]);
    assert_eq!((after.len(), after[2].fence), (3, fence));
    scene.agree();
}

#[test]
fn a_lock_that_is_evicted_while_a_crowd_is_let_in_is_still_held_by_those_who_are_in() {
    let scene = evicting();
    let mut client = scene.client();
    client.grant("k", "writer", LONG);
    let owners: Vec<_> = (0..120).map(|number| format!("r{number}")).collect();
    let mut readers: Vec<_> = owners.iter().map(|owner| waits(&scene.primary, owner, 0)).collect();
    let next = Waiter::of(&scene.primary, "k", "next");
    let replies = client.pipeline(&[&["LOCK.RELEASE k writer"], &EVICT[..]].concat());
    assert_eq!(replies[0], int(1));
    let mut fences: Vec<_> = readers.iter_mut().map(Waiter::fence).collect();
    fences.sort_unstable();
    eventually("all of them hold the lock", || {
        let holding = holds(&mut client, "k").into_iter().map(|hold| hold.fence);
        let holding: Vec<_> = holding.map(i64::unsigned_abs).collect();
        if holding == fences { Ok(()) } else { Err(holding.len()) }
    });
    next.assert_waits(&scene.primary);
    assert_ne!(client.counter("evictions_restored"), 0);
    scene.agree();
}
