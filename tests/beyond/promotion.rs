//! A replica is made the primary by hand.

use super::scene::Scene;
use super::{LONG, WITHIN_THE_MARGIN, clock_of_a_replica};
use redis::Value;
use std::time::Duration;
use testkit::{
    Clock, PATIENCE, Proxy, Server, aof, eventually, fences_become_known, int, lacks,
    misplaces_clients, start_pair, wait_until_in_sync, wait_until_it_is,
};

#[test]
fn locks_continue_on_a_replica_that_is_promoted_without_the_last_grants() {
    let behind = clock_of_a_replica();
    let primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let setup = Server::builder().tcp().clock(&behind);
    let replica = setup.replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    let mut scene = Scene::on(&primary, "");
    wait_until_in_sync(&primary, &replica);
    proxy.cut();
    scene.goes_on_unheard(&primary);
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    scene.continues_on(&replica);
    assert_eq!(primary.cmd(format!("REPLICAOF 127.0.0.1 {}", replica.port())), Value::Okay);
    scene.sends_all_waiters_away();
    wait_until_in_sync(&replica, &primary);
}

/// A primary and its replica, whose clock is behind; the link between the two can be cut. The primary was asked for
/// a lock before, or not.
fn behind_a_link(is_used: bool) -> (Server, Proxy, Server) {
    let behind = clock_of_a_replica();
    let primary = Server::builder().tcp().start();
    if is_used {
        let mut client = primary.client();
        client.grant("used", "alice", LONG);
        assert!(client.release("used", "alice"));
    }
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().tcp().clock(&behind).replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    (primary, proxy, replica)
}

/// The fences of a grant that the replica never heard of, and of the next one after the replica was promoted.
fn over_an_unheard_grant(primary: &Server, proxy: &Proxy, replica: &Server) -> (u64, u64) {
    proxy.cut();
    let first = primary.client().grant("k", "alice", LONG);
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    (first, replica.client().grant("k", "bob", LONG))
}

/// The data that it is sent says nothing of the fence clock of a primary that has just started.
#[test]
fn a_grant_unheard_by_a_replica_that_joined_a_used_primary_is_followed_by_a_larger_fence() {
    if misplaces_clients() {
        return;
    }
    let (primary, proxy, replica) = behind_a_link(true);
    fences_become_known(&primary, &replica, WITHIN_THE_MARGIN, PATIENCE)
        .expect("the replica knows");
    let (first, second) = over_an_unheard_grant(&primary, &proxy, &replica);
    assert!(second > first, "{second} is not above {first}");
}

/// Their first grant is how the replicas of a primary learn that its fence clock was lifted when it started.
#[test]
fn an_unheard_grant_after_the_first_of_a_primary_is_followed_by_a_larger_fence() {
    if misplaces_clients() {
        return;
    }
    let (primary, proxy, replica) = behind_a_link(false);
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    assert!(client.release("k", "alice"));
    wait_until_in_sync(&primary, &replica);
    let (first, second) = over_an_unheard_grant(&primary, &proxy, &replica);
    assert!(second > first, "{second} is not above {first}");
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

#[test]
fn fences_grow_over_a_promotion_and_a_start_without_data_right_after_it() {
    let (primary, mut replica) = start_pair(Server::builder(), Server::builder());
    primary.client().grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    let mut client = replica.client();
    assert!(client.release("k", "alice"));
    let before = client.grant("k", "bob", LONG);
    replica.kill();
    // Else it might bring the lock back as soon as that starts.
    drop(primary);
    replica.start_again();
    // As a new primary would be.
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    let after = replica.client().grant("k", "carol", LONG);
    assert!(after > before, "{after} is not above {before}");
}

#[test]
fn a_broadcast_of_the_fence_clock_leaves_nothing_behind() {
    let primary = Server::builder().aof().tcp().start();
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    assert!(client.release("k", "alice"));
    let without = Server::builder().without_module().replica_of(&primary).start();
    let told = eventually("the primary broadcasts", || {
        let lines = aof::framed_lines(&primary);
        match &lines[..] {
            // Redis 6.2 puts other commands of the module into transactions too.
            [.., del, exec] if del == "DEL leasehold:fence-clock" && exec == "EXEC" => Ok(lines),
            _ => Err(lines),
        }
    });
    let [.., multi, set, _del, _exec] = &told[..] else { panic!("{told:?}") };
    assert_eq!(multi, "MULTI", "both or none: {told:?}");
    assert!(
        set.starts_with("SET leasehold:fence-clock ") && set.contains(":leasehold PXAT "),
        "{set}"
    );
    wait_until_in_sync(&primary, &without);
    for server in [&primary, &without] {
        assert_eq!(server.cmd("DBSIZE"), int(0));
    }
}

#[test]
fn locks_continue_on_a_replica_that_its_primary_hands_over_to() {
    if lacks((6, 2), "FAILOVER") {
        return;
    }
    let behind = clock_of_a_replica();
    let setup = Server::builder().tcp().clock(&behind);
    let (primary, replica) = start_pair(Server::builder(), setup);
    let mut scene = Scene::on(&primary, "");
    assert_eq!(primary.cmd("FAILOVER"), Value::Okay);
    scene.sends_all_waiters_away();
    wait_until_it_is(&replica, "master");
    scene.continues_on(&replica);
    wait_until_in_sync(&replica, &primary);
}
