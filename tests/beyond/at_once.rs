//! A slot moves at once (Redis 8.4, Valkey 9): the node that gets it follows the other like a replica, until the other
//! pauses writes for a moment and lets go.

use super::scene::Scene;
use super::{LONG, SOON, TRYAGAIN, two_clocks};
use std::time::Duration;
use testkit::{
    Cluster, Proxy, SlotMove, Stopwatch, eventually, lacks_moves_at_once, wait_until_in_sync,
    wait_until_it_is,
};

#[test]
fn locks_continue_on_the_node_that_their_slot_moves_to_at_once() {
    if lacks_moves_at_once() {
        return;
    }
    let (cluster, _behind) = two_clocks();
    // One after another, so that the node that gives them has just given one.
    for _ in 0..3 {
        let slot = cluster.slot_of(0);
        let mut scene = Scene::on(cluster.node(0), &slot.key(""));
        SlotMove { slot: slot.number, from: 0, to: 1 }.at_once(&cluster);
        let moved = Stopwatch::start();
        assert_eq!(scene.sends_all_waiters_away(), [TRYAGAIN; 2]);
        assert!(moved.elapsed() < SOON, "after {:?}", moved.elapsed());
        scene.continues_on(cluster.node(1));
    }
}

/// Redis has the new owner call the old one, Valkey the other way round: either way it takes its time.
fn slowed(cluster: &Cluster) -> [Proxy; 2] {
    let proxies = [cluster.put_proxy_before(0), cluster.put_proxy_before(1)];
    proxies.iter().for_each(|proxy| proxy.slow(Duration::from_millis(100)));
    proxies
}

/// A slot of node 0 on its way to node 1.
fn on_its_way(cluster: &Cluster) -> (SlotMove, Scene, [Proxy; 2]) {
    let slot = cluster.slot_of(0);
    let scene = Scene::on(cluster.node(0), &slot.key(""));
    let slow = slowed(cluster);
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.begin_at_once(cluster);
    step.wait_until_both_are_at_it(cluster);
    (step, scene, slow)
}

#[test]
fn locks_continue_where_they_are_when_a_move_at_once_is_cancelled() {
    if lacks_moves_at_once() {
        return;
    }
    let cluster = Cluster::of(2, 0);
    let (step, mut scene, _slow) = on_its_way(&cluster);
    scene.goes_on(cluster.node(0));
    step.cancel_at_once(&cluster);
    scene.all_wait(cluster.node(0));
    scene.goes_on(cluster.node(0));
    scene.hands_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_continue_where_they_are_when_the_node_dies_that_was_to_have_them_at_once() {
    if lacks_moves_at_once() {
        return;
    }
    let mut cluster = Cluster::of(3, 0);
    let (_step, mut scene, _slow) = on_its_way(&cluster);
    cluster.node_mut(1).kill();
    scene.all_wait(cluster.node(0));
    scene.goes_on(cluster.node(0));
    scene.hands_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_continue_on_the_replica_when_the_node_dies_that_gives_them_away_at_once() {
    if lacks_moves_at_once() {
        return;
    }
    let mut cluster = Cluster::of(3, 1);
    let (_step, mut scene, _slow) = on_its_way(&cluster);
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    cluster.node_mut(0).kill();
    scene.sends_all_waiters_away();
    wait_until_it_is(cluster.node(3), "master");
    cluster.wait_until_ok();
    scene.continues_on(cluster.node(3));
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
    eventually("nearly all are evicted", || match client.counter("evictions_pending") {
        1_800.. => Ok(()),
        pending => Err(pending),
    });
    client.cmd("CONFIG SET maxmemory 0");
    SlotMove { slot: slot.number, from: 0, to: 1 }.at_once(&cluster);
    let mut client = cluster.node(1).client();
    let lost =
        keys.iter().zip(fences).filter(|(key, fence)| client.check(key, "alice") != Some(*fence));
    assert_eq!(lost.count(), 0);
}
