//! Who may not move slots moves no fences: the module hears of a command before the server asks who
//! sent it.

use super::{LONG, asking, fence, pass, two_clocks};
use redis::Value;
use std::time::Duration;
use testkit::{Client, Clock, Cluster, SlotMove, Waiter, error, eventually, int, lacks_settings};

const NOAUTH: &str = "NOAUTH Authentication required.";
const NO_MARGIN: &str = "CONFIG SET leasehold.fence-margin 0";
const MARGIN: &str = "CONFIG SET leasehold.fence-margin 5000";

/// Nodes that ask for a password, and whose fences are not ahead of their clocks, as if they had
/// been up for longer than the margin.
fn guarded(primaries: usize) -> Cluster {
    let cluster = Cluster::with(primaries, 0, |_, setup| {
        setup.password("secret").module_args("fence-margin 0")
    });
    cluster.nodes().iter().for_each(|node| assert_eq!(node.cmd(MARGIN), Value::Okay));
    cluster
}

/// All that can be said of a slot to a node, with names of that node and of another one.
fn words_about(slot: u16, us: &str, other: &str) -> Vec<String> {
    let mut words = vec![
        "ASKING".to_owned(),
        format!("CLUSTER SETSLOT {slot} STABLE"),
        format!("CLUSTER ADDSLOTS {slot}"),
        format!("CLUSTER ADDSLOTSRANGE {slot} {slot}"),
        "CLUSTER ADDSLOTSRANGE 0 16383".to_owned(),
        format!("CLUSTER DELSLOTS {slot}"),
    ];
    for node in [us, other] {
        for what in ["NODE", "IMPORTING", "MIGRATING"] {
            words.push(format!("CLUSTER SETSLOT {slot} {what} {node}"));
        }
    }
    words
}

/// Says all that to node 0 of these slots; all of it is refused.
fn speak_of_slots(client: &mut Client, cluster: &Cluster, slots: [u16; 2]) {
    let names = [0, 1].map(|node| &*cluster.node(node).id);
    let words = slots.into_iter().flat_map(|slot| words_about(slot, names[0], names[1]));
    let words: Vec<_> = words.collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    for (word, reply) in words.iter().zip(client.pipeline(&words)) {
        assert!(matches!(&reply, Value::ServerError(_)), "{word}: {reply:?}");
    }
}

/// A lock in this slot of the node is granted with the time as its fence.
#[track_caller]
fn assert_fence_is_the_time(client: &mut Client, key: &str) {
    let before = client.now();
    let fence = client.grant(key, "alice", LONG);
    let after = client.now();
    let millis = i64::try_from(fence / 1_000).unwrap();
    assert!((before..=after).contains(&millis), "{before} {fence} {after}");
    assert!(client.release(key, "alice"));
}

#[track_caller]
fn assert_nobody_who_is_refused_lifts_fences(cluster: &Cluster, speaker: &mut Client) {
    let mut client = cluster.node(0).client();
    for _ in 0..30 {
        let slots = [0, 1].map(|node| cluster.slot_of(node).number);
        speak_of_slots(speaker, cluster, slots);
        assert_fence_is_the_time(&mut client, &cluster.slot_of(0).key("k"));
    }
    // The module may look again a little later.
    let end = client.now() + 500;
    while client.now() < end {
        assert_fence_is_the_time(&mut client, &cluster.slot_of(0).key("k"));
    }
    assert_eq!(client.counter("fence_ahead_us"), 0);
}

/// Nor who has no permission to move slots.
#[test]
fn who_has_not_logged_in_lifts_no_fences() {
    if lacks_settings() {
        return;
    }
    let cluster = guarded(2);
    let mut stranger = cluster.node(0).stranger();
    assert_eq!(stranger.cmd("ASKING"), error(NOAUTH));
    assert_nobody_who_is_refused_lifts_fences(&cluster, &mut stranger);
    let mut user = cluster.node(0).user("bob", "~* +@all -cluster -asking");
    assert_nobody_who_is_refused_lifts_fences(&cluster, &mut user);
}

/// What leaves a node on its way out must not find the node ahead of its clock: the margin of the
/// other is for that.
#[test]
fn who_has_not_logged_in_lifts_no_fences_of_a_node_that_gives_a_slot_away() {
    if lacks_settings() {
        return;
    }
    let cluster = guarded(2);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let mut client = cluster.node(0).client();
    client.grant(&key, "alice", LONG);
    let bob = Waiter::of(cluster.node(0), &key, "bob");
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.import(&cluster);
    step.migrate(&cluster);
    let mut stranger = cluster.node(0).stranger();
    for _ in 0..30 {
        speak_of_slots(&mut stranger, &cluster, [slot.number; 2]);
        assert_eq!(client.acquire(&key, "carol", LONG), None);
        assert_fence_is_the_time(&mut client, &cluster.slot_of(0).key("k"));
    }
    bob.assert_waits(cluster.node(0));
}

/// While the cluster is down the server does not say which slots it serves.
#[test]
fn who_has_not_logged_in_lifts_no_fences_while_the_cluster_is_down() {
    if lacks_settings() {
        return;
    }
    let mut cluster = guarded(3);
    let slots = [0, 1].map(|node| cluster.slot_of(node).number);
    let key = cluster.slot_of(0).key("k");
    cluster.node_mut(2).kill();
    cluster.node(0).wait_until("fail");
    speak_of_slots(&mut cluster.node(0).stranger(), &cluster, slots);
    cluster.node_mut(2).start_again();
    cluster.wait_until_ok();
    let mut client = cluster.node(0).client();
    for _ in 0..30 {
        assert_fence_is_the_time(&mut client, &key);
    }
}

/// A node that got a slot is ahead of its clock for as long as the margin, and no longer.
#[test]
fn a_slot_that_has_come_lifts_fences_no_more() {
    if lacks_settings() {
        return;
    }
    let cluster = Cluster::with(2, 0, |_, setup| setup.module_args("fence-margin 300"));
    let slot = cluster.slot_of(0);
    SlotMove { slot: slot.number, from: 0, to: 1 }.by_hand(&cluster);
    let mut client = cluster.node(1).client();
    let key = slot.key("k");
    let lifted = client.grant(&key, "alice", LONG) / 1_000;
    assert!(lifted > client.now().try_into().unwrap(), "the slot has come");
    assert!(client.release(&key, "alice"));
    eventually("fences are the time again", || {
        let before = client.now();
        let fence = client.grant(&key, "alice", LONG);
        let after = client.now();
        assert!(client.release(&key, "alice"));
        let millis = i64::try_from(fence / 1_000).unwrap();
        if millis <= after { Ok(()) } else { Err((before, fence, after)) }
    });
}

/// The file of the cluster says so, and no command does.
#[test]
fn fences_grow_in_a_slot_that_was_on_its_way_before_the_node_started() {
    if lacks_settings() {
        return;
    }
    let (mut cluster, _behind) = two_clocks();
    // A move that is called off lifts fences, too; here only their clocks are to differ.
    assert_eq!(cluster.node(0).cmd(NO_MARGIN), Value::Okay);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.import(&cluster);
    step.migrate(&cluster);
    cluster.node_mut(1).stop();
    // With a margin of 0, which it has at the start.
    cluster.node_mut(1).start_again();
    cluster.wait_until_ok();
    assert_eq!(cluster.node(1).cmd(MARGIN), Value::Okay);
    step.close(&cluster, 0);
    let before = cluster.node(0).client().grant(&key, "alice", LONG);
    assert!(cluster.node(0).client().release(&key, "alice"));
    step.migrate(&cluster);
    let mut to = cluster.node(1).client();
    let after = fence(&asking(&mut to, &format!("LOCK.ACQUIRE {key} bob {LONG}")));
    assert!(after > before, "{after} is not above {before}");
}

/// The server calls a move off when its other end is forgotten.
#[test]
fn fences_grow_in_a_slot_whose_move_ends_because_the_other_end_is_forgotten() {
    if lacks_settings() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(Duration::from_secs(4));
    let cluster = Cluster::with(2, 0, |index, setup| {
        let setup = setup.module_args("fence-margin 0");
        let setup = setup.config("cluster-require-full-coverage", "no");
        if index == 1 { setup.clock(&behind) } else { setup }
    });
    // Only the clock of the other one is to be ahead, and not its fences too.
    assert_eq!(cluster.node(1).cmd(MARGIN), Value::Okay);
    let slot = cluster.slot_of(1);
    let key = slot.key("k");
    let step = SlotMove { slot: slot.number, from: 1, to: 0 };
    step.import(&cluster);
    step.migrate(&cluster);
    let mut to = cluster.node(0).client();
    let before = fence(&asking(&mut to, &format!("LOCK.ACQUIRE {key} zoe {LONG}")));
    assert_eq!(asking(&mut to, &format!("LOCK.RELEASE {key} zoe")), int(1));
    let mut from = cluster.node(1).client();
    // The module has looked at what it heard of.
    pass(&mut from, 500);
    let forget = format!("CLUSTER FORGET {}", cluster.node(0).id);
    assert_eq!(from.cmd(forget), Value::Okay);
    let after = eventually("the node has the slot for itself", || {
        match from.cmd(format!("LOCK.ACQUIRE {key} bob {LONG}")) {
            Value::Int(fence) => Ok(u64::try_from(fence).unwrap()),
            other => Err(other),
        }
    });
    assert!(after > before, "{after} is not above {before}");
}
