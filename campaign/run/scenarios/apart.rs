//! Scenarios `behind` and `slots`: servers whose clocks differ by less than the margin. Fences grow
//! all the same.

use crate::runner::Totals;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{
    Client, Clock, Cluster, Proxy, Seed, Server, SlotMove, Waiter, fences_become_known, lacks,
    misplaces_clients, wait_until_in_sync,
};

const LONG: u64 = 60_000;

/// Less than the margin, and more than a server takes to start.
const APART: [u64; 3] = [2, 3, 4];

/// A replica that has not heard by then how far the fence clock of its primary is never will.
const NEVER: Duration = Duration::from_secs(15);

fn seconds(seed: &mut Seed) -> Duration {
    Duration::from_secs(*seed.pick(&APART))
}

/// The highest fence that anybody was told.
struct Told<'f> {
    highest: u64,
    totals: &'f mut Totals,
}

impl Told<'_> {
    fn grant(&mut self, client: &mut Client, lock: &str, when: &str) {
        let fence = client.grant(lock, "m", LONG);
        if fence <= self.highest {
            let what = format!("L2: {fence} of {lock} came after {}, {when}", self.highest);
            self.totals.wrong.push(what);
        }
        self.highest = self.highest.max(fence);
        self.totals.grants += 1;
        self.totals.operations += 2;
        // A held lock would keep its fence.
        client.release(lock, "m");
    }

    fn grants(&mut self, client: &mut Client, lock: &str, when: &str) {
        for _ in 0..3 {
            self.grant(client, lock, when);
        }
    }
}

/// A start without data, or a promotion of a replica that lacks the last grants, where the clock is
/// behind.
pub(crate) fn behind(seed: u64, length: Duration) -> Totals {
    let mut seed = Seed::of(seed);
    let mut totals = Totals::default();
    let begin = Instant::now();
    while begin.elapsed() < length && totals.wrong.is_empty() {
        let told = Told { highest: 0, totals: &mut totals };
        match seed.below(3) {
            0 => started(told, &mut seed),
            1 => promoted(told, &mut seed, true),
            _ => promoted(told, &mut seed, false),
        }
        totals.faults += 1;
    }
    totals.micros = begin.elapsed().as_micros();
    totals
}

fn started(mut told: Told<'_>, seed: &mut Seed) {
    let mut clock = Clock::new();
    // As a server that has been up for longer than the margin.
    let before = Server::builder().clock(&clock).module_args("fence-margin 0").start();
    told.grants(&mut before.client(), "k", "before the end");
    clock.step_back(seconds(seed));
    drop(before);
    let after = Server::builder().clock(&clock).start();
    told.grants(&mut after.client(), "k", "after a start without data on a clock behind");
}

/// The replica knows only the grants that it received, or, if it joined after them, what its
/// primary said of its fence clock.
fn promoted(mut told: Told<'_>, seed: &mut Seed, hears: bool) {
    let mut behind = Clock::new();
    let by = seconds(seed);
    if !misplaces_clients() {
        behind.step_back(by);
    }
    let primary = Server::builder().tcp().start();
    let mut client = primary.client();
    if !hears {
        told.grants(&mut client, "k", "before the replica joined");
    }
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().tcp().clock(&behind).replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    if hears {
        told.grants(&mut client, "k", "before");
        wait_until_in_sync(&primary, &replica);
    } else if !misplaces_clients()
        && let Err((knows, should)) = fences_become_known(&primary, &replica, by, NEVER)
    {
        let what =
            format!("L2: a replica knows {knows:?} of {should:?} of its primary's fence clock");
        return told.totals.wrong.push(what);
    }
    proxy.cut();
    told.grants(&mut client, "k", "unheard");
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    told.grants(&mut replica.client(), "k", "after a promotion without the last grants");
}

/// A slot goes to a node whose clock is behind. Clients that wait at the former node are sent away,
/// and are granted nothing.
pub(crate) fn slots(seed: u64, length: Duration) -> Totals {
    let mut seed = Seed::of(seed);
    let mut totals = Totals::default();
    let begin = Instant::now();
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return totals;
    }
    let mut behind = Clock::new();
    behind.step_back(seconds(&mut seed));
    // As if the nodes had been up for longer than the margin.
    let cluster = Cluster::with(2, 0, |index, setup| {
        let setup = setup.module_args("fence-margin 0");
        if index == 1 { setup.clock(&behind) } else { setup }
    });
    for node in cluster.nodes() {
        assert_eq!(node.cmd("CONFIG SET leasehold.fence-margin 15000"), Value::Okay);
    }
    if let Err(what) = strangers_lift_nothing(&cluster) {
        totals.wrong.push(what);
    }
    totals.faults += 1;
    while begin.elapsed() < length && totals.wrong.is_empty() {
        let slot = cluster.slot_of(0);
        let (key, free) = (slot.key("held"), slot.key("free"));
        let step = SlotMove { slot: slot.number, from: 0, to: 1 };
        let mut client = cluster.node(0).client();
        let mut told = Told { highest: 0, totals: &mut totals };
        let held = client.grant(&key, "m", LONG);
        let mut waiter = Waiter::of(cluster.node(0), &key, "w");
        told.grants(&mut client, &free, "where the slot was");
        if seed.below(2) == 0 {
            step.by_hand(&cluster);
        } else {
            without_a_word(step, &cluster);
        }
        told.grants(&mut cluster.node(1).client(), &free, "where the slot has gone");
        if let Value::Int(fence) = waiter.reply() {
            let what = format!(
                "L1: {key} is held with {held} where it has gone, and {fence} was granted where it was"
            );
            totals.wrong.push(what);
        }
        totals.faults += 1;
    }
    totals.micros = begin.elapsed().as_micros();
    totals
}

/// Commands that move slots lift the fence clock of a node by the margin. From a client that has
/// not logged in they are refused, and must lift nothing: a node that was ahead of its clock when a
/// slot leaves it would use up the margin of the node that gets the slot.
fn strangers_lift_nothing(cluster: &Cluster) -> Result<(), String> {
    let node = cluster.node(0);
    let slot = cluster.slot_of(0).number;
    let mut client = node.client();
    let mut fence_ahead = || Duration::from_micros(client.counter("fence_ahead_us"));
    let before = fence_ahead();
    let mut asks = node.client();
    assert_eq!(asks.cmd("CONFIG SET requirepass secret"), Value::Okay);
    let mut stranger = node.stranger();
    let us = &node.id;
    let refused = [
        "ASKING".to_owned(),
        format!("CLUSTER SETSLOT {slot} STABLE"),
        format!("CLUSTER SETSLOT {slot} NODE {us}"),
        format!("CLUSTER ADDSLOTS {slot}"),
    ];
    let mut wrong = Ok(());
    for command in refused {
        let reply = stranger.cmd(&*command);
        assert!(matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
        let after = fence_ahead();
        if after > before {
            wrong = Err(format!(
                "L2: {command} of one who has not logged in put the fence clock {after:?} ahead"
            ));
            break;
        }
    }
    assert_eq!(asks.cmd(["CONFIG", "SET", "requirepass", ""]), Value::Okay);
    wrong
}

/// One node takes the slot, and the other hears of that from it alone.
fn without_a_word(step: SlotMove, cluster: &Cluster) {
    step.import(cluster);
    let us = &cluster.node(step.to).id;
    let given = cluster.node(step.to).cmd(format!("CLUSTER SETSLOT {} NODE {us}", step.slot));
    assert_eq!(given, Value::Okay);
    cluster.wait_until_owned_by(step.slot, step.to);
}
