//! Clients who keep a server busy with locks, and note what they are told: they take them and wait for them, extend and
//! release them, and let some run out.

use super::book::{Grant, Release, Span, lease, now};
use redis::Value;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;
use testkit::{Client, Seed, Server, eventually};

/// Those that everybody wants.
const LOCKS: [&str; 4] = ["a", "b", "c", "d"];

const HOUR: u64 = 3_600_000;
const SHORT: u64 = 20;

/// The end of the connection, which ends the work.
struct Lost;

pub(super) struct Worker<'o> {
    client: Client,
    seed: Seed,
    /// What its owners' names begin with.
    name: String,
    over: &'o AtomicBool,
    grants: Vec<Grant>,
}

/// Ends when it is dropped, also by a test that fails.
pub(super) struct Work<'scope> {
    workers: Vec<ScopedJoinHandle<'scope, Vec<Grant>>>,
    over: &'scope AtomicBool,
}

/// Has so many clients work until it is over, or the server is gone.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    server: &Server,
    count: usize,
    seed: &mut Seed,
    over: &'scope AtomicBool,
) -> Work<'scope> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, SeqCst);
    let worker = |number| Worker {
        client: server.client(),
        seed: seed.fork(),
        name: format!("r{run}-w{number}"),
        over,
        grants: Vec::new(),
    };
    // All are connected before the first begins.
    let workers: Vec<_> = (0..count).map(worker).collect();
    let spawn = |worker: Worker<'scope>| scope.spawn(move || worker.run());
    Work { workers: workers.into_iter().map(spawn).collect(), over }
}

impl Work<'_> {
    /// One of them was surprised.
    pub(super) fn has_failed(&self) -> bool {
        self.workers.iter().any(ScopedJoinHandle::is_finished)
    }

    /// All that they were told.
    pub(super) fn finish(mut self) -> Vec<Grant> {
        self.over.store(true, SeqCst);
        let workers = mem::take(&mut self.workers);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

/// Everybody lets go of what everybody wants, so that the next run begins with free locks.
pub(super) fn let_go(client: &mut Client) {
    for lock in LOCKS {
        let held = eventually("its holder can let go", || match client.info(lock) {
            // About to run out.
            Some(info) if info.ttl < 1_000 => Err(info),
            other => Ok(other),
        });
        let Some(info) = held else { continue };
        let (owner, fence) = (String::from_utf8(info.owner).unwrap(), info.fence);
        // As would one that never heard of its grant, and asks again.
        assert_eq!(client.acquire(lock, &owner, 1), Some(fence));
        assert!(client.release(lock, &owner));
    }
}

impl Worker<'_> {
    fn run(mut self) -> Vec<Grant> {
        for request in 0.. {
            if self.over.load(SeqCst) || self.one_lock(request).is_err() {
                break;
            }
        }
        self.grants
    }

    fn one_lock(&mut self, request: usize) -> Result<(), Lost> {
        let owner = format!("{}-{request}", self.name);
        // Some it keeps, and nobody else wants those.
        let keeps = self.seed.below(8) == 0;
        let lock = match keeps {
            true => format!("kept-{owner}"),
            false => (*self.seed.pick(&LOCKS)).to_owned(),
        };
        let ttl = *self.seed.pick(&[SHORT, HOUR, HOUR, HOUR, HOUR, HOUR, 2 * HOUR, 2 * HOUR]);
        let wait = *self.seed.pick(&["", " BLOCK 0", " BLOCK 5"]);
        let (span, reply) = self.cmd(&format!("LOCK.ACQUIRE {lock} {owner} {ttl}{wait}"));
        let fence = match reply {
            Ok(Value::Nil) => return Ok(()),
            Ok(Value::Int(fence)) => Some(fence.try_into().unwrap()),
            Ok(other) => panic!("LOCK.ACQUIRE {lock} {owner}: {other:?}"),
            Err(Lost) => None,
        };
        let (ends, release) = (vec![lease(span, ttl)], Release::NotAsked);
        let mut grant = Grant { lock, owner, fence, span, ends, answered: 0, release };
        let outcome = if fence.is_some() { self.hold(&mut grant, keeps) } else { Err(Lost) };
        self.grants.push(grant);
        outcome
    }

    fn hold(&mut self, grant: &mut Grant, keeps: bool) -> Result<(), Lost> {
        thread::sleep(Duration::from_micros(self.seed.below(300) as u64));
        let Grant { lock, owner, .. } = &*grant;
        let (lock, owner) = (lock.clone(), owner.clone());
        if self.seed.below(4) == 0 {
            let ttl = *self.seed.pick(&[SHORT, HOUR, 3 * HOUR, 3 * HOUR]);
            let (span, reply) = self.cmd(&format!("LOCK.EXTEND {lock} {owner} {ttl}"));
            match reply {
                Ok(Value::Int(1)) => {
                    grant.answered = grant.ends.len();
                    grant.ends.push(lease(span, ttl));
                }
                Ok(Value::Int(0)) => assert_over(grant),
                Ok(other) => panic!("LOCK.EXTEND {lock} {owner}: {other:?}"),
                Err(Lost) => {
                    grant.ends.push(lease(span, ttl));
                    return Err(Lost);
                }
            }
        }
        let is_short = grant.may_be_over(now() / 1_000 + 1_000);
        if keeps || is_short && self.seed.below(2) == 0 {
            return Ok(());
        }
        let proof = match (self.seed.below(2), grant.fence) {
            (0, Some(fence)) => format!(" {fence}"),
            _ => String::new(),
        };
        let (_, reply) = self.cmd(&format!("LOCK.RELEASE {lock} {owner}{proof}"));
        match reply {
            Ok(Value::Int(released @ 0..=1)) => {
                if released == 0 {
                    assert_over(grant);
                }
                grant.release = Release::Answered;
            }
            Ok(other) => panic!("LOCK.RELEASE {lock} {owner}: {other:?}"),
            Err(Lost) => {
                grant.release = Release::Asked;
                return Err(Lost);
            }
        }
        Ok(())
    }

    fn cmd(&mut self, command: &str) -> (Span, Result<Value, Lost>) {
        let asked = now();
        let reply = self.client.try_cmd(command).map_err(|error| {
            assert!(!error.is_timeout(), "{command} was never answered");
            Lost
        });
        (Span { asked, told: now() }, reply)
    }
}

#[track_caller]
fn assert_over(grant: &Grant) {
    assert!(grant.may_be_over(now() / 1_000), "it was taken away: {grant:?}");
}
