//! Clients of a cluster fight for a few locks while these change their server again and again, and nothing is lost:
//! then no lock is ever held twice.

use super::history::{Held, wrongs};
use redis::Value;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{
    Cluster, ClusterClient, End, Seed, Slot, SlotMove, Takeover, eventually, lacks_moves_at_once,
    wait_until_in_sync, wait_until_it_is,
};

const WORKERS: usize = 8;
const LOCKS: [&str; 3] = ["a", "b", "c"];
const LASTS: Duration = Duration::from_millis(2_500);

/// What a client notes when it was told nothing.
const CLOSED: &str = "(closed)";

/// Longer than the storm: a lock that ends otherwise than by its release was given away.
const TTL: u64 = 60_000;

struct Storm<'s> {
    slot: &'s Slot,
    over: AtomicBool,
    history: Mutex<Vec<Held>>,
}

impl Storm<'_> {
    fn work(&self, number: usize, mut client: ClusterClient, mut seed: Seed) {
        for request in 0.. {
            if self.over.load(SeqCst) {
                break;
            }
            let lock = *seed.pick(&LOCKS);
            let (key, owner) = (self.slot.key(lock), format!("{number}-{request}"));
            let reply = client.cmd(format!("LOCK.ACQUIRE {key} {owner} {TTL} BLOCK 500"));
            let told = Instant::now();
            let Value::Int(fence) = reply else {
                assert_eq!(reply, Value::Nil);
                continue;
            };
            thread::sleep(Duration::from_micros(seed.below(3_000) as u64));
            let (asked, fence) = (client.asked, fence.try_into().unwrap());
            let (let_go, detours) = (Instant::now(), client.detours.len());
            let reply = client.cmd(format!("LOCK.RELEASE {key} {owner}"));
            // One that was told nothing asks again, and may have been heard the first time.
            let unheard = client.detours[detours..].iter().any(|detour| detour == CLOSED);
            assert!(reply == Value::Int(1) || unheard, "{owner} had lost {lock}: {reply:?}");
            let held = Held { lock: lock.to_owned(), worker: number, fence, asked, told, let_go };
            self.history.lock().unwrap().push(held);
        }
    }
}

/// Has the slot go somewhere else again and again, as `go` does it, while everybody wants its locks.
fn rage(cluster: &Cluster, slot: &Slot, mut go: impl FnMut()) {
    let mut seed = Seed::announced();
    let storm = Storm { slot, over: AtomicBool::new(false), history: Mutex::default() };
    let mut moves = 0;
    thread::scope(|scope| {
        let _end = End(&storm.over);
        let start = |number| {
            let (client, seed) = (cluster.client(), seed.fork());
            let (requests, storm) = (Arc::clone(&client.requests), &storm);
            scope.spawn(move || storm.work(number, client, seed));
            requests
        };
        let requests: Vec<_> = (0..WORKERS).map(start).collect();
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
}

/// A client may still be about to follow an ASK that it was told before a slot arrived. It must not get there when the
/// slot has gone and is about to arrive again: the node would take it for a new one, and for all that any node of a
/// cluster can tell it would be right. Clients are not as slow as that, unless slots move to and fro within milliseconds.
fn wait_until_all_have_asked_again(requests: &[Arc<AtomicU64>]) {
    for (requests, before) in requests.iter().map(|requests| (requests, requests.load(SeqCst))) {
        eventually("the worker asks again", || match requests.load(SeqCst) {
            now if now > before => Ok(()),
            now => Err(now),
        });
    }
}

fn rage_while_a_slot_goes_to_and_fro(go: impl Fn(&Cluster, SlotMove)) {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let mut step = SlotMove { slot: slot.number, from: 0, to: 1 };
    rage(&cluster, &slot, || {
        go(&cluster, step);
        step = step.back();
    });
}

#[test]
fn whatever_is_asked_while_a_slot_moves_by_hand_no_lock_is_held_twice() {
    rage_while_a_slot_goes_to_and_fro(|cluster, step| step.by_hand(cluster));
}

#[test]
fn whatever_is_asked_while_a_slot_moves_at_once_no_lock_is_held_twice() {
    if lacks_moves_at_once() {
        return;
    }
    rage_while_a_slot_goes_to_and_fro(|cluster, step| step.at_once(cluster));
}

#[test]
fn whatever_is_asked_while_replicas_take_over_no_lock_is_held_twice() {
    let cluster = Cluster::of(1, 3);
    // Each only once: Redis takes a second election of the same node within seconds for won before anybody has voted.
    let mut successors = [1, 2, 3].into_iter();
    let mut primary = 0;
    rage(&cluster, &cluster.slot_of(0), || match successors.next() {
        Some(successor) => {
            wait_until_in_sync(cluster.node(primary), cluster.node(successor));
            cluster.take_over(successor, Takeover::Agreed);
            wait_until_it_is(cluster.node(primary), "slave");
            primary = successor;
            thread::sleep(LASTS / 8);
        }
        None => thread::sleep(LASTS / 8),
    });
    assert_eq!(successors.next(), None, "it took too long");
}
