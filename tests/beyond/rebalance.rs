//! An operator shares out the slots of a cluster anew, with the program made for it, while clients of all kinds work.

use super::history::{Held, wrongs};
use super::real_clients::{Caller, library};
use super::scene::Scene;
use super::{LONG, SOON, TRYAGAIN};
use redis::Value;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{
    Client, Cluster, End, Rebalance, Seed, Setup, SlotMove, Snapshot, Stopwatch, Waiter, figure,
    lacks, short_or_long, wait_until_in_sync, wait_until_it_is,
};

const WORKERS: usize = 12;

/// Locks that many want, and locks that hardly anybody wants at the same time; as many of these stay as go.
const CONTENDED: usize = 4;
const OTHERS: usize = 100;

/// So that there is something to compare in the end, of so many requests one is for a lock that is not let go.
const KEEPS_ONE_IN: usize = 50;
const KEPT: u64 = 60 * LONG;

/// Locks that are held all the time, each with a waiter that is watched.
const WATCHED: usize = 8;

struct Load {
    contended: Vec<String>,
    others: Vec<String>,
    over: AtomicBool,
    history: Mutex<Vec<Held>>,
    /// How long the longest request took that was not ready to wait.
    longest_try: AtomicU64,
}

impl Load {
    fn work(&self, number: usize, mut caller: Caller, mut seed: Seed) {
        for request in 0.. {
            if self.over.load(SeqCst) {
                break;
            }
            let owner = format!("{number}-{request}");
            if request % KEEPS_ONE_IN == 0 {
                let kept = caller.cmd(&format!("LOCK.ACQUIRE kept{owner} {owner} {KEPT}")).1;
                assert!(matches!(kept, Value::Int(_)), "{kept:?}");
            }
            let contended = seed.below(4) != 0;
            let (lock, patience) = if contended {
                (seed.pick(&self.contended).clone(), " BLOCK 2000")
            } else {
                (seed.pick(&self.others).clone(), "")
            };
            let begun = Instant::now();
            let (asked, reply) =
                caller.cmd(&format!("LOCK.ACQUIRE {lock} {owner} {LONG}{patience}"));
            let told = Instant::now();
            if !contended {
                self.longest_try.fetch_max(micros(told - begun), SeqCst);
            }
            let Value::Int(fence) = reply else {
                assert_eq!(reply, Value::Nil, "{lock}");
                continue;
            };
            thread::sleep(Duration::from_micros(seed.below(2_000) as u64));
            let let_go = Instant::now();
            let (_, released) = caller.cmd(&format!("LOCK.RELEASE {lock} {owner}"));
            assert_eq!(released, Value::Int(1), "{owner} had lost {lock}");
            let fence = fence.try_into().unwrap();
            let held = Held { lock, worker: number, fence, asked, told, let_go };
            self.history.lock().unwrap().push(held);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap()
}

/// Names of locks whose slots are among these.
fn locks_in(slots: &BTreeSet<u16>, cluster: &Cluster, prefix: &str, count: usize) -> Vec<String> {
    let mut client = cluster.node(0).client();
    let names = (0..).map(|number: u32| format!("{prefix}{number}"));
    names.filter(|name| slots.contains(&slot_of(name, &mut client))).take(count).collect()
}

fn slot_of(key: &str, client: &mut Client) -> u16 {
    let Value::Int(slot) = client.cmd(["CLUSTER", "KEYSLOT", key]) else { panic!("no slot") };
    slot.try_into().unwrap()
}

/// When a waiter was told that its lock has left the node.
struct SentAway {
    /// How long after that, at most.
    at_most: Duration,
    /// How much later than somebody else who asked for it.
    after_others: Duration,
}

/// Waiters of locks that stay held, and when these left the node.
struct Watch {
    keys: Vec<String>,
    node: Client,
    since: Stopwatch,
    /// Each ends with what its waiter was told, and when.
    waiters: Vec<JoinHandle<(Instant, Value)>>,
}

impl Watch {
    fn on(cluster: &Cluster, keys: &[String], owner: usize) -> Self {
        let (node, since) = (cluster.node(owner), Stopwatch::start());
        let waiter = |key: &String| {
            let mut waiter = Waiter::of(node, key, "waiter");
            thread::spawn(move || {
                let reply = waiter.reply();
                (Instant::now(), reply)
            })
        };
        let waiters = keys.iter().map(waiter).collect();
        Self { keys: keys.to_vec(), node: node.client(), since, waiters }
    }

    /// Looks until all locks have left the node.
    fn looks_to_the_end(mut self) -> Vec<SentAway> {
        let questions: Vec<_> = self.keys.iter().map(|key| format!("GET {key}")).collect();
        let questions: Vec<_> = questions.iter().map(String::as_str).collect();
        let mut looks = vec![(None, None); self.keys.len()];
        let deadline = Instant::now() + Duration::from_secs(18);
        while looks.iter().any(|(_, gone)| gone.is_none()) {
            let looked = Instant::now();
            assert!(looked < deadline, "they stay: {looks:?}");
            let replies = self.node.pipeline(&questions);
            let told = Instant::now();
            for ((here, gone), reply) in looks.iter_mut().zip(&replies) {
                match reply {
                    Value::BulkString(_) => *here = Some(looked),
                    _ => drop(gone.get_or_insert(told)),
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        let sent_away = |(waiter, (here, gone)): (JoinHandle<(Instant, Value)>, _)| {
            let (told, reply) = waiter.join().unwrap();
            let Value::ServerError(error) = reply else { panic!("it was told {reply:?}") };
            assert!(["TRYAGAIN", "MOVED"].contains(&error.code()), "{error:?}");
            let since = |seen: Option<Instant>| self.since.between(seen.unwrap(), told);
            SentAway { at_most: since(here), after_others: since(gone) }
        };
        self.waiters.into_iter().zip(looks).map(sent_away).collect()
    }
}

/// The first slots of node 0 go to the other primaries, and come back.
#[test]
fn while_a_cluster_is_rebalanced_no_lock_is_held_twice_and_everybody_is_answered() {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    let Some(rebalance) = Rebalance::by_program() else { return };
    let cluster = Cluster::start();
    let mut seed = Seed::announced();
    // What node 0 gets, of the share that each other primary gets, and how many of its slots go then at least.
    let (less, gone) = short_or_long((0.95, 150), (0.6, 1_500));
    let mut will_go = cluster.node(0).slots();
    let first_to_stay = *will_go.iter().nth(gone).unwrap();
    let may_stay = will_go.split_off(&first_to_stay);
    // Among the first, because a waiter that is watched is given up after a while.
    let goes_first = will_go.iter().copied().take(150).collect();
    let watched = locks_in(&goes_first, &cluster, "watched", WATCHED);
    for key in &watched {
        cluster.node(0).client().grant(key, "holder", KEPT);
    }
    let load = Load {
        contended: locks_in(&will_go, &cluster, "contended", CONTENDED),
        others: [
            locks_in(&will_go, &cluster, "goes", OTHERS / 2),
            locks_in(&may_stay, &cluster, "stays", OTHERS / 2),
        ]
        .concat(),
        over: AtomicBool::new(false),
        history: Mutex::default(),
        longest_try: AtomicU64::new(0),
    };
    let (mut moved, mut sent_away) = (0, Vec::new());
    thread::scope(|scope| {
        let _end = End(&load.over);
        for number in 0..WORKERS {
            let caller = match number % 2 {
                0 => Caller::Ours(cluster.client()),
                _ => Caller::Library(Box::new(library(&cluster))),
            };
            let (seed, load) = (seed.fork(), &load);
            scope.spawn(move || load.work(number, caller, seed));
        }
        for _ in 0..short_or_long(1, 10) {
            let before = cluster.node(0).slots();
            let watch = Watch::on(&cluster, &watched, 0);
            let told = scope.spawn(|| watch.looks_to_the_end());
            rebalance.to_weight(&cluster, 0, less);
            sent_away.extend(told.join().unwrap());
            let after = cluster.node(0).slots();
            moved += before.difference(&after).count();
            rebalance.to_weight(&cluster, 0, 1.0);
            moved += cluster.node(0).slots().difference(&after).count();
        }
    });
    let mut history = load.history.into_inner().unwrap();
    let wrong = wrongs(&mut history);
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    let refused: u64 =
        cluster.nodes().iter().map(|node| node.client().counter("waits_refused")).sum();
    assert!(moved > gone && history.len() > 500, "{moved} moved, {}", history.len());
    assert!(refused > sent_away.len() as u64, "no worker was ever sent away");
    let later = sent_away.iter().map(|sent| sent.after_others).max().unwrap();
    assert!(later < SOON, "a waiter was sent away {later:?} later than others");
    for (index, node) in cluster.nodes().iter().enumerate() {
        assert_eq!(node.client().counter("waiters"), 0, "everybody of node {index} was answered");
    }
    let mut compared = 0;
    for index in 0..3 {
        let (primary, replica) = (cluster.node(index), cluster.node(index + 3));
        wait_until_in_sync(primary, replica);
        let truth = Snapshot::of(primary);
        compared += truth.size();
        assert_eq!(Snapshot::of(replica), truth, "of node {index}");
    }
    // Not for each: which slots come back, and so how many locks a node has, is up to the program.
    assert!(compared > 3 * WORKERS, "hardly anything to compare: {compared}");
    let at_most = sent_away.iter().map(|sent| sent.at_most).max().unwrap();
    figure(&format!(
        "a cluster is rebalanced: {moved} slots moved while {WORKERS} clients made {} grants; {refused} waits were sent \
         on, at most {at_most:.1?} after the lock had left; no try took longer than {:.0?}",
        history.len(),
        Duration::from_micros(load.longest_try.load(SeqCst)),
    ));
}

/// A node that has no slot left follows the one that got the last.
#[test]
fn locks_continue_when_the_last_slot_of_a_node_leaves_and_it_becomes_a_replica() {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    let partial = |_, setup: Setup| setup.config("cluster-require-full-coverage", "no");
    let cluster = Cluster::with(2, 0, partial);
    let slot = cluster.slot_of(0);
    let others = cluster.node(0).slots().into_iter().filter(|other| *other != slot.number);
    let others: Vec<_> = others.map(|other| other.to_string()).collect();
    for index in [0, 1] {
        let forgets = format!("CLUSTER DELSLOTS {}", others.join(" "));
        assert_eq!(cluster.node(index).cmd(forgets), Value::Okay);
    }
    cluster.wait_until_all_agree();
    let scene = Scene::on(cluster.node(0), &slot.key(""));
    let mut scene = scene.by_clocks_that_differ_by(Duration::ZERO);
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.import(&cluster);
    step.migrate(&cluster);
    step.move_keys(&cluster);
    let give = format!("CLUSTER SETSLOT {} NODE {}", slot.number, cluster.node(1).id);
    assert_eq!(cluster.node(1).cmd(&*give), Value::Okay);
    // Refused if it follows already, having heard of it from the other.
    cluster.node(0).cmd(&*give);
    // The module sends them away when it looks at the slot that goes, and the server itself when
    // it becomes a replica. Either may be first.
    let told = scene.sends_all_waiters_away();
    assert_eq!(told.len(), 2);
    let as_expected = |reply: &String| reply == TRYAGAIN || reply.starts_with("UNBLOCKED ");
    assert!(told.iter().all(as_expected), "{told:?}");
    wait_until_it_is(cluster.node(0), "slave");
    scene.continues_on(cluster.node(1));
    wait_until_in_sync(cluster.node(1), cluster.node(0));
    assert_eq!(Snapshot::of(cluster.node(0)), Snapshot::of(cluster.node(1)));
}
