//! Locks that the server evicts, and locks whose slot moves to another node.

use super::{bindings, binds, let_it_work, until_free};
use crate::eviction::{evict_and, tells_too_late};
use testkit::{Cluster, Server, SlotMove, Waiter, becomes, int};

#[test]
fn a_hold_that_was_evicted_ends_with_its_connection_all_the_same() {
    if tells_too_late() {
        return;
    }
    let server = Server::builder().config("maxmemory-policy", "volatile-lru").start();
    let mut client = server.client();
    for grace in [0, 20_000] {
        let mut alice = server.client();
        let id = testkit::waiter::id_of(&mut alice);
        let fence = binds(&mut alice, "k", "alice", grace);
        let kill = format!("CLIENT KILL ID {id}");
        let answers = evict_and(&mut client, &["EXISTS k", &kill]);
        assert_eq!(answers, [int(0), int(1)]);
        if grace == 0 {
            let_it_work(&mut client);
            assert_eq!((client.info("k"), client.cmd("EXISTS k")), (None, int(0)));
        } else {
            super::until_short(&mut client, "k", grace);
            assert_eq!(client.check("k", "alice"), Some(fence));
        }
    }
}

/// The slot moves to another node, where alice asks again, and back.
fn comes_back(cluster: &Cluster, moves: fn(SlotMove, &Cluster)) {
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let (here, there) = (cluster.node(0), cluster.node(1));
    let mut former = here.client();
    let fence = binds(&mut former, &key, "alice", 0);
    let mut lone = here.client();
    let lone_key = slot.key("lone");
    binds(&mut lone, &lone_key, "alice", 0);
    moves(SlotMove { slot: slot.number, from: 0, to: 1 }, cluster);
    let mut client = here.client();
    becomes("the former bindings are forgotten", 0, || bindings(&mut client));
    // The connections to the former node end: that is nothing to the new one.
    drop(lone);
    let mut client = there.client();
    let_it_work(&mut client);
    assert!(client.check(&lone_key, "alice").is_some());
    let mut present = there.client();
    assert_eq!(binds(&mut present, &key, "alice", 20_000), fence);
    let mut bob = Waiter::of(there, &lone_key, "bob");
    assert!(client.release(&lone_key, "alice"));
    bob.fence();
    moves(SlotMove { slot: slot.number, from: 1, to: 0 }, cluster);
    drop(former);
    let mut client = here.client();
    let_it_work(&mut client);
    assert_eq!(client.check(&key, "alice"), Some(fence));
    // Who asks where the lock is now is bound there.
    let mut present = here.client();
    assert_eq!(binds(&mut present, &key, "alice", 0), fence);
    drop(present);
    until_free(&mut client, &key);
}

#[test]
fn a_former_connection_means_nothing_to_a_lock_whose_slot_went_away_and_came_back() {
    for moves in SlotMove::ways() {
        comes_back(&Cluster::of(2, 0), moves);
    }
}
