//! Many tasks, many locks, and no minute in which nothing breaks.
//!
//! ```text
//!   64 tasks ──► 8 clients ──► 2 proxies: cut ──► a server: killed and started again, frozen and thawed
//!      └──► a store for each lock: which fence was the last, and whose guards there are
//! ```

use crate::scene::{LONG, Way, eventually, millis, soon, with_module, without_module};
use leasehold_client::{Error, Fence, Guard, Locks, Loss, Released, Renew, Settings};
use redis::Value;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Proxy, Seed, Server, Setup, figure, short_or_long};
use tokio::time::sleep;

const TASKS: usize = 64;
const CLIENTS: usize = 8;
const LOCKS: usize = 1_000;
/// Half of all requests are for one of these, so that there is somebody to wait for.
const WANTED: usize = 12;

/// What locks are for: it knows the last fence of its lock, and by it whether somebody overlaps.
#[derive(Default)]
struct Store {
    last: Fence,
    guards: Vec<Arc<Guard>>,
}

impl Store {
    /// Somebody writes, of whom nothing more is known than the guard.
    fn write(&mut self, guard: &Guard) {
        let is_valid = |guard: &Guard| !guard.valid_for().is_zero();
        for other in self.guards.iter().filter(|other| other.fence() != guard.fence()) {
            // In this order: whoever has a guard and is valid afterwards has been so all the time.
            let both = is_valid(other) && is_valid(guard);
            assert!(!both, "two hold it at once: {other:?} and {guard:?}");
        }
        if guard.fence() < self.last {
            assert!(!is_valid(guard), "{guard:?}, and fence {} has written", self.last);
        }
        self.last = self.last.max(guard.fence());
    }

    fn granted(&mut self, guard: &Arc<Guard>) {
        assert_ne!(guard.fence(), self.last, "a fence was given twice: {guard:?}");
        self.write(guard);
        self.guards.push(Arc::clone(guard));
    }

    fn leaves(&mut self, guard: &Arc<Guard>) {
        self.guards.retain(|other| !Arc::ptr_eq(other, guard));
    }
}

struct Field {
    stores: Vec<Mutex<Store>>,
    end: Instant,
    grants: AtomicU64,
    /// Of those, after a request that was ready to wait.
    after_a_wait: AtomicU64,
    losses: AtomicU64,
    failures: AtomicU64,
}

impl Field {
    fn new(end: Instant) -> Self {
        let stores = std::iter::repeat_with(Mutex::default).take(LOCKS).collect();
        let zero = AtomicU64::default;
        let (grants, after_a_wait, losses, failures) = (zero(), zero(), zero(), zero());
        Self { stores, end, grants, after_a_wait, losses, failures }
    }

    /// Also if another task has failed: what it complained of is to be the only complaint.
    fn store(&self, lock: usize) -> MutexGuard<'_, Store> {
        self.stores[lock].lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(&self, locks: &Locks, mut seed: Seed) {
        while Instant::now() < self.end {
            let lock = *seed.pick(&[WANTED, LOCKS]);
            let lock = seed.below(lock);
            let ttl = up_to(&mut seed, 900) + millis(100);
            let request = locks.lock(lock.to_string()).ttl(ttl);
            let request = if seed.below(4) == 0 { request.renew(Renew::Never) } else { request };
            let waits = seed.below(2) == 0;
            let asked = Instant::now();
            let guard = if waits {
                request.wait(up_to(&mut seed, 2_000)).await.map(Some)
            } else {
                request.try_now().await
            };
            match guard {
                Ok(Some(guard)) => {
                    self.grants.fetch_add(1, Relaxed);
                    let waited = waits && asked.elapsed() > millis(20);
                    self.after_a_wait.fetch_add(u64::from(waited), Relaxed);
                    self.hold(lock, guard, ttl, &mut seed).await;
                }
                Ok(None) | Err(Error::Busy { .. }) => {}
                Err(Error::Unreachable { .. } | Error::TooLate { .. }) => {
                    self.failures.fetch_add(1, Relaxed);
                }
                // It was started again a moment ago.
                Err(Error::Refused { source }) if source.code() == Some("LOADING") => {
                    self.failures.fetch_add(1, Relaxed);
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    async fn hold(&self, lock: usize, guard: Guard, ttl: Duration, seed: &mut Seed) {
        let guard = Arc::new(guard);
        self.store(lock).granted(&guard);
        // As long as a look, or as several leases.
        let longest = *seed.pick(&[millis(20), millis(20), 3 * ttl]);
        let until = Instant::now() + longest.mul_f64(seed.below(1_000) as f64 / 1_000.0);
        let mut loss = None;
        while loss.is_none() && Instant::now() < until.min(self.end) {
            tokio::select! {
                lost = guard.lost() => loss = Some(lost),
                () = sleep(up_to(seed, 20)) => {}
            }
            if loss.is_none() && seed.below(20) == 0 {
                // It may fail, and so may what follows: only what the guard says of itself counts.
                let _ = guard.extend(ttl).await;
            }
            self.store(lock).write(&guard);
        }
        if let Some(loss) = loss {
            self.losses.fetch_add(1, Relaxed);
            self.is_over(lock, &guard, loss, ttl, seed).await;
        } else if guard.valid_for().is_zero() {
            // Whoever only watches is told too.
            soon(guard.lost()).await;
        }
        self.leave(lock, guard, seed).await;
    }

    /// Nothing revives it, and nothing succeeds any more.
    async fn is_over(
        &self,
        lock: usize,
        guard: &Guard,
        loss: Loss,
        ttl: Duration,
        seed: &mut Seed,
    ) {
        assert_ne!(loss, Loss::Released);
        for _ in 0..3 {
            assert_eq!((guard.valid_for(), guard.loss()), (Duration::ZERO, Some(loss)));
            assert!(matches!(guard.extend(ttl).await, Err(Error::Lost { .. })));
            self.store(lock).write(guard);
            sleep(up_to(seed, 200)).await;
        }
    }

    async fn leave(&self, lock: usize, guard: Arc<Guard>, seed: &mut Seed) {
        let passed_on = {
            let mut store = self.store(lock);
            store.leaves(&guard);
            store.last > guard.fence()
        };
        let guard = Arc::into_inner(guard).expect("stores lend guards to nobody");
        if seed.below(5) == 0 {
            drop(guard);
        } else if let Ok(released) = guard.release().await {
            assert!(!(passed_on && released != Released::Late), "somebody else had had it by then");
        }
    }
}

fn up_to(seed: &mut Seed, millis: usize) -> Duration {
    Duration::from_micros(seed.below(millis * 1_000) as u64 + 1_000)
}

#[derive(Default)]
struct Faults {
    cuts: u32,
    restarts: u32,
    pauses: u32,
}

impl Faults {
    /// One after the other until the end; afterwards everything is whole. It blocks: servers are waited for.
    fn make(
        mut server: Server,
        proxies: &[Proxy; 2],
        end: Instant,
        mut seed: Seed,
    ) -> (Self, Server) {
        let mut faults = Self::default();
        while Instant::now() < end {
            thread::sleep(up_to(&mut seed, 400));
            let how_long = *seed.pick(&[40, 300, 1_200]);
            let how_long = up_to(&mut seed, how_long);
            match seed.below(4) {
                0 => {
                    faults.restarts += 1;
                    server.kill();
                    thread::sleep(how_long / 2);
                    server.start_again();
                }
                1 => {
                    faults.pauses += 1;
                    server.freeze();
                    thread::sleep(how_long);
                    server.thaw();
                }
                _ => {
                    faults.cuts += 1;
                    let proxy = seed.pick(proxies);
                    match seed.below(3) {
                        0 => proxy.cut_one_way(testkit::Way::ToServer),
                        1 => proxy.cut_one_way(testkit::Way::FromServer),
                        _ => proxy.cut(),
                    }
                    thread::sleep(how_long);
                    proxy.heal();
                }
            }
        }
        (faults, server)
    }
}

async fn endure(setup: Setup, kind: &str) {
    let mut seed = Seed::announced();
    // What was answered is held: without that a restart alone would make two holders.
    let setup = setup.config("appendonly", "yes").config("appendfsync", "always");
    // The users of a server that is started again are those of its file.
    let setup = setup.config("user", "worker on >secret ~* +@all resetchannels");
    let server = setup.start();
    let proxies = Arc::new([Proxy::to(server.port()), Proxy::to(server.port())]);
    // Those who wait by tickets and those who wait on connections stand in the same queues.
    let settings = || Settings {
        prefix: "lock:".into(),
        check_every: millis(400),
        retry_for: millis(500),
        ..Settings::default()
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            Way::BOTH[number / 2 % 2].locks(&server, proxies[number % 2].port(), settings())
        })
        .collect();
    let length = short_or_long(millis(4_000), LONG);
    let field = Arc::new(Field::new(Instant::now() + length));
    let (theirs, chance, end) = (Arc::clone(&proxies), seed.fork(), field.end);
    let faults = tokio::task::spawn_blocking(move || Faults::make(server, &theirs, end, chance));
    let tasks = clients.iter().cycle().take(TASKS).map(|locks| {
        let (field, locks, seed) = (Arc::clone(&field), locks.clone(), seed.fork());
        tokio::spawn(async move { field.work(&locks, seed).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        tokio::time::timeout(2 * LONG, task).await.expect("it ends").unwrap();
    }
    let (faults, server) = faults.await.unwrap();
    for locks in clients {
        // Those that could not be released stay until their leases end, which are short.
        let _ = soon(locks.close(LONG)).await;
    }
    eventually("all locks are free", || match server.cmd("KEYS lock:*") {
        Value::Array(keys) if keys.iter().all(is_a_counter) => Ok(()),
        other => Err(other),
    })
    .await;
    if !kind.starts_with("without") {
        for count in ["leasehold_waiters", "leasehold_tickets"] {
            eventually("nobody waits", || match server.client().info_field("leasehold", count) {
                Some(count) if count == "0" => Ok(()),
                other => Err(other),
            })
            .await;
        }
    }
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    let (grants, waits, losses) =
        (count(&field.grants), count(&field.after_a_wait), count(&field.losses));
    assert!(grants > 50 && waits > 5 && losses > 0, "{grants}, {waits}, {losses}");
    let Faults { cuts, restarts, pauses } = faults;
    assert!(cuts + restarts + pauses > 1, "nothing was broken");
    figure(&format!(
        "client {kind}, endurance: {TASKS} tasks, {LOCKS} locks, {} s: {grants} grants, {waits} of them after a wait, \
         {losses} guards lost, {} requests failed, {cuts} cuts, {restarts} restarts, {pauses} pauses, no overlap",
        length.as_secs(),
        count(&field.failures),
    ));
}

/// Without the module the last fence is kept beside the lock.
fn is_a_counter(key: &Value) -> bool {
    matches!(key, Value::BulkString(name) if name.ends_with(b":fence"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_guards_overlap_while_links_servers_and_processes_fail() {
    endure(with_module(), "with the module").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_guards_overlap_without_the_module_either() {
    endure(without_module(), "without the module").await;
}
