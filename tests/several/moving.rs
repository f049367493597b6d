//! Replicas, files, clusters.

use super::{LONG, asks, behind, holds_all, takes, waiting, waits};
use crate::shared::Scene;
use redis::Value;
use testkit::{Cluster, SlotMove, code, eventually, int, is_older_than};

#[test]
fn in_a_cluster_locks_of_several_slots_are_refused_and_those_of_one_are_granted() {
    let cluster = Cluster::of(1, 0);
    let server = cluster.node(0);
    let mut client = server.client();
    for command in [
        asks("alice", &["{x}a", "{y}b"]),
        asks("alice", &["{x}a", "{x}b", "c"]),
        format!("{} BLOCK 0", asks("alice", &["{x}a", "{y}b"])),
        "LOCK.RELEASE {x}a alice ALSO 1 {y}b".to_owned(),
        "LOCK.EXTEND {x}a alice 5 ALSO 1 {y}b".to_owned(),
    ] {
        assert_eq!(code(client.cmd(&*command)), "CROSSSLOT", "{command}");
    }
    let keys = ["{x}a", "{x}b", "{x}"];
    let fence = takes(&mut client, "alice", &keys).unwrap();
    holds_all(&mut client, "alice", &keys, fence);
    let mut waiter = waits(server, "bob", &keys);
    assert_eq!(client.cmd("LOCK.RELEASE {x}a alice ALSO 2 {x}b {x}"), int(3));
    assert!(waiter.fence() > fence);
}

fn in_slot(cluster: &Cluster) -> (SlotMove, [String; 3]) {
    let slot = cluster.slot_of(0);
    let keys = ["a", "b", "c"].map(|name| slot.key(name));
    (SlotMove { slot: slot.number, from: 0, to: 1 }, keys)
}

fn goes_on_over(cluster: &Cluster, moves: fn(SlotMove, &Cluster)) {
    let (step, names) = in_slot(cluster);
    let keys: Vec<_> = names.iter().map(String::as_str).collect();
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    let fence = takes(&mut from, "alice", &keys).unwrap();
    let mut waiter = waits(cluster.node(0), "bob", &keys);
    moves(step, cluster);
    assert_eq!(code(waiter.reply()), "TRYAGAIN");
    assert_eq!(from.counter("waiters"), 0);
    holds_all(&mut to, "alice", &keys, fence);
    let mut waiter = waits(cluster.node(1), "bob", &keys);
    let release = format!("LOCK.RELEASE {} alice{}", keys[0], behind(&keys[1..]));
    assert_eq!(to.cmd(release), int(3));
    assert!(waiter.fence() > fence);
}

#[test]
fn whoever_waits_is_sent_on_when_the_slot_moves() {
    for moves in SlotMove::ways() {
        goes_on_over(&Cluster::of(2, 0), moves);
    }
}

#[test]
fn while_a_slot_is_on_its_way_several_locks_are_to_be_asked_for_again_and_none_is_granted_twice() {
    let cluster = Cluster::of(2, 0);
    let (step, names) = in_slot(&cluster);
    let keys: Vec<_> = names.iter().map(String::as_str).collect();
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    // One is held and two are free.
    from.grant(keys[0], "alice", LONG);
    let mut waiter = waits(cluster.node(0), "bob", &keys);
    step.import(&cluster);
    step.migrate(&cluster);
    let release = format!("LOCK.RELEASE {} alice{}", keys[0], behind(&keys[1..]));
    // Redis 6.2 sends whoever lacks one of the keys on to the other node, which has them ask again.
    let here = if is_older_than((7, 0)) { "ASK" } else { "TRYAGAIN" };
    for command in [asks("alice", &keys), release.clone()] {
        assert_eq!(code(from.cmd(&*command)), here, "{command}");
        assert_eq!(code(to.pipeline(&["ASKING", &command]).remove(1)), "TRYAGAIN", "{command}");
    }
    assert!(from.check(keys[0], "alice").is_some(), "nothing has changed");
    step.move_keys(&cluster);
    step.give(&cluster);
    assert_eq!(code(waiter.reply()), "TRYAGAIN");
    let released = eventually("the other node decides", || match to.cmd(&*release) {
        Value::Int(released) => Ok(released),
        other => Err(other),
    });
    assert_eq!(released, 1);
    let fence = takes(&mut to, "carol", &keys).unwrap();
    holds_all(&mut to, "carol", &keys, fence);
    assert_eq!(waiting(&mut to, &keys), [0, 0, 0]);
}

#[test]
fn a_grant_is_told_to_replicas_and_the_file_lock_by_lock_and_all_of_it() {
    Scene::play(
        "
        # and so are an extension, a release and a hand-off
        LOCK.ACQUIRE k alice 60000 ALSO 2 b c; LOCK.EXTEND k alice 120000 ALSO 1 b; LOCK.RELEASE c alice ALSO 1 d -> A; 1; 1
        bob: LOCK.ACQUIRE c bob 60000 ALSO 1 k BLOCK 0 -> waits
        LOCK.RELEASE k alice -> 1
        bob: -> B
        LOCK.CHECK k bob; LOCK.CHECK c bob; LOCK.CHECK b alice -> B; B; A
        ",
    );
}
