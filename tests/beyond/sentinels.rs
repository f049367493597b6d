//! Sentinels promote a replica.

use super::clock_of_a_replica;
use super::scene::Scene;
use redis::Value;
use testkit::{Clock, Sentinels, lacks, strings, wait_until_in_sync};

/// All replicas have a clock that is behind, and miss what is granted last.
fn sentinels_with_a_scene() -> (Sentinels, Scene, Clock) {
    let behind = clock_of_a_replica();
    let sentinels = Sentinels::with(|index, setup| match index {
        0 => setup,
        _ => setup.clock(&behind),
    });
    let mut scene = Scene::on(sentinels.server(0), "");
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.proxy.cut();
    scene.goes_on_unheard(sentinels.server(0));
    (sentinels, scene, behind)
}

#[test]
fn locks_continue_when_sentinels_replace_a_primary_that_died() {
    let (mut sentinels, mut scene, _behind) = sentinels_with_a_scene();
    sentinels.server_mut(0).kill();
    sentinels.proxy.heal();
    scene.sends_all_waiters_away();
    let primary = sentinels.wait_for_another_primary_than(0);
    scene.continues_on(sentinels.server(primary));
}

#[test]
fn a_server_whose_configuration_a_sentinel_has_rewritten_starts_with_the_module() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let mut sentinels = Sentinels::start();
    for replica in [1, 2] {
        let set = sentinels.server(replica).cmd("CONFIG SET leasehold.max-waiters 77");
        assert_eq!(set, Value::Okay);
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    let server = sentinels.server_mut(primary);
    server.stop();
    server.start_again();
    let setting = server.cmd("CONFIG GET leasehold.max-waiters");
    assert_eq!(strings(&setting)[1], "77");
}

#[test]
fn locks_continue_when_sentinels_replace_a_primary_that_hangs() {
    let (mut sentinels, mut scene, _behind) = sentinels_with_a_scene();
    sentinels.server_mut(0).freeze();
    sentinels.proxy.heal();
    let primary = sentinels.wait_for_another_primary_than(0);
    scene.continues_on(sentinels.server(primary));
    sentinels.server_mut(0).thaw();
    scene.sends_all_waiters_away();
    sentinels.wait_until_follows(0, primary);
}

#[test]
fn locks_continue_when_sentinels_replace_a_primary_that_is_cut_off() {
    let (sentinels, mut scene, _behind) = sentinels_with_a_scene();
    let primary = sentinels.wait_for_another_primary_than(0);
    scene.continues_on(sentinels.server(primary));
    sentinels.proxy.heal();
    scene.sends_all_waiters_away();
    sentinels.wait_until_follows(0, primary);
}
