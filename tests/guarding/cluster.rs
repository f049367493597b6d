//! In a cluster the lock and what the command touches are in one slot, which may be on its way.

use super::LONG;
use redis::Value;
use testkit::{Cluster, SlotMove, code, error, eventually, int, is_older_than};

/// The names of a lock and of a number, in a slot that the first node has.
fn in_slot(cluster: &Cluster) -> (SlotMove, String, String) {
    let slot = cluster.slot_of(0);
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    (step, slot.key("lock"), slot.key("number"))
}

fn increments(lock: &str, fence: u64, number: &str) -> String {
    format!("LOCK.GUARD {lock} alice {fence} INCR {number}")
}

#[test]
fn keys_in_other_slots_are_refused_and_other_nodes_redirect() {
    let cluster = Cluster::of(2, 0);
    let (_, lock, number) = in_slot(&cluster);
    let (mut here, mut there) = (cluster.node(0).client(), cluster.node(1).client());
    let fence = here.grant(&lock, "alice", LONG);
    let elsewhere = cluster.slot_of(1).key("number");
    for command in [
        increments(&lock, fence, &elsewhere),
        format!("LOCK.GUARD {lock} alice {fence} MSET {number} 1 {elsewhere} 2"),
        format!("LOCK.GUARD {lock} alice {fence} LOCK.ACQUIRE {number} alice 5 ALSO 1 {elsewhere}"),
    ] {
        assert_eq!(code(here.cmd(&*command)), "CROSSSLOT", "{command}");
    }
    assert_eq!(code(there.cmd(increments(&lock, fence, &number))), "MOVED");
    assert_eq!(here.cmd(format!("EXISTS {number}")), int(0), "nothing was run");
    assert_eq!(here.cmd(increments(&lock, fence, &number)), int(1));
    let publish = format!("LOCK.GUARD {lock} alice {fence} PUBLISH any-channel message");
    assert_eq!(here.cmd(publish), int(0), "a command without keys needs the lock only");
}

#[test]
fn while_a_slot_is_on_its_way_it_is_run_where_all_keys_are_and_nowhere_else() {
    let cluster = Cluster::of(2, 0);
    let (step, lock, number) = in_slot(&cluster);
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    let fence = from.grant(&lock, "alice", LONG);
    step.import(&cluster);
    step.migrate(&cluster);
    let command = increments(&lock, fence, &number);
    // Redis 6.2 sends whoever lacks one of the keys on to the other node, which has them ask again.
    let lacks_one = if is_older_than((7, 0)) { "ASK" } else { "TRYAGAIN" };
    assert_eq!(code(from.cmd(&*command)), lacks_one);
    assert_eq!(code(to.pipeline(&["ASKING", &command]).remove(1)), "TRYAGAIN");
    let only_the_lock = format!("LOCK.GUARD {lock} alice {fence} INCR {lock}");
    assert_eq!(code(from.cmd(&*only_the_lock)), "ERR", "it is run: the value is no number");
    assert_eq!(code(to.pipeline(&["ASKING", &only_the_lock]).remove(1)), "NOTHOLDER");
    step.move_keys(&cluster);
    assert_eq!(code(from.cmd(&*only_the_lock)), "ASK");
    assert_eq!(code(to.pipeline(&["ASKING", &only_the_lock]).remove(1)), "ERR");
    step.give(&cluster);
    let ran = eventually("the other node runs it", || match to.cmd(&*command) {
        Value::Int(ran) => Ok(ran),
        other => Err(other),
    });
    assert_eq!(ran, 1, "it was not run before");
    assert_eq!(code(from.cmd(&*command)), "MOVED");
}

fn goes_on_over(cluster: &Cluster, moves: fn(SlotMove, &Cluster)) {
    let (step, lock, number) = in_slot(cluster);
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    let fence = from.grant(&lock, "alice", LONG);
    assert_eq!(from.cmd(increments(&lock, fence, &number)), int(1));
    moves(step, cluster);
    assert_eq!(to.cmd(increments(&lock, fence, &number)), int(2));
    assert_eq!(code(from.cmd(increments(&lock, fence, &number))), "MOVED");
    let late = increments(&lock, fence - 1, &number);
    assert_eq!(to.cmd(late), error(super::NOT_HOLDER));
}

#[test]
fn the_hold_goes_on_guarding_where_its_slot_has_gone() {
    for moves in SlotMove::ways() {
        goes_on_over(&Cluster::of(2, 0), moves);
    }
}
