//! A slot is on its way by hand, and does not arrive: the move is cancelled, or a node dies.

use super::scene::Scene;
use super::{LONG, SOON, asking, fence};
use redis::Value;
use std::time::Duration;
use testkit::{Cluster, SlotMove, Stopwatch, int, wait_until_in_sync, wait_until_it_is};

fn on_its_way(cluster: &Cluster) -> (SlotMove, Scene) {
    let slot = cluster.slot_of(0);
    let scene = Scene::on(cluster.node(0), &slot.key(""));
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.import(cluster);
    step.migrate(cluster);
    (step, scene)
}

/// A free lock is asked for where its slot goes to: granted there, and released.
fn is_granted_at_the_other_end(scene: &mut Scene, cluster: &Cluster) {
    let (mut to, key) = (cluster.node(1).client(), scene.key("free"));
    let granted = asking(&mut to, &format!("LOCK.ACQUIRE {key} zoe {LONG}"));
    assert!(scene.told(fence(&granted)));
    assert_eq!(asking(&mut to, &format!("LOCK.RELEASE {key} zoe")), int(1));
}

#[test]
fn locks_continue_where_they_are_when_a_move_is_cancelled() {
    let cluster = Cluster::of(2, 0);
    let (step, mut scene) = on_its_way(&cluster);
    is_granted_at_the_other_end(&mut scene, &cluster);
    step.cancel(&cluster);
    scene.all_wait(cluster.node(0));
    scene.goes_on(cluster.node(0));
    scene.hands_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_that_have_moved_come_back_when_a_move_is_cancelled() {
    let cluster = Cluster::of(2, 0);
    let (step, scene) = on_its_way(&cluster);
    let mut scene = scene.by_clocks_that_differ_by(Duration::ZERO);
    is_granted_at_the_other_end(&mut scene, &cluster);
    step.move_keys(&cluster);
    scene.sends_all_waiters_away();
    step.cancel(&cluster);
    scene.goes_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_continue_where_they_are_when_the_other_end_dies() {
    let mut cluster = Cluster::of(3, 0);
    let (step, mut scene) = on_its_way(&cluster);
    is_granted_at_the_other_end(&mut scene, &cluster);
    cluster.node_mut(1).kill();
    // Those whose key is still here have not noticed anything.
    scene.all_wait(cluster.node(0));
    step.close(&cluster, 0);
    scene.goes_on(cluster.node(0));
    scene.hands_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}

#[test]
fn locks_continue_on_the_replica_when_the_node_that_sends_them_dies() {
    let mut cluster = Cluster::of(3, 1);
    let (step, mut scene) = on_its_way(&cluster);
    is_granted_at_the_other_end(&mut scene, &cluster);
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    cluster.node_mut(0).kill();
    scene.sends_all_waiters_away();
    wait_until_it_is(cluster.node(3), "master");
    // What was to move is for somebody to decide, also where it was to go to.
    [3, 1].into_iter().for_each(|node| step.close(&cluster, node));
    cluster.wait_until_ok();
    scene.continues_on(cluster.node(3));
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
    assert!(matches!(&down, Value::ServerError(told) if told.code() == "CLUSTERDOWN"), "{down:?}");
    cluster.node_mut(1).start_again();
    cluster.node_mut(2).start_again();
    cluster.wait_until_ok();
    scene.goes_on(cluster.node(0));
    scene.continues_on(cluster.node(0));
}
