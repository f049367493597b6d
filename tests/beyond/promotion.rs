//! A replica is made the primary by hand.

use super::scene::Scene;
use super::{LONG, WITHIN_THE_MARGIN, clock_of_a_replica};
use crate::support::{
    Proxy, Server, aof, eventually, fences_become_known, int, lacks, misplaces_clients, start_pair,
    wait_until_in_sync, wait_until_it_is,
};
use redis::Value;

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

/// Nothing that it replicated says how far the fence clock of a primary is that has just started.
#[test]
fn the_first_grant_of_a_new_primary_is_followed_by_a_larger_fence_though_nobody_heard_of_it() {
    if misplaces_clients() {
        return;
    }
    let behind = clock_of_a_replica();
    let primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().tcp().clock(&behind).replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    fences_become_known(&primary, &replica, WITHIN_THE_MARGIN).expect("the replica knows");
    proxy.cut();
    let first = primary.client().grant("k", "alice", LONG);
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    let second = replica.client().grant("k", "bob", LONG);
    assert!(second > first, "{second} is not above {first}");
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
fn what_a_primary_tells_of_its_fences_leaves_nothing_behind() {
    let primary = Server::builder().aof().tcp().start();
    let without = Server::builder().without_module().replica_of(&primary).start();
    let told = eventually("the primary tells", || {
        let lines = aof::framed_lines(&primary);
        if lines.last().is_some_and(|last| last == "EXEC") { Ok(lines) } else { Err(lines) }
    });
    let [.., set, del, _exec] = &told[..] else { panic!("{told:?}") };
    assert!(told.iter().any(|line| line == "MULTI"), "both or none: {told:?}");
    assert!(
        set.starts_with("SET leasehold:fence-clock ") && set.contains(":leasehold PXAT "),
        "{set}"
    );
    assert_eq!(del, "DEL leasehold:fence-clock");
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
