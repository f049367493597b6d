//! A replica takes over from a primary of a cluster.

use super::scene::Scene;
use super::{LONG, TRYAGAIN, clock_of_a_replica, two_clocks_and_replicas};
use testkit::{
    Clock, Cluster, SlotMove, Takeover, eventually, lacks, misplaces_clients, wait_until_in_sync,
    wait_until_it_is,
};

/// Node 3 is a replica of node 0, with a clock that is behind.
fn cluster_with_a_scene() -> (Cluster, Scene, Clock) {
    let behind = clock_of_a_replica();
    let cluster = Cluster::with(3, 1, |index, setup| match index {
        3 => setup.clock(&behind),
        _ => setup,
    });
    let scene = Scene::on(cluster.node(0), &cluster.slot_of(0).key(""));
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    (cluster, scene, behind)
}

#[test]
fn locks_continue_on_a_replica_that_takes_over_in_agreement() {
    let (cluster, mut scene, _behind) = cluster_with_a_scene();
    cluster.take_over(3, Takeover::Agreed);
    let told = scene.sends_all_waiters_away();
    // Most servers send them away themselves, in words of their own.
    assert!(told.iter().all(|told| told == TRYAGAIN || told.contains("force unblock")), "{told:?}");
    scene.continues_on(cluster.node(3));
    wait_until_in_sync(cluster.node(3), cluster.node(0));
}

fn continue_without_the_last_grants(how: Takeover) {
    if lacks((7, 0), "ports that are announced later") {
        return;
    }
    let (cluster, mut scene, _behind) = cluster_with_a_scene();
    let proxy = cluster.put_proxy_before(0);
    proxy.cut();
    scene.goes_on_unheard(cluster.node(0));
    cluster.take_over(3, how);
    scene.continues_on(cluster.node(3));
    scene.sends_all_waiters_away();
    wait_until_in_sync(cluster.node(3), cluster.node(0));
}

#[test]
fn locks_continue_on_a_replica_that_takes_over_by_force() {
    continue_without_the_last_grants(Takeover::Forced);
}

#[test]
fn locks_continue_on_a_replica_that_takes_over_without_asking() {
    continue_without_the_last_grants(Takeover::Unasked);
}

#[test]
fn locks_continue_on_the_replica_of_a_primary_that_died() {
    if lacks((7, 0), "ports that are announced later") {
        return;
    }
    let (mut cluster, mut scene, _behind) = cluster_with_a_scene();
    let proxy = cluster.put_proxy_before(0);
    proxy.cut();
    scene.goes_on_unheard(cluster.node(0));
    cluster.node_mut(0).kill();
    proxy.heal();
    scene.sends_all_waiters_away();
    wait_until_it_is(cluster.node(3), "master");
    cluster.wait_until_ok();
    scene.continues_on(cluster.node(3));
}

#[test]
fn fences_grow_over_a_takeover_right_after_a_slot_came() {
    if lacks((7, 0), "CONFIG SET of a module's setting") || misplaces_clients() {
        return;
    }
    let (cluster, _behind) = two_clocks_and_replicas();
    // Nothing is broadcast before the first grant.
    let (used, mut client) = (cluster.slot_of(0).key("used"), cluster.node(0).client());
    client.grant(&used, "alice", LONG);
    assert!(client.release(&used, "alice"));
    // The primary whose clock is right gets a slot, and its fence clock is lifted for that.
    let slot = cluster.slot_of(1);
    SlotMove { slot: slot.number, from: 1, to: 0 }.by_hand(&cluster);
    let (primary, replica) = (cluster.node(0), cluster.node(2));
    let ahead = primary.client().counter("fence_ahead_us");
    eventually("the replica knows how far its primary is", || {
        match replica.client().counter("fence_ahead_us") {
            known if known + 200_000 > ahead => Ok(()),
            known => Err((known, ahead)),
        }
    });
    let proxy = cluster.put_proxy_before(0);
    proxy.cut();
    let key = slot.key("k");
    let before = primary.client().grant(&key, "alice", LONG);
    cluster.take_over(2, Takeover::Forced);
    let after = replica.client().grant(&key, "bob", LONG);
    assert!(after > before, "{after} is not above {before}");
}
