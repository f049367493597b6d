//! Beyond one server: locks when another server takes over, and when their slot moves to another one.
//!
//! What one server promises (L1, L2, L5, L6, L7) must be true of several, as far as asynchronous replication lets it:
//! see `docs/safety.md`.

mod acknowledged;
mod both;
mod failover;
mod handover;
mod history;
mod overlap;
mod rate;
mod real_clients;
mod redirections;
mod replicas;
mod scene;
mod slots;
mod storm;
mod unannounced;
mod unheeded;
mod unpromised;

use redis::Value;
use std::time::Duration;
use testkit::{Client, Clock, Cluster, misplaces_clients, module};

const LONG: u64 = 60_000;

/// By how much a clock may be behind: less than the usual margin.
const WITHIN_THE_MARGIN: Duration = Duration::from_secs(4);

/// The clock of a replica. It is behind where replicas learn fences from what their primary does; elsewhere it has to be
/// right.
fn clock_of_a_replica() -> Clock {
    let mut clock = Clock::new();
    if !misplaces_clients() {
        clock.step_back(WITHIN_THE_MARGIN);
    }
    clock
}

/// How long a waiter may be left without an answer once its lock cannot be granted where it waits.
const SOON: Duration = Duration::from_millis(200);

/// What clients of a cluster heed by themselves.
const TRYAGAIN: &str = "TRYAGAIN this node does not grant the lock any more, ask again";

/// Two primaries that give out fences that are not ahead of their clocks, as if they had been up for longer than the margin;
/// the clock of node 1 is behind.
fn two_clocks() -> (Cluster, Clock) {
    clocks_apart(0)
}

/// The same, with a replica of each.
fn two_clocks_and_replicas() -> (Cluster, Clock) {
    clocks_apart(1)
}

fn clocks_apart(replicas: usize) -> (Cluster, Clock) {
    let mut behind = Clock::new();
    behind.step_back(WITHIN_THE_MARGIN);
    let cluster = Cluster::with(2, replicas, |index, setup| {
        let setup = setup.module_args("fence-margin 0");
        if index == 1 { setup.clock(&behind) } else { setup }
    });
    let usual = format!("CONFIG SET leasehold.fence-margin {}", module::USUAL_FENCE_MARGIN);
    for node in cluster.nodes() {
        assert_eq!(node.cmd(usual.as_str()), Value::Okay);
    }
    (cluster, behind)
}

/// Waits until the clock of this server has gone on by so much.
fn pass(client: &mut Client, millis: i64) {
    let end = client.now() + millis;
    client.wait_until_past(end - 1);
}

/// Asks as a client that was redirected with ASK.
fn asking(client: &mut Client, command: &str) -> Value {
    client.pipeline(&["ASKING", command]).pop().unwrap()
}

#[track_caller]
fn fence(reply: &Value) -> u64 {
    match reply {
        Value::Int(fence) => (*fence).try_into().unwrap(),
        other => panic!("no fence: {other:?}"),
    }
}
