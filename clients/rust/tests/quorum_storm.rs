//! Quorum grants under faults: whatever happens to the servers, fences grow and nobody holds a lock beside another.
//!
//! ```text
//!   workers ──► two clients ──► proxies ──► five servers, their clocks 12 hours apart
//!                                  │            │ killed, frozen, started again with their data …
//!                                  │ slow, cut  │ … or without: only those with the fastest clock, after a quarantine
//! ```

use crate::scene::{millis, quorum_of, with_module};
use leasehold_client::{Guard, Locks, Renew, Settings};
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::clock::HOUR;
use testkit::{Clock, Proxy, Seed, Server, figure, misplaces_clients, short_or_long};
use tokio::time::sleep;

const TTL: Duration = Duration::from_millis(1_000);

/// Longer than any lease. The clocks of those who may lose their data are the fastest, so nothing has to be added.
const QUARANTINE: &str = "quarantine-ms 1200";

const LOCKS: usize = 32;
const WORKERS: usize = 64;

/// Servers from this one on may lose their data.
const FASTEST: usize = 3;

/// One grant, as its holder saw it.
struct Grant {
    asked: Instant,
    granted: Instant,
    /// When it was last known to be valid.
    valid_at: Instant,
    fence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    Killed,
    Emptied,
    Frozen,
    Slow,
    Cut,
}

struct Servers {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    counts: HashMap<Fault, usize>,
    seed: Seed,
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
    // Servers have them mapped, and look for them when they start again.
    std::mem::forget(clocks);
    Servers { servers, proxies, counts: HashMap::new(), seed }
}

impl Servers {
    fn storm(mut self, over: &AtomicBool) -> Self {
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
            thread::sleep(millis(self.seed.below(longest) as u64));
            hit.into_iter().for_each(|(number, fault)| self.mend(number, fault));
            thread::sleep(millis(self.seed.below(400) as u64));
        }
        self
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
            Fault::Slow => proxy.slow(millis(self.seed.below(150) as u64)),
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

/// Holds it in one way or another, and says when it was last known to be valid.
async fn hold(guard: Guard, seed: &mut Seed) -> Instant {
    let mut valid_at = Instant::now();
    let mut look = |guard: &Guard| {
        let now = Instant::now();
        let valid = guard.loss().is_none();
        if valid {
            valid_at = now;
        }
        valid
    };
    match seed.below(500) {
        // Until it is over, or has been renewed more than once.
        0 => {
            let begun = Instant::now();
            while look(&guard) && begun.elapsed() < TTL + TTL / 2 {
                sleep(millis(10)).await;
            }
        }
        1..=10 => {
            sleep(millis(seed.below(50) as u64)).await;
            look(&guard);
        }
        11..=60 => {
            // What comes of it is in how long the guard says it is valid.
            let _ = guard.extend(TTL).await;
            look(&guard);
        }
        _ => {
            look(&guard);
        }
    }
    if seed.below(10) > 0 {
        // Whether it was in time does not matter here.
        let _ = guard.release().await;
    }
    valid_at
}

async fn work(
    quorum: Locks,
    number: usize,
    mut seed: Seed,
    histories: Arc<Vec<Mutex<Vec<Grant>>>>,
    left: Arc<AtomicUsize>,
) {
    let (name, history) = (format!("lock-{}", number % LOCKS), &histories[number % LOCKS]);
    while left.load(SeqCst) > 0 {
        let renew = *seed.pick(&[Renew::Never, Renew::Always]);
        let renew = if seed.below(2) == 0 { renew } else { Renew::For(2 * TTL) };
        let asked = Instant::now();
        let request = quorum.lock(name.as_str()).ttl(TTL).renew(renew);
        let Ok(Some(guard)) = request.try_now().await else {
            sleep(millis(1 + seed.below(20) as u64)).await;
            continue;
        };
        let (granted, fence) = (Instant::now(), guard.fence().into());
        let valid_at = hold(guard, &mut seed).await;
        let valid_at = valid_at.max(granted);
        history.lock().unwrap().push(Grant { asked, granted, valid_at, fence });
        let _ = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    }
}

/// Each fence is above those of all grants that had been made when it was asked for, and nobody is granted what
/// another one still counts on.
fn check(mut history: Vec<Grant>) {
    let mut fences: Vec<_> = history.iter().map(|grant| grant.fence).collect();
    fences.sort_unstable();
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "one fence twice");
    history.sort_by_key(|grant| grant.granted);
    for pair in history.windows(2) {
        let overlap = pair[0].valid_at.saturating_duration_since(pair[1].granted);
        assert!(overlap.is_zero(), "two holders for {overlap:?}");
    }
    // Those that were made, in the order of being made, and the largest fence up to each.
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

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_the_servers_fences_of_quorum_grants_grow() {
    let mut seed = Seed::announced();
    let servers = start(seed.fork());
    let ports: Vec<_> = servers.proxies.iter().map(Proxy::port).collect();
    let clients = [(); 2].map(|()| quorum_of(ports.iter().copied(), Settings::default()));
    let count = short_or_long(2_000, 100_000);
    let left = Arc::new(AtomicUsize::new(count));
    let histories: Arc<Vec<_>> = Arc::new((0..LOCKS).map(|_| Mutex::default()).collect());
    let (over, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let storm = {
        let over = Arc::clone(&over);
        tokio::task::spawn_blocking(move || servers.storm(&over))
    };
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (histories, left) = (Arc::clone(&histories), Arc::clone(&left));
            let quorum = clients[(number / LOCKS) % 2].clone();
            tokio::spawn(work(quorum, number, seed.fork(), histories, left))
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let took = begun.elapsed();
    over.store(true, SeqCst);
    let servers = storm.await.unwrap();
    let mut grants = 0;
    for history in histories.iter() {
        let history = std::mem::take(&mut *history.lock().unwrap());
        grants += history.len();
        check(history);
    }
    assert!(grants >= count);
    let mut faults: Vec<_> = servers.counts.iter().map(|(f, n)| format!("{n} {f:?}")).collect();
    faults.sort();
    let faults = faults.join(", ").to_lowercase();
    figure(&format!(
        "quorum: {grants} grants of 5 servers in {:.0} s under faults ({faults}): fences grew, never two holders",
        took.as_secs_f64()
    ));
}
