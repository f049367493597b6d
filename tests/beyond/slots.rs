//! A slot moves by hand, step by step: see `SlotMove` for what is known where after which step.

use super::scene::Scene;
use super::{LONG, SOON, TRYAGAIN, WITHIN_THE_MARGIN, asking, fence, pass, two_clocks};
use testkit::{Cluster, SlotMove, Stopwatch, error, int, lacks};

/// A slot of node 0 that is to go to node 1.
fn scene_in_a_slot(cluster: &Cluster) -> (SlotMove, Scene) {
    let slot = cluster.slot_of(0);
    let scene = Scene::on(cluster.node(0), &slot.key(""));
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    (step, scene.by_clocks_that_differ_by(WITHIN_THE_MARGIN))
}

#[test]
fn locks_continue_on_the_node_that_their_slot_moves_to() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let (cluster, _behind) = two_clocks();
    let (step, mut scene) = scene_in_a_slot(&cluster);
    step.import(&cluster);
    scene.goes_on(cluster.node(0));
    step.migrate(&cluster);
    scene.all_wait(cluster.node(0));
    step.move_keys(&cluster);
    let moved = Stopwatch::start();
    assert_eq!(scene.sends_all_waiters_away(), [TRYAGAIN; 2]);
    assert!(moved.elapsed() < SOON, "after {:?}", moved.elapsed());
    step.give(&cluster);
    scene.continues_on(cluster.node(1));
}

#[test]
fn a_free_lock_whose_slot_is_on_its_way_is_granted_where_it_goes_and_continues_there() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let (cluster, _behind) = two_clocks();
    let (step, mut scene) = scene_in_a_slot(&cluster);
    step.import(&cluster);
    scene.goes_on(cluster.node(0));
    step.migrate(&cluster);
    let mut to = cluster.node(1).client();
    let key = scene.key("free");
    let asked = asking(&mut to, &format!("LOCK.ACQUIRE {key} zoe {LONG}"));
    assert!(scene.told(fence(&asked)), "{asked:?} is not above what was told before");
    // There it can be waited for, as far as its node can tell yet whose it is.
    let waits = asking(&mut to, &format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 0"));
    assert_eq!(waits, error(TRYAGAIN));
    assert_eq!(asking(&mut to, &format!("LOCK.RELEASE {key} zoe")), int(1));
    step.move_keys(&cluster);
    step.give(&cluster);
    scene.sends_all_waiters_away();
    scene.continues_on(cluster.node(1));
}

/// Nothing that comes along has a fence to learn from, and nobody asks for a lock until the node
/// has looked at what it heard.
#[test]
fn a_free_lock_whose_slot_came_a_while_ago_has_a_larger_fence() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let (cluster, _behind) = two_clocks();
    let slot = cluster.slot_of(0);
    let key = slot.key("free");
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    let before = from.grant(&key, "alice", LONG);
    assert!(from.release(&key, "alice"));
    SlotMove { slot: slot.number, from: 0, to: 1 }.by_hand(&cluster);
    pass(&mut to, 500);
    let after = to.grant(&key, "bob", LONG);
    assert!(after > before, "{after} is not above {before}");
}

#[test]
fn slots_that_move_one_after_another_take_their_fences_along() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let (cluster, _behind) = two_clocks();
    for _ in 0..3 {
        let (step, mut scene) = scene_in_a_slot(&cluster);
        step.by_hand(&cluster);
        scene.sends_all_waiters_away();
        scene.continues_on(cluster.node(1));
    }
}
