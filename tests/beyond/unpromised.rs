//! What no quarantine and no margin prevents: timelines 5, 6, 8 and 9 of `docs/verification/timelines.md`, on real servers.

use super::{LONG, WITHIN_THE_MARGIN, two_clocks};
use redis::Value;
use std::time::Instant;
use testkit::{
    Cluster, Server, SlotMove, lacks_moves_at_once, lacks_settings, start_pair, wait_until_in_sync,
};

/// As long as the longest lease here.
const REST: &str = "60000";

/// Those of the start are ended, and the next one is to come.
fn rests_from_now_on(server: &Server) {
    for millis in ["0", REST] {
        assert_eq!(server.cmd(["CONFIG", "SET", "leasehold.quarantine-ms", millis]), Value::Okay);
    }
}

fn rests(server: &Server) -> bool {
    server.client().counter("quarantine_left_us") > 0
}

#[test]
fn a_former_primary_that_goes_on_grants_a_lock_whose_lease_is_extended_at_its_successor() {
    if lacks_settings() {
        return;
    }
    let (former, successor) = start_pair(Server::builder(), Server::builder());
    rests_from_now_on(&successor);
    let alices = former.client().grant("k", "alice", 2_000);
    wait_until_in_sync(&former, &successor);
    successor.promote();
    assert!(successor.client().extend("k", "alice", LONG));
    let bobs = former.client().cmd(format!("LOCK.ACQUIRE k bob {LONG} BLOCK {LONG}"));
    assert_eq!(successor.client().check("k", "alice"), Some(alices), "alice counts on it");
    assert!(rests(&successor), "the quarantine is no shorter than the leases");
    let Value::Int(bobs) = bobs else { panic!("{bobs:?}") };
    assert!(u64::try_from(bobs).unwrap() > alices, "the store refuses alice");
}

#[test]
fn an_owner_whose_release_is_lost_is_told_of_its_former_grant_in_a_quarantine_too() {
    if lacks_settings() {
        return;
    }
    let (mut former, successor) = start_pair(Server::builder(), Server::builder());
    rests_from_now_on(&successor);
    let mut client = former.client();
    let alices = client.grant("k", "alice", LONG);
    wait_until_in_sync(&former, &successor);
    // Of what follows it does not hear.
    successor.promote();
    assert!(client.release("k", "alice"));
    let bobs = client.grant("k", "bob", LONG);
    former.kill();
    assert_eq!(successor.client().acquire("k", "alice", LONG), Some(alices));
    assert!(alices < bobs, "bob counts on a later grant");
    assert!(rests(&successor));
    assert_eq!(successor.client().acquire("k", "carol", LONG), None);
}

#[test]
fn a_slot_that_leaves_a_node_in_quarantine_leaves_the_quarantine_behind() {
    if lacks_settings() {
        return;
    }
    let mut cluster = Cluster::with(2, 0, |index, setup| {
        // The other one is to rest for other reasons only.
        if index == 0 { setup.module_args(&format!("quarantine-ms {REST}")) } else { setup }
    });
    rests_from_now_on(cluster.node(0));
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let asked = Instant::now();
    let alices = cluster.node(0).client().grant(&key, "alice", LONG);
    cluster.node_mut(0).kill();
    cluster.node_mut(0).start_again();
    cluster.wait_until_ok();
    assert_eq!(cluster.node(0).client().acquire(&key, "bob", LONG), None, "it rests");
    SlotMove { slot: slot.number, from: 0, to: 1 }.by_hand(&cluster);
    let bobs = cluster.node(1).client().grant(&key, "bob", LONG);
    assert!(rests(cluster.node(0)), "the quarantine is no shorter than the leases");
    assert!(asked.elapsed().as_millis() < u128::from(LONG), "alice counts on it");
    assert!(bobs > alices, "the store refuses alice");
}

#[test]
fn a_lease_ends_early_on_a_node_whose_clock_is_ahead_to_which_its_slot_moves_at_once() {
    if lacks_moves_at_once() {
        return;
    }
    let (cluster, _behind) = two_clocks();
    let slot = cluster.slot_of(1);
    let (at_once, by_hand) = (slot.key("at-once"), slot.key("by-hand"));
    let ttl = WITHIN_THE_MARGIN.as_millis() as u64 * 3;
    let asked = Instant::now();
    let alices = cluster.node(1).client().grant(&at_once, "alice", ttl);
    SlotMove { slot: slot.number, from: 1, to: 0 }.at_once(&cluster);
    let mut ahead = cluster.node(0).client();
    let bobs = ahead.cmd(format!("LOCK.ACQUIRE {at_once} bob {LONG} BLOCK {LONG}"));
    assert!(asked.elapsed().as_millis() < u128::from(ttl), "alice counts on it");
    let Value::Int(bobs) = bobs else { panic!("{bobs:?}") };
    assert!(u64::try_from(bobs).unwrap() > alices, "the store refuses alice");

    // Key by key what is left goes along.
    let back = SlotMove { slot: slot.number, from: 0, to: 1 };
    back.by_hand(&cluster);
    let asked = Instant::now();
    cluster.node(1).client().grant(&by_hand, "alice", ttl);
    back.back().by_hand(&cluster);
    let bobs = ahead.cmd(format!("LOCK.ACQUIRE {by_hand} bob {LONG} BLOCK {LONG}"));
    assert!(matches!(bobs, Value::Int(_)), "{bobs:?}");
    // Leases count whole milliseconds.
    assert!(asked.elapsed().as_millis() + 2 >= u128::from(ttl), "{:?}", asked.elapsed());
}
