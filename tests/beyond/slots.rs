//! A slot moves: by hand, step by step (see `SlotMove` for what is known where after which step), or at once (Redis 8.4,
//! Valkey 9). Then the node that gets it follows the other like a replica, until the other pauses writes for a moment and
//! lets go. Or it does not arrive: the move is cancelled, or a node dies.

use super::scene::Scene;
use super::{LONG, SOON, TRYAGAIN, WITHIN_THE_MARGIN, asking, fence, pass, two_clocks};
use redis::Value;
use std::time::Duration;
use testkit::{
    Cluster, Proxy, Setup, SlotMove, Snapshot, Stopwatch, code, error, int, lacks,
    lacks_moves_at_once, lacks_settings, until, wait_until_in_sync, wait_until_it_is,
};

/// A slot of node 0 that is to go to node 1.
fn scene_in_a_slot(cluster: &Cluster) -> (SlotMove, Scene) {
    let slot = cluster.slot_of(0);
    let scene = Scene::on(cluster.node(0), &slot.key(""));
    (SlotMove { slot: slot.number, from: 0, to: 1 }, scene)
}

#[test]
fn locks_continue_on_the_node_that_their_slot_moves_to() {
    if lacks_settings() {
        return;
    }
    let (cluster, _behind) = two_clocks();
    let (step, scene) = scene_in_a_slot(&cluster);
    let mut scene = scene.by_clocks_that_differ_by(WITHIN_THE_MARGIN);
    step.import(&cluster);
    scene.goes_on(cluster.node(0));
    step.migrate(&cluster);
    scene.all_wait(cluster.node(0));
    is_granted_at_the_other_end(&mut scene, &cluster);
    step.move_keys(&cluster);
    let moved = Stopwatch::start();
    assert_eq!(scene.sends_all_waiters_away(), [TRYAGAIN; 2]);
    assert!(moved.elapsed() < SOON, "after {:?}", moved.elapsed());
    step.give(&cluster);
    scene.continues_on(cluster.node(1));
}

#[test]
fn locks_continue_on_the_node_that_their_slot_moves_to_at_once() {
    if lacks_moves_at_once() {
        return;
    }
    let (cluster, _behind) = two_clocks();
    // One after another, so that the node that gives them has just given one.
    for _ in 0..3 {
        let (step, mut scene) = scene_in_a_slot(&cluster);
        step.at_once(&cluster);
        let moved = Stopwatch::start();
        assert_eq!(scene.sends_all_waiters_away(), [TRYAGAIN; 2]);
        assert!(moved.elapsed() < SOON, "after {:?}", moved.elapsed());
        scene.continues_on(cluster.node(1));
    }
}

/// A free lock is asked for where its slot goes to: granted there, and released.
fn is_granted_at_the_other_end(scene: &mut Scene, cluster: &Cluster) {
    let (mut to, key) = (cluster.node(1).client(), scene.key("free"));
    let granted = asking(&mut to, &format!("LOCK.ACQUIRE {key} zoe {LONG}"));
    assert!(scene.told(fence(&granted)), "{granted:?} is not above what was told before");
    // There it can be waited for, as far as its node can tell yet whose it is.
    let waits = asking(&mut to, &format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 0"));
    assert_eq!(waits, error(TRYAGAIN));
    assert_eq!(asking(&mut to, &format!("LOCK.RELEASE {key} zoe")), int(1));
}

/// Nothing that comes along has a fence to learn from, and nobody asks for a lock until the node
/// has looked at what it heard.
#[test]
fn a_free_lock_whose_slot_came_a_while_ago_has_a_larger_fence() {
    if lacks_settings() {
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
    if lacks_settings() {
        return;
    }
    let (cluster, _behind) = two_clocks();
    for _ in 0..3 {
        let (step, scene) = scene_in_a_slot(&cluster);
        let mut scene = scene.by_clocks_that_differ_by(WITHIN_THE_MARGIN);
        step.by_hand(&cluster);
        scene.sends_all_waiters_away();
        scene.continues_on(cluster.node(1));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ByHand,
    AtOnce,
}

fn ways() -> &'static [Way] {
    if lacks_moves_at_once() { &[Way::ByHand] } else { &[Way::ByHand, Way::AtOnce] }
}

/// A slot of node 0 on its way to node 1. Redis has the new owner call the old one for a move at once, Valkey the other way
/// round: either way it takes its time.
fn on_its_way(cluster: &Cluster, way: Way) -> (SlotMove, Scene, Vec<Proxy>) {
    let (step, mut scene) = scene_in_a_slot(cluster);
    if way == Way::ByHand {
        step.import(cluster);
        step.migrate(cluster);
        is_granted_at_the_other_end(&mut scene, cluster);
        return (step, scene, Vec::new());
    }
    let slow = vec![cluster.put_proxy_before(0), cluster.put_proxy_before(1)];
    slow.iter().for_each(|proxy| proxy.slow(Duration::from_millis(100)));
    step.begin_at_once(cluster);
    step.wait_until_both_are_at_it(cluster);
    (step, scene, slow)
}

/// Nobody has noticed anything.
#[track_caller]
fn assert_continues_where_it_is(mut scene: Scene, cluster: &Cluster) {
    scene.all_wait(cluster.node(0));
    scene.goes_on(cluster.node(0));
    scene.hands_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_continue_where_they_are_when_a_move_is_cancelled() {
    for way in ways() {
        let cluster = Cluster::of(2, 0);
        let (step, mut scene, _slow) = on_its_way(&cluster, *way);
        match way {
            Way::ByHand => step.cancel(&cluster),
            Way::AtOnce => {
                scene.goes_on(cluster.node(0));
                step.cancel_at_once(&cluster);
            }
        }
        assert_continues_where_it_is(scene, &cluster);
    }
}

#[test]
fn locks_that_have_moved_come_back_when_a_move_is_cancelled() {
    let cluster = Cluster::of(2, 0);
    let (step, scene, _) = on_its_way(&cluster, Way::ByHand);
    let mut scene = scene.by_clocks_that_differ_by(Duration::ZERO);
    step.move_keys(&cluster);
    scene.sends_all_waiters_away();
    step.cancel(&cluster);
    scene.goes_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_continue_where_they_are_when_the_other_end_dies() {
    for way in ways() {
        let mut cluster = Cluster::of(3, 0);
        let (step, scene, _slow) = on_its_way(&cluster, *way);
        cluster.node_mut(1).kill();
        scene.all_wait(cluster.node(0));
        if *way == Way::ByHand {
            step.close(&cluster, 0);
        }
        assert_continues_where_it_is(scene, &cluster);
    }
}

#[test]
fn locks_continue_on_the_replica_when_the_node_that_sends_them_dies() {
    for way in ways() {
        let mut cluster = Cluster::of(3, 1);
        let (step, mut scene, _slow) = on_its_way(&cluster, *way);
        wait_until_in_sync(cluster.node(0), cluster.node(3));
        cluster.node_mut(0).kill();
        scene.sends_all_waiters_away();
        wait_until_it_is(cluster.node(3), "master");
        if *way == Way::ByHand {
            // What was to move is for somebody to decide, also where it was to go to.
            [3, 1].into_iter().for_each(|node| step.close(&cluster, node));
        }
        cluster.wait_until_ok();
        scene.continues_on(cluster.node(3));
    }
}

#[test]
fn nothing_is_granted_while_the_cluster_is_down_and_everybody_is_told() {
    let mut cluster = Cluster::of(3, 0);
    let slot = cluster.slot_of(0);
    let mut scene = Scene::on(cluster.node(0), &slot.key(""));
    cluster.node_mut(1).kill();
    cluster.node_mut(2).kill();
    cluster.node(0).wait_until("fail");
    let down = Stopwatch::start();
    assert_eq!(scene.sends_all_waiters_away().len(), 2, "both are told");
    assert!(down.elapsed() < SOON, "after {:?}", down.elapsed());
    let down = cluster.node(0).cmd(format!("LOCK.ACQUIRE {} zoe {LONG}", slot.key("new")));
    assert_eq!(code(down), "CLUSTERDOWN");
    cluster.node_mut(1).start_again();
    cluster.node_mut(2).start_again();
    cluster.wait_until_ok();
    scene.goes_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_that_are_evicted_when_their_slot_begins_to_move_at_once_are_held_on_the_other_node() {
    const LOCKS: usize = 2_000;
    if lacks_moves_at_once() {
        return;
    }
    let cluster = Cluster::with(2, 0, |_, setup| setup.config("maxmemory-policy", "volatile-ttl"));
    let slot = cluster.slot_of(0);
    let keys: Vec<_> = (0..LOCKS).map(|number| slot.key(&number.to_string())).collect();
    let mut client = cluster.node(0).client();
    let fences: Vec<_> = keys.iter().map(|key| client.grant(key, "alice", LONG)).collect();
    // Far more than are put back at once as a rule.
    client.cmd("CONFIG SET maxmemory 1");
    until("nearly all are evicted", || client.counter("evictions_pending"), |n| *n >= 1_800);
    client.cmd("CONFIG SET maxmemory 0");
    SlotMove { slot: slot.number, from: 0, to: 1 }.at_once(&cluster);
    let mut client = cluster.node(1).client();
    let lost =
        keys.iter().zip(fences).filter(|(key, fence)| client.check(key, "alice") != Some(*fence));
    assert_eq!(lost.count(), 0);
}

/// A node that has no slot left follows the one that got the last.
#[test]
fn locks_continue_when_the_last_slot_of_a_node_leaves_and_it_becomes_a_replica() {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    let partial = |_, setup: Setup| setup.config("cluster-require-full-coverage", "no");
    let cluster = Cluster::with(2, 0, partial);
    let slot = cluster.slot_of(0);
    let others = cluster.node(0).slots().into_iter().filter(|other| *other != slot.number);
    let others: Vec<_> = others.map(|other| other.to_string()).collect();
    for index in [0, 1] {
        let forgets = format!("CLUSTER DELSLOTS {}", others.join(" "));
        assert_eq!(cluster.node(index).cmd(forgets), Value::Okay);
    }
    cluster.wait_until_all_agree();
    let (step, scene) = scene_in_a_slot(&cluster);
    let mut scene = scene.by_clocks_that_differ_by(Duration::ZERO);
    step.import(&cluster);
    step.migrate(&cluster);
    step.move_keys(&cluster);
    let give = format!("CLUSTER SETSLOT {} NODE {}", slot.number, cluster.node(1).id);
    assert_eq!(cluster.node(1).cmd(&*give), Value::Okay);
    // Refused if it follows already, having heard of it from the other.
    cluster.node(0).cmd(&*give);
    // The module sends them away when it looks at the slot that goes, and the server itself when
    // it becomes a replica. Either may be first.
    let told = scene.sends_all_waiters_away();
    assert_eq!(told.len(), 2);
    let as_expected = |reply: &String| reply == TRYAGAIN || reply.starts_with("UNBLOCKED ");
    assert!(told.iter().all(as_expected), "{told:?}");
    wait_until_it_is(cluster.node(0), "slave");
    scene.continues_on(cluster.node(1));
    wait_until_in_sync(cluster.node(1), cluster.node(0));
    assert_eq!(Snapshot::of(cluster.node(0)), Snapshot::of(cluster.node(1)));
}
