//! Another server takes over: a replica that is promoted by hand, or in a cluster.

use super::scene::Scene;
use super::{LONG, TRYAGAIN, WITHIN_THE_MARGIN, clock_of_a_replica, two_clocks_and_replicas};
use std::time::Duration;
use testkit::{
    Clock, Cluster, PATIENCE, Proxy, Server, SlotMove, Takeover, eventually, fences_become_known,
    lacks, lacks_settings, misplaces_clients, wait_until_in_sync, wait_until_it_is,
};

/// A primary and its replica, whose clock is behind; the link between the two can be cut.
fn behind_a_link(primary: Server) -> (Server, Proxy, Server) {
    let behind = clock_of_a_replica();
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().tcp().clock(&behind).replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    (primary, proxy, replica)
}

#[test]
fn locks_continue_on_a_replica_that_is_promoted_without_the_last_grants() {
    let (primary, proxy, replica) = behind_a_link(Server::builder().tcp().start());
    let mut scene = Scene::on(&primary, "");
    wait_until_in_sync(&primary, &replica);
    proxy.cut();
    scene.goes_on_unheard(&primary);
    replica.promote();
    scene.continues_on(&replica);
    primary.follow(&replica);
    scene.sends_all_waiters_away();
    wait_until_in_sync(&replica, &primary);
}

/// The fences of a grant that the replica never heard of, and of the next one after the replica was promoted.
fn over_an_unheard_grant(primary: &Server, proxy: &Proxy, replica: &Server) -> (u64, u64) {
    proxy.cut();
    let first = primary.client().grant("k", "alice", LONG);
    replica.promote();
    (first, replica.client().grant("k", "bob", LONG))
}

/// The data that a replica is sent says nothing of the fence clock of a primary that has just started. The first grant tells
/// it, if it is there then; else it is told when it joins.
#[test]
fn an_unheard_grant_after_the_first_of_a_primary_is_followed_by_a_larger_fence() {
    if misplaces_clients() {
        return;
    }
    for joins_later in [true, false] {
        let primary = Server::builder().tcp().start();
        let grant_and_release = |primary: &Server| {
            let mut client = primary.client();
            client.grant("used", "alice", LONG);
            assert!(client.release("used", "alice"));
        };
        let (primary, proxy, replica) = if joins_later {
            grant_and_release(&primary);
            let (primary, proxy, replica) = behind_a_link(primary);
            fences_become_known(&primary, &replica, WITHIN_THE_MARGIN, PATIENCE)
                .expect("the replica knows");
            (primary, proxy, replica)
        } else {
            let (primary, proxy, replica) = behind_a_link(primary);
            grant_and_release(&primary);
            wait_until_in_sync(&primary, &replica);
            (primary, proxy, replica)
        };
        let (first, second) = over_an_unheard_grant(&primary, &proxy, &replica);
        assert!(second > first, "{second} is not above {first}, joins later: {joins_later}");
    }
}

/// The limit that `docs/safety.md` speaks of: no grant told the replica that the fence clock was lifted.
#[test]
fn an_unheard_first_grant_right_after_a_start_is_followed_by_a_smaller_fence_on_a_clock_behind() {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(Duration::from_secs(300));
    let setup = || Server::builder().tcp().module_args("fence-margin 600000");
    let primary = setup().start();
    let proxy = Proxy::to(primary.port());
    let replica = setup().clock(&behind).replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    let (first, second) = over_an_unheard_grant(&primary, &proxy, &replica);
    assert!(second < first, "the documented limit is gone: {first} was followed by {second}");
}

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
    if lacks_settings() || misplaces_clients() {
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
