//! Quorum grants under faults: whatever happens to the servers, fences grow and no lock has two holders.
//!
//! ```text
//!   workers ──► two programs ──► proxies ──► five servers, their clocks 12 hours apart
//!                                  │            │ killed, frozen, started again with their data …
//!                                  │ slow, cut  │ … or without: only those with the fastest clock, after a quarantine
//! ```
//!
//! The driver takes all times, so that a mistake in a client's own clock cannot hide a mistake in its leases.

use super::{Scenario, slow};
use crate::adapter::Unsupported;
use crate::program::{Lease, Program, lock};
use crate::scene::{Scene, at_quorum, millis, with_module};
use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::clock::HOUR;
use testkit::{Clock, Proxy, Seed, Server, figure, misplaces_clients, short_or_long};

pub(crate) const ALL: &[Scenario] = &[slow(
    "quorum-storm",
    "fences of a quorum grow, and no lock has two holders, while servers are killed, emptied, frozen, slowed down and cut off",
    quorum_storm,
)];

const TTL: Duration = Duration::from_millis(1_000);

/// Longer than any lease. Only the servers with the fastest clock lose their data, so no lead of another clock is added.
const QUARANTINE: &str = "quarantine-ms 1200";

const LOCKS: usize = 32;

/// In a short run. Mistakes such as a quorum of one, or a fence that is not raised, show within these.
const FEW_GRANTS: usize = 300;

const LONGEST: Duration = Duration::from_secs(360);

/// Two on each lock, one of each program.
const WORKERS: usize = 2 * LOCKS;

/// Servers from this one on may lose their data.
const FASTEST: usize = 3;

/// What a request may fail with while servers are down. One that reads its file refuses: `LOADING`.
const TROUBLES: [&str; 4] = ["busy", "unreachable", "too late", "unanswered"];

/// One grant, as the driver saw it.
struct Grant {
    /// Before the request was sent.
    asked: Instant,
    /// When its answer had come.
    granted: Instant,
    /// When the last question was sent that was answered "held".
    valid_at: Instant,
    fence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Cut,
    Emptied,
    Frozen,
    Killed,
    Slow,
}

struct Servers {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    counts: BTreeMap<Fault, usize>,
    seed: Seed,
}

/// What the workers share.
struct Task {
    left: AtomicUsize,
    until: Instant,
    histories: Vec<Mutex<Vec<Grant>>>,
}

fn start(seed: Seed) -> Servers {
    let mut clocks = [Clock::new(), Clock::new(), Clock::new(), Clock::new()];
    clocks[0].step_back(7 * HOUR);
    clocks[1].step_back(2 * HOUR);
    clocks[3].step_forward(5 * HOUR);
    // A file that is rewritten while a lock is free forgets its fence: docs/redlock.md says what that means.
    let setup = || {
        let setup = with_module().config("appendonly", "yes").config("appendfsync", "always");
        setup.config("auto-aof-rewrite-percentage", "0")
    };
    let servers: Vec<_> = (0..5)
        .map(|number| match number {
            ..FASTEST => setup().clock(&clocks[number]).start(),
            _ => setup().clock(&clocks[FASTEST]).module_args(QUARANTINE).start(),
        })
        .collect();
    let proxies = servers.iter().map(|server| Proxy::to(server.port())).collect();
    // Servers map the files of their clocks, and look for the files when they start again.
    std::mem::forget(clocks);
    Servers { servers, proxies, counts: BTreeMap::new(), seed }
}

impl Servers {
    fn storm(mut self, over: &AtomicBool) -> BTreeMap<Fault, usize> {
        while !over.load(SeqCst) {
            // Once in a while there is no majority.
            let how_many = *self.seed.pick(&[1, 1, 1, 2, 2, 2, 2, 3]);
            let mut hit = Vec::new();
            while hit.len() < how_many {
                let number = self.seed.below(5);
                if hit.iter().all(|(other, _)| *other != number) {
                    let fault = self.fault_of(number);
                    self.strike(number, fault);
                    hit.push((number, fault));
                }
            }
            let longest = *self.seed.pick(&[50, 100, 200, 400, 1_200]);
            thread::sleep(random_time(&mut self.seed, longest));
            hit.into_iter().for_each(|(number, fault)| self.mend(number, fault));
            thread::sleep(random_time(&mut self.seed, 400));
        }
        self.counts
    }

    fn fault_of(&mut self, number: usize) -> Fault {
        use Fault::{Cut, Emptied, Frozen, Killed, Slow};
        let faults: &[Fault] = match number {
            FASTEST.. => &[Killed, Emptied, Frozen, Slow, Cut],
            // A server that does not learn from its file is as good as empty.
            _ if misplaces_clients() => &[Frozen, Slow, Cut],
            _ => &[Killed, Frozen, Slow, Cut],
        };
        *self.seed.pick(faults)
    }

    fn strike(&mut self, number: usize, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
        let (server, proxy) = (&mut self.servers[number], &self.proxies[number]);
        match fault {
            Fault::Killed => server.kill(),
            Fault::Emptied => {
                server.kill();
                // One or the other, by the version of the server.
                let _ = fs::remove_dir_all(server.dir().join("appendonlydir"));
                let _ = fs::remove_file(server.dir().join("appendonly.aof"));
            }
            Fault::Frozen => server.freeze(),
            Fault::Slow => proxy.slow(random_time(&mut self.seed, 150)),
            Fault::Cut => proxy.cut(),
        }
    }

    fn mend(&mut self, number: usize, fault: Fault) {
        let (server, proxy) = (&mut self.servers[number], &self.proxies[number]);
        match fault {
            Fault::Killed | Fault::Emptied => server.start_again(),
            Fault::Frozen => server.thaw(),
            Fault::Slow => proxy.slow(Duration::ZERO),
            Fault::Cut => proxy.heal(),
        }
    }
}

/// Below so many milliseconds.
fn random_time(seed: &mut Seed, end: usize) -> Duration {
    millis(seed.below(end).try_into().unwrap())
}

/// When the lease is valid for certain, asked from time to time.
struct Look<'l> {
    lease: &'l Lease,
    valid_at: Instant,
}

impl Look<'_> {
    fn is_valid(&mut self) -> bool {
        let now = Instant::now();
        let is_valid = self.lease.state().loss.is_none();
        if is_valid {
            self.valid_at = now;
        }
        is_valid
    }
}

/// Holds it in one way or another, and says when it was last known to be valid.
fn hold(lease: &Lease, is_renewed: bool, seed: &mut Seed) -> Instant {
    let begun = Instant::now();
    let mut look = Look { lease, valid_at: begun };
    match seed.below(500) {
        // Until it is over, or has been renewed more than once.
        0..=2 => {
            while look.is_valid() && begun.elapsed() < TTL + TTL / 2 {
                thread::sleep(millis(10));
            }
        }
        3..=50 => {
            thread::sleep(random_time(seed, 50));
            look.is_valid();
        }
        51..=100 => {
            // What comes of it is in how long the lease says it is valid.
            let _ = lease.begin_extend(TTL).answer();
            look.is_valid();
        }
        _ => {
            look.is_valid();
        }
    }
    match seed.below(20) {
        // The lease runs out.
        0 if !is_renewed => {}
        // The answer is not waited for.
        0 | 1 => drop(lease.begin_release()),
        // Whether it was in time does not matter here.
        _ => drop(lease.begin_release().answer()),
    }
    look.valid_at
}

fn work(program: &Program, number: usize, mut seed: Seed, task: &Task) {
    let (name, history) = (format!("lock-{}", number % LOCKS), &task.histories[number % LOCKS]);
    while task.left.load(SeqCst) > 0 && Instant::now() < task.until {
        let wanted = lock(&name).ttl(TTL);
        let (wanted, is_renewed) = match seed.below(4) {
            0 => (wanted.not_renewed(), false),
            1 | 2 => (wanted.renewed_for(2 * TTL), false),
            _ => (wanted, true),
        };
        let asked = Instant::now();
        let request = program.begin_to_try(&wanted);
        let answer = request.pending.answer();
        match answer.came {
            Ok(came) if came["held"] == true => {}
            Err(trouble) if !TROUBLES.contains(&&*trouble.kind) && trouble.code != "LOADING" => {
                panic!("{trouble:?}")
            }
            _ => {
                thread::sleep(random_time(&mut seed, 20));
                continue;
            }
        }
        let lease = request.lease();
        let valid_at = hold(&lease, is_renewed, &mut seed);
        let grant = Grant { asked, granted: answer.at, valid_at, fence: lease.fence };
        history.lock().unwrap().push(grant);
        let _ = task.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    }
}

/// Each fence is above those of all grants that had been made when it was asked for, and nobody is granted what another one
/// still counts on.
fn check(mut history: Vec<Grant>) {
    let mut fences: Vec<_> = history.iter().map(|grant| grant.fence).collect();
    fences.sort_unstable();
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "one fence twice");
    history.sort_by_key(|grant| grant.granted);
    for pair in history.windows(2) {
        let overlap = pair[0].valid_at.saturating_duration_since(pair[1].granted);
        assert!(overlap.is_zero(), "two holders for {overlap:?}");
    }
    // In the order in which the grants were made, the largest fence up to each.
    let mut largest = 0;
    let up_to: Vec<_> = history
        .iter()
        .map(|grant| {
            largest = largest.max(grant.fence);
            largest
        })
        .collect();
    for grant in &history {
        let before = history.partition_point(|earlier| earlier.granted < grant.asked);
        let above = before.checked_sub(1).map_or(0, |last| up_to[last]);
        assert!(grant.fence > above, "{} is not above {above}", grant.fence);
    }
}

/// Ends this thread as the worker ended, which had panicked.
fn panic_as(worker: Box<dyn Any + Send>) {
    if worker.is::<Unsupported>() {
        resume_unwind(worker);
    }
    let said = worker.downcast_ref::<String>().cloned().unwrap_or_default();
    panic!("a worker ended: {said}");
}

fn quorum_storm(scene: &Scene<'_>) {
    let mut seed = Seed::announced();
    let servers = start(seed.fork());
    let place = at_quorum(servers.proxies.iter().map(Proxy::port));
    let programs = [scene.open(&place), scene.open(&place)];
    let task = Task {
        left: AtomicUsize::new(short_or_long(FEW_GRANTS, 20_000)),
        until: Instant::now() + LONGEST,
        histories: (0..LOCKS).map(|_| Mutex::default()).collect(),
    };
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let (took, counts) = thread::scope(|scope| {
        let storm = scope.spawn(|| servers.storm(&over));
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (program, seed, task) = (&programs[number / LOCKS], seed.fork(), &task);
                scope.spawn(move || work(program, number, seed, task))
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        let took = begun.elapsed();
        over.store(true, SeqCst);
        let counts = storm.join();
        ended.into_iter().filter_map(Result::err).for_each(panic_as);
        (took, counts.unwrap_or_else(|storm| resume_unwind(storm)))
    });
    let mut grants = 0;
    for history in task.histories {
        let history = history.into_inner().unwrap();
        grants += history.len();
        check(history);
    }
    assert!(grants >= FEW_GRANTS, "only {grants} grants");
    let faults: Vec<_> = counts.iter().map(|(fault, n)| format!("{n} {fault:?}")).collect();
    figure(&format!(
        "quorum: {grants} grants of 5 servers with {} in {:.0} s under faults ({}): fences grew, never two holders",
        scene.client_name(),
        took.as_secs_f64(),
        faults.join(", ").to_lowercase()
    ));
}
