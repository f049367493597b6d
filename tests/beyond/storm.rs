//! Clients of a cluster fight for a few locks while its slots are shared out anew, and nothing is lost: then no lock is ever
//! held twice. Half of them are those of a library, with its own view of the slots and its own retries. The campaign has
//! slots that move to and fro, and replicas that take over.

use super::history::{Held, wrongs};
use super::real_clients::{Caller, library};
use redis::Value;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{
    Cluster, End, Rebalance, Seed, Snapshot, figure, lacks, short_or_long, until,
    wait_until_in_sync,
};

const WORKERS: usize = 8;
const LASTS: Duration = Duration::from_millis(2_500);

/// What a client notes when it was told nothing.
const CLOSED: &str = "(closed)";

/// Longer than the storm: a lock that ends otherwise than by its release was given away.
const TTL: u64 = 600_000;

struct Storm {
    locks: Vec<String>,
    over: AtomicBool,
    history: Mutex<Vec<Held>>,
}

impl Storm {
    fn work(&self, number: usize, mut caller: Caller, mut seed: Seed) {
        for request in 0.. {
            if self.over.load(SeqCst) {
                break;
            }
            let (lock, owner) = (seed.pick(&self.locks), format!("{number}-{request}"));
            let (asked, reply) =
                caller.cmd(&format!("LOCK.ACQUIRE {lock} {owner} {TTL} BLOCK 500"));
            let told = Instant::now();
            let Value::Int(fence) = reply else {
                assert_eq!(reply, Value::Nil);
                continue;
            };
            thread::sleep(Duration::from_micros(seed.below(3_000) as u64));
            let (let_go, detours) = (Instant::now(), caller.detours().len());
            let (_, reply) = caller.cmd(&format!("LOCK.RELEASE {lock} {owner}"));
            // One that was told nothing asks again, and may have been heard the first time.
            let unheard = caller.detours()[detours..].iter().any(|detour| detour == CLOSED);
            assert!(reply == Value::Int(1) || unheard, "{owner} had lost {lock}: {reply:?}");
            let (lock, fence) = (lock.clone(), fence.try_into().unwrap());
            let held = Held { lock, worker: number, fence, asked, told, let_go };
            self.history.lock().unwrap().push(held);
        }
    }
}

/// Has the locks go somewhere else again and again, as `go` does it, while everybody wants them; how many grants there were.
fn rage(cluster: &Cluster, locks: Vec<String>, mut go: impl FnMut()) -> usize {
    let mut seed = Seed::announced();
    let storm = Storm { locks, over: AtomicBool::new(false), history: Mutex::default() };
    let mut moves = 0;
    thread::scope(|scope| {
        let _end = End(&storm.over);
        let mut requests = Vec::new();
        for number in 0..WORKERS {
            let caller = if number % 2 == 0 {
                Caller::Library(Box::new(library(cluster)))
            } else {
                let client = cluster.client();
                requests.push(Arc::clone(&client.requests));
                Caller::Ours(client)
            };
            let (seed, storm) = (seed.fork(), &storm);
            scope.spawn(move || storm.work(number, caller, seed));
        }
        let begin = Instant::now();
        while begin.elapsed() < LASTS {
            go();
            moves += 1;
            wait_until_all_have_asked_again(&requests);
        }
    });
    let mut history = storm.history.into_inner().unwrap();
    println!("{} grants, {moves} moves", history.len());
    let wrong = wrongs(&mut history);
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    let workers: HashSet<_> = history.iter().map(|held| held.worker).collect();
    assert!(history.len() > 100 && workers.len() == WORKERS, "hardly anything happened");
    for node in cluster.nodes() {
        assert_eq!(node.client().counter("waiters"), 0, "everybody was answered");
    }
    history.len()
}

/// A client may still be about to follow an ASK that it was told before a slot arrived. It must not get there when the
/// slot has gone and is about to arrive again: the node would take it for a new one, and for all that any node of a
/// cluster can tell it would be right. Clients are not as slow as that, unless slots move to and fro within milliseconds.
fn wait_until_all_have_asked_again(requests: &[Arc<AtomicU64>]) {
    for (requests, before) in requests.iter().map(|requests| (requests, requests.load(SeqCst))) {
        until("the worker asks again", || requests.load(SeqCst), |now| *now > before);
    }
}

/// Names of locks whose slots are among these.
fn locks_in(slots: &BTreeSet<u16>, cluster: &Cluster, prefix: &str, count: usize) -> Vec<String> {
    let mut client = cluster.node(0).client();
    let mut is_there = |key: &String| {
        let Value::Int(slot) = client.cmd(["CLUSTER", "KEYSLOT", key]) else { panic!("no slot") };
        slots.contains(&u16::try_from(slot).unwrap())
    };
    (0..)
        .map(|number: u32| format!("{prefix}{number}"))
        .filter(|key| is_there(key))
        .take(count)
        .collect()
}

/// An operator shares out the slots anew, with the program made for it: the first of node 0 go to the other primaries, and
/// come back.
#[test]
fn while_a_cluster_is_rebalanced_no_lock_is_held_twice_or_lost_and_everybody_is_answered() {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    let Some(rebalance) = Rebalance::by_program() else { return };
    let cluster = Cluster::start();
    // What node 0 gets, of the share that each other primary gets, and how many of its slots go then at least.
    let (less, gone) = short_or_long((0.95, 150), (0.6, 1_500));
    let before = cluster.node(0).slots();
    let will_go: BTreeSet<_> = before.iter().copied().take(gone).collect();
    let kept = locks_in(&will_go, &cluster, "kept", 100);
    let mut client = cluster.client();
    let fences: Vec<_> =
        kept.iter().map(|key| client.cmd(format!("LOCK.ACQUIRE {key} alice {TTL}"))).collect();
    let (mut moved, mut weights) = (0, [less, 1.0].into_iter().cycle());
    let mut owned = before.clone();
    let grants = rage(&cluster, locks_in(&will_go, &cluster, "contended", 4), || {
        for _ in 0..2 {
            rebalance.to_weight(&cluster, 0, weights.next().unwrap());
            let now = cluster.node(0).slots();
            moved += owned.symmetric_difference(&now).count();
            owned = now;
        }
    });
    let refused: u64 =
        cluster.nodes().iter().map(|node| node.client().counter("waits_refused")).sum();
    assert!(moved > gone && refused > 0, "{moved} moved, {refused} were sent away");
    for (key, fence) in kept.iter().zip(fences) {
        assert_eq!(client.cmd(format!("LOCK.CHECK {key} alice")), fence, "{key}");
    }
    let mut compared = 0;
    for index in 0..3 {
        let (primary, replica) = (cluster.node(index), cluster.node(index + 3));
        wait_until_in_sync(primary, replica);
        let truth = Snapshot::of(primary);
        compared += truth.size();
        assert_eq!(Snapshot::of(replica), truth, "of node {index}");
    }
    assert!(compared >= kept.len(), "{compared} keys");
    figure(&format!(
        "a cluster is rebalanced: {moved} slots moved while {WORKERS} clients made {grants} grants; {refused} waits were sent on"
    ));
}
