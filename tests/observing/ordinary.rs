//! Where everybody comes in time and nobody meddles, the log stays empty and the figures add up.
//!
//! Workers use locks at random, in every way that is in order: they try, wait, give up, ask again, extend,
//! release once or twice, let leases run out and never come back, lose their connections. Old clients lock the
//! same keys in their way, and the server now and then pauses or is slow. `LEASEHOLD_STRESS_SECONDS` says for how
//! long; `LEASEHOLD_SEED` repeats the chances of an earlier run, although not the timing of its threads.

use super::Figures;
use crate::waiting::{LONG, waiters};
use redis::Value;
use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Seed, Server, becomes, int};

const KEYS: [&str; 3] = ["a", "b", "c"];
const WORKERS: usize = 8;
const USUAL_SECONDS: u64 = 3;

/// What each worker counts of its own deeds, and the server must have counted too.
#[derive(Default)]
struct Told {
    fences: AtomicU64,
    releases: AtomicU64,
}

struct Worker<'s> {
    server: &'s Server,
    told: &'s Told,
    number: usize,
    seed: Seed,
    client: Client,
    /// Names nobody else has, and each only once: who lets a lease run out does not come back by that name.
    names: usize,
}

impl Worker<'_> {
    fn round(&mut self) {
        let key = *self.seed.pick(&KEYS);
        self.names += 1;
        let owner = format!("w{}-{}", self.number, self.names);
        match self.seed.below(8) {
            0 | 1 => self.tries(key, &owner, ""),
            2 | 3 => self.tries(key, &owner, " BLOCK 0"),
            4 => {
                let patience = 1 + self.seed.below(20);
                self.tries(key, &owner, &format!(" BLOCK {patience}"));
            }
            5 => self.lets_run_out(key, &owner),
            6 => self.locks_as_of_old(key, &owner),
            _ => self.loses_its_connection(key, &owner),
        }
    }

    /// The fence, if this reply is a grant.
    fn granted(&self, reply: &Value) -> Option<i64> {
        match reply {
            Value::Int(fence) if *fence > 0 => {
                self.told.fences.fetch_add(1, SeqCst);
                Some(*fence)
            }
            Value::Nil => None,
            other => panic!("neither a fence nor nil: {other:?}"),
        }
    }

    fn tries(&mut self, key: &str, owner: &str, options: &str) {
        let reply = self.client.cmd(format!("LOCK.ACQUIRE {key} {owner} {LONG}{options}"));
        if let Some(fence) = self.granted(&reply) {
            self.works(key, owner, fence);
        } else if self.seed.below(2) == 0 {
            // To be on the safe side.
            assert!(!self.client.release(key, owner));
        }
    }

    /// As the holder, and in time.
    fn works(&mut self, key: &str, owner: &str, fence: i64) {
        for _ in 0..self.seed.below(4) {
            let done = match self.seed.below(4) {
                0 => self.client.cmd(format!("LOCK.EXTEND {key} {owner} {LONG}")) == int(1),
                1 => self.client.cmd(format!("LOCK.EXTEND {key} {owner} {LONG} {fence}")) == int(1),
                2 => self.client.cmd(format!("LOCK.ACQUIRE {key} {owner} {LONG}")) == int(fence),
                _ => self.client.cmd(format!("LOCK.CHECK {key} {owner}")) == int(fence),
            };
            assert!(done, "{key} was not lost");
        }
        let release = match self.seed.below(2) {
            0 => format!("LOCK.RELEASE {key} {owner}"),
            _ => format!("LOCK.RELEASE {key} {owner} {fence}"),
        };
        assert_eq!(self.client.cmd(&*release), int(1), "{key} was not lost");
        self.told.releases.fetch_add(1, SeqCst);
        // As one does whose reply was lost, or who has a `finally` too many.
        match self.seed.below(4) {
            0 => assert_eq!(self.client.cmd(&*release), int(0)),
            1 => assert!(!self.client.extend(key, owner, LONG)),
            _ => {}
        }
    }

    /// Holds for a short while, and is not heard of again.
    fn lets_run_out(&mut self, key: &str, owner: &str) {
        let (ttl, waits) = (1 + self.seed.below(20), self.seed.pick(&["", " BLOCK 0"]));
        let longer = self.seed.below(4) == 0;
        let first = if longer { LONG } else { ttl as u64 };
        let reply = self.client.cmd(format!("LOCK.ACQUIRE {key} {owner} {first}{waits}"));
        if self.granted(&reply).is_some() && longer {
            assert!(self.client.extend(key, owner, ttl as u64), "which makes it shorter");
        }
    }

    fn locks_as_of_old(&mut self, key: &str, owner: &str) {
        let lasts = self.seed.below(2) == 0;
        let ttl = if lasts { LONG } else { 1 + self.seed.below(20) as u64 };
        let set = format!("SET {key} {owner} NX PX {ttl}");
        if self.client.cmd(set) != Value::Okay || !lasts {
            return;
        }
        if self.seed.below(2) == 0 {
            assert!(self.client.release(key, owner));
            self.told.releases.fetch_add(1, SeqCst);
        } else {
            let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then
                return redis.call('DEL', KEYS[1]) else return 0 end";
            assert_eq!(self.client.cmd(["EVAL", script, "1", key, owner]), int(1));
        }
    }

    /// While it waits, or just after.
    fn loses_its_connection(&mut self, key: &str, owner: &str) {
        let mut client = self.server.client();
        let Value::Int(id) = client.cmd("CLIENT ID") else { panic!("no id") };
        let ttl = 1 + self.seed.below(20);
        client.send(format!("LOCK.ACQUIRE {key} {owner} {ttl} BLOCK 0"));
        match self.seed.below(3) {
            0 => drop(client),
            1 => {
                // The reply, if there was one, may be on its way.
                self.client.cmd(format!("CLIENT KILL ID {id}"));
            }
            _ => {
                self.client.cmd("PING");
            }
        }
    }
}

/// What operators and the machine do, and holders need not know of.
fn disturb(server: &Server, seed: &mut Seed, is_over: &AtomicBool) {
    let mut client = server.client();
    while !is_over.load(SeqCst) {
        match seed.below(8) {
            0 => client.cmd("DEBUG SLEEP 0.02"),
            1 => client.cmd("CLIENT PAUSE 20 WRITE"),
            2 => client.cmd("LOCK.WAITERS a"),
            3 => client.cmd("LOCK.TOP"),
            4 => client.cmd("INFO everything"),
            5 => client.cmd("COPY a elsewhere REPLACE"),
            6 => client.cmd("DEL elsewhere unrelated"),
            _ => client.cmd("SCAN 0"),
        };
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn in_ordinary_use_nothing_is_noted_and_the_figures_add_up() {
    let seconds = env::var("LEASEHOLD_STRESS_SECONDS").map_or(USUAL_SECONDS, |seconds| {
        seconds.parse().expect("LEASEHOLD_STRESS_SECONDS is a number")
    });
    let mut seed = Seed::announced();
    let server = Server::builder().module_args("fence-margin 0").start();
    let (told, is_over) = (Told::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (server, told, is_over) = (&server, &told, &is_over);
                let (client, seed) = (server.client(), seed.fork());
                let mut worker = Worker { server, told, number, seed, client, names: 0 };
                worker.client.cmd(format!("SELECT {}", number % 2));
                scope.spawn(move || {
                    while !is_over.load(SeqCst) {
                        worker.round();
                    }
                })
            })
            .collect();
        let mut seed = seed.fork();
        let (server, is_over) = (&server, &is_over);
        let disturber = scope.spawn(move || disturb(server, &mut seed, is_over));
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !workers.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, SeqCst);
        for worker in workers {
            worker.join().unwrap();
        }
        disturber.join().unwrap();
    });
    let mut figures = Figures::of(&server);
    becomes("everybody has left, and the last lease has run out", (0, 0), || {
        (waiters(&server), figures.get("held"))
    });
    assert_eq!(server.cmd("LOCK.LOG -1"), Value::Array(Vec::new()));
    let mut get = |name| figures.get(name);
    for late in ["releases_late", "extends_late", "log_len", "panics_caught"] {
        assert_eq!(get(late), 0, "{late}");
    }
    let happened = "retries tries_refused waits_timed_out waits_abandoned hand_offs \
        releases_refused extends extends_refused expiries_with_waiters";
    for happened in happened.split(' ') {
        assert!(get(happened) > 0, "{happened} is 0: too little was tried");
    }
    let ended = ["waits_granted", "waits_timed_out", "waits_abandoned", "waits_refused"];
    assert_eq!(ended.map(&mut get).iter().sum::<u64>(), get("waits_started"));
    assert!(get("grants") >= told.fences.load(SeqCst));
    assert_eq!(get("releases"), told.releases.load(SeqCst));
    assert!(get("waiters_most") <= u64::try_from(2 * WORKERS).unwrap());
}
