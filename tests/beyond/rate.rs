//! How often a primary that dies takes grants with it that its successor gives again: by chance, as in real life, and
//! by how far replicas are behind.

use redis::Value;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, End, Proxy, Seed, Server, figure, short_or_long, until, wait_until_in_sync};

const WORKERS: usize = 4;
const LOCKS: usize = 6;

/// Longer than a promotion by hand takes.
const TTL: Duration = Duration::from_millis(400);

/// How many grants clients have had when the primary dies, and how many they get after it. They are counted, because
/// on a loaded machine hardly a client is served in a given time, and then no lock can be given twice.
const GRANTS: usize = 120;

/// How far replicas are behind.
const LAGS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(1), LONGEST_LAG];
const LONGEST_LAG: Duration = Duration::from_millis(10);

/// How often one may have to look for a lock that is given twice, where a replica is as far behind as it ever is.
const ATTEMPTS: usize = 50;

/// What a client counted on: from when it was told until it let go, or a lease after it asked.
#[derive(Debug)]
struct Counted {
    lock: usize,
    told: Instant,
    until: Instant,
}

/// Clients that hold a few locks for a short time each, go to the replica when the primary is gone, and then count on a
/// lock that they have until its lease is over.
struct Failover<'s> {
    replica: &'s Server,
    over: AtomicBool,
    granted: AtomicUsize,
    history: Mutex<Vec<Counted>>,
}

impl Failover<'_> {
    fn work(&self, number: usize, mut client: Client, mut seed: Seed) {
        for request in 0.. {
            if self.over.load(SeqCst) {
                return;
            }
            let (lock, owner) = (seed.below(LOCKS), format!("{number}-{request}"));
            let (asked, ttl) = (Instant::now(), TTL.as_millis());
            let reply = client.try_cmd(format!("LOCK.ACQUIRE k{lock} {owner} {ttl}"));
            let told = Instant::now();
            let is_connected = if let Ok(Value::Int(_)) = reply {
                self.granted.fetch_add(1, SeqCst);
                thread::sleep(Duration::from_micros(seed.below(2_000) as u64));
                let let_go = Instant::now();
                let released = client.try_cmd(format!("LOCK.RELEASE k{lock} {owner}")).is_ok();
                let until = if released { let_go } else { asked + TTL };
                self.history.lock().unwrap().push(Counted { lock, told, until });
                released
            } else {
                reply.is_ok()
            };
            if !is_connected {
                client = self.replica.client();
            }
        }
    }

    fn wait_for_grants(&self, wanted: usize) {
        until("clients are granted locks", || self.granted.load(SeqCst), |all| *all >= wanted);
    }

    /// How many locks two clients counted on at once.
    fn held_twice(self) -> usize {
        let mut history = self.history.into_inner().unwrap();
        history.sort_by_key(|counted| counted.told);
        let is_held_twice = |lock: &usize| {
            let mut until = None;
            history.iter().filter(|counted| counted.lock == *lock).any(|counted| {
                let overlaps = until.is_some_and(|until| counted.told < until);
                until = until.max(Some(counted.until));
                overlaps
            })
        };
        (0..LOCKS).filter(is_held_twice).count()
    }
}

/// Kills a primary at work, promotes its replica, which is behind by so much, and says how many locks were held twice.
fn fail_over(seed: &mut Seed, lag: Duration, quarantine: Duration) -> usize {
    let mut primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let setup = Server::builder().module_args(&format!("quarantine-ms {}", quarantine.as_millis()));
    let replica = setup.replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    proxy.slow(lag);
    let failover = Failover {
        replica: &replica,
        over: AtomicBool::new(false),
        granted: AtomicUsize::new(0),
        history: Mutex::default(),
    };
    let chance = Duration::from_micros(seed.below(10_000) as u64);
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let (failover, client, seed) = (&failover, primary.client(), seed.fork());
            scope.spawn(move || failover.work(number, client, seed));
        }
        let _end = End(&failover.over);
        failover.wait_for_grants(GRANTS);
        thread::sleep(chance);
        primary.kill();
        replica.cmd("REPLICAOF NO ONE");
        failover.wait_for_grants(failover.granted.load(SeqCst) + GRANTS);
    });
    failover.held_twice()
}

#[test]
fn how_often_a_failover_gives_a_lock_twice_and_that_a_quarantine_prevents_it() {
    let mut seed = Seed::announced();
    let rounds = short_or_long(4, 150);
    let mut lost = 0;
    for lag in LAGS {
        let mut held_twice = |quarantine| -> Vec<usize> {
            (0..rounds).map(|_| fail_over(&mut seed, lag, quarantine)).collect()
        };
        let [plain, quarantined] = [Duration::ZERO, TTL].map(&mut held_twice);
        let failovers = plain.iter().filter(|locks| **locks > 0).count();
        let locks: usize = plain.iter().sum();
        figure(&format!(
            "failover: replica {} ms behind, {WORKERS} clients: {failovers} of {rounds} failovers gave a \
             lock twice ({locks} locks); with a quarantine 0",
            lag.as_millis()
        ));
        assert!(quarantined.iter().all(|locks| *locks == 0), "{quarantined:?}");
        lost += locks;
    }
    let is_shown =
        lost > 0 || (0..ATTEMPTS).any(|_| fail_over(&mut seed, LONGEST_LAG, Duration::ZERO) > 0);
    assert!(is_shown, "nothing was lost, so nothing was shown");
}
