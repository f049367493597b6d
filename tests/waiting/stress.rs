//! Everything at once, by chance: what was asked and told is recorded, and must have been right.
//!
//! `LEASEHOLD_STRESS_SECONDS` says for how long; `LEASEHOLD_SEED` repeats the chances of an earlier run,
//! although not the timing of its threads.

use super::history::{Event, Record, Span, check};
use super::{LONG, Waiter, can_be_unblocked, exact, rows, waiters};
use redis::Value;
use std::collections::HashMap;
use std::env;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{
    Client, Seed, Server, Snapshot, eventually, micros, start_pair, unix_micros, wait_until_in_sync,
};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const WORKERS: usize = 12;
const USUAL_SECONDS: u64 = 8;

/// How long a free lock may have a waiter, while nothing hinders a hand-off: until the timer of the server's,
/// or the next try after a pause.
const AT_ONCE_MICROS: u64 = 15_000;

struct Stress<'s> {
    server: &'s Server,
    over: AtomicBool,
    /// The connection of each worker.
    clients: [AtomicI64; WORKERS],
    /// Counts what the disturber does to each lock, and to all at once; odd while writes are paused.
    disturbed: [AtomicU64; KEYS.len()],
    pauses: AtomicU64,
    history: Mutex<Vec<Record>>,
}

/// What happened how often.
#[derive(Debug, Default)]
struct Tally {
    grants: usize,
    lost: usize,
    pauses: usize,
    looks: usize,
}

impl Stress<'_> {
    fn goes_on(&self) -> bool {
        !self.over.load(SeqCst)
    }

    fn record(&self, key: Option<&'static str>, asked: u64, event: Event) {
        let record = Record { key, span: Span { asked, told: unix_micros() }, event };
        self.history.lock().unwrap().push(record);
    }
}

#[test]
fn whatever_happens_the_recorded_history_is_right_and_all_copies_agree() {
    let seconds = env::var("LEASEHOLD_STRESS_SECONDS").map_or(USUAL_SECONDS, |seconds| {
        seconds.parse().expect("LEASEHOLD_STRESS_SECONDS is a number")
    });
    let mut seed = Seed::announced();
    let (mut primary, replica) = start_pair(exact().aof(), Server::builder());
    let stress = Stress {
        server: &primary,
        over: AtomicBool::new(false),
        clients: Default::default(),
        disturbed: Default::default(),
        pauses: AtomicU64::new(0),
        history: Mutex::default(),
    };
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let worker = Worker::new(&stress, number, seed.fork());
                scope.spawn(move || worker.run())
            })
            .collect();
        let disturber = seed.fork();
        let disturber = scope.spawn(|| disturb(&stress, disturber));
        let observer = scope.spawn(|| observe(&stress));
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !disturber.is_finished() && !observer.is_finished() {
            thread::sleep(Duration::from_millis(50));
        }
        stress.over.store(true, SeqCst);
        tally.pauses = disturber.join().unwrap();
        tally.looks = observer.join().unwrap();
        for worker in workers {
            let (grants, lost) = worker.join().unwrap();
            tally.grants += grants;
            tally.lost += lost;
        }
    });
    println!("{tally:?}");
    let Stress { history, .. } = stress;
    let wrong = check(&history.into_inner().unwrap());
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    let enough = seconds as usize;
    assert!(tally.grants > 50 * enough, "hardly anything happened: {tally:?}");
    assert!(tally.lost > 3 * enough && tally.pauses > enough / 2, "{tally:?}");
    assert_eq!(waiters(&primary), 0, "everybody was answered");
    assert_all_copies_agree(&mut primary, &replica);
}

fn assert_all_copies_agree(primary: &mut Server, replica: &Server) {
    let mut client = primary.client();
    let mut queued = Vec::new();
    for number in 0..20 {
        let key = format!("last{number}");
        client.grant(&key, "alice", 10 * LONG);
        queued.push(Waiter::sends(primary, &format!("LOCK.ACQUIRE {key} bob 600000 BLOCK 0")));
        client.release(&key, "alice");
    }
    queued.iter_mut().for_each(|waiter| {
        waiter.fence();
    });
    eventually("all shorter leases end", || match client.cmd("DBSIZE") {
        Value::Int(20) => Ok(()),
        other => Err(other),
    });
    wait_until_in_sync(primary, replica);
    let live = Snapshot::of(primary);
    assert_eq!(Snapshot::of(replica), live);
    assert_eq!(replica.cmd("DEBUG DIGEST"), primary.cmd("DEBUG DIGEST"));
    primary.kill();
    primary.start_again();
    assert_eq!(Snapshot::of(primary), live);
}

/// Asks for locks, holds them for a while or too long, lets go of them or not.
struct Worker<'s> {
    stress: &'s Stress<'s>,
    number: usize,
    seed: Seed,
    client: Client,
    requests: usize,
    grants: usize,
    lost: usize,
}

impl<'s> Worker<'s> {
    fn new(stress: &'s Stress<'s>, number: usize, seed: Seed) -> Self {
        let client = stress.server.client();
        Self { stress, number, seed, client, requests: 0, grants: 0, lost: 0 }
    }

    fn run(mut self) -> (usize, usize) {
        self.reconnect();
        while self.stress.goes_on() {
            self.requests += 1;
            let key = *self.seed.pick(&KEYS);
            let owner = format!("w{}-{}", self.number, self.requests);
            let ttl_millis = *self.seed.pick(&[5, 5, 5, 20, 100, 600]);
            let asked = unix_micros();
            // Whoever loses its connection may ask again under the same name, and be told of the grant
            // that it missed.
            let mut asked_last;
            let granted = loop {
                asked_last = unix_micros();
                match self.acquire(key, &owner, ttl_millis) {
                    Ok(fence) => break fence,
                    Err(Lost) if self.seed.below(2) == 0 => {}
                    Err(Lost) => break None,
                }
            };
            if let Some((owner, fence)) = granted {
                self.grants += 1;
                let event = Event::Granted { owner: owner.clone(), fence, ttl_millis, asked_last };
                self.stress.record(Some(key), asked, event);
                // Held by nobody who knows of it if the connection is lost now: the lease ends it.
                let _ = self.hold(key, &owner, fence, ttl_millis);
            }
        }
        (self.grants, self.lost)
    }

    fn acquire(
        &mut self,
        key: &'static str,
        owner: &str,
        ttl: u64,
    ) -> Result<Option<(String, u64)>, Lost> {
        let owner = if self.seed.below(10) == 0 { "*" } else { owner };
        let wait =
            *self.seed.pick(&["", " BLOCK 0", " BLOCK 1", " BLOCK 10", " BLOCK 100", " BLOCK 0"]);
        match self.cmd(&format!("LOCK.ACQUIRE {key} {owner} {ttl}{wait}"))? {
            Value::Nil => Ok(None),
            Value::Int(fence) => Ok(Some((owner.to_owned(), fence.try_into().unwrap()))),
            Value::Array(parts) => match &parts[..] {
                [Value::BulkString(owner), Value::Int(fence)] => {
                    let owner = String::from_utf8(owner.clone()).unwrap();
                    Ok(Some((owner, (*fence).try_into().unwrap())))
                }
                _ => panic!("{parts:?}"),
            },
            other => panic!("LOCK.ACQUIRE {key} {owner} {ttl}{wait}: {other:?}"),
        }
    }

    fn hold(&mut self, key: &'static str, owner: &str, fence: u64, ttl: u64) -> Result<(), Lost> {
        thread::sleep(Duration::from_micros(self.seed.below(4_000) as u64));
        match self.seed.below(10) {
            0 => {
                let asked = unix_micros();
                let longer = ttl + 20;
                let reply = self.cmd(&format!("LOCK.EXTEND {key} {owner} {longer} {fence}"))?;
                if reply == Value::Int(1) {
                    let event = Event::Extended { fence, ttl_millis: longer };
                    self.stress.record(Some(key), asked, event);
                }
            }
            1 => {
                let reply = self.cmd(&format!("LOCK.CHECK {key} {owner}"))?;
                let holds = Value::Int(fence.try_into().unwrap());
                assert!(reply == Value::Nil || reply == holds, "{reply:?} is not {fence}");
            }
            2 => {
                let reply = self.cmd(&format!("LOCK.RELEASE {key} nobody"))?;
                assert_eq!(reply, Value::Int(0), "released by somebody else");
            }
            // Nobody lets go of it: the lease ends it, if it is not a long one.
            3..6 if ttl < 200 => return Ok(()),
            _ => {}
        }
        let asked = unix_micros();
        let proof = if self.seed.below(2) == 0 { String::new() } else { format!(" {fence}") };
        let reply = self.cmd(&format!("LOCK.RELEASE {key} {owner}{proof}"));
        // Whether or not the reply arrived.
        self.stress.record(Some(key), asked, Event::Freed);
        reply.map(drop)
    }

    fn cmd(&mut self, command: &str) -> Result<Value, Lost> {
        self.client.try_cmd(command).map_err(|error| {
            assert!(!error.is_timeout(), "{command} was never answered");
            self.reconnect();
            self.lost += 1;
            Lost
        })
    }

    fn reconnect(&mut self) {
        self.client = self.stress.server.client();
        // The one that asks may be killed before it is known by its number.
        if let Ok(Value::Int(id)) = self.client.try_cmd("CLIENT ID") {
            self.stress.clients[self.number].store(id, SeqCst);
        }
    }
}

/// The connection was lost.
struct Lost;

/// Takes locks and connections away and pauses the server, until it is over. How often it paused.
fn disturb(stress: &Stress, mut seed: Seed) -> usize {
    let mut client = stress.server.client();
    let can_unblock = can_be_unblocked();
    let mut pauses = 0;
    while stress.goes_on() {
        thread::sleep(Duration::from_micros(seed.below(6_000) as u64));
        let lock = seed.below(KEYS.len());
        let key = KEYS[lock];
        let id = seed.pick(&stress.clients).load(SeqCst);
        match seed.below(40) {
            0..14 => drop(client.cmd(format!("CLIENT KILL ID {id}"))),
            14..16 if can_unblock => drop(client.cmd(format!("CLIENT UNBLOCK {id}"))),
            16 => {
                pauses += 1;
                pause(stress, &mut client, &mut seed);
            }
            17 => free(stress, &mut client, None, "FLUSHALL", 0..KEYS.len()),
            18 => free(stress, &mut client, None, "FLUSHALL ASYNC", 0..KEYS.len()),
            19..22 => kill_the_next_between_grant_and_reply(stress, &mut client, lock),
            22 => drop(client.cmd(*seed.pick(&["BGREWRITEAOF", "BGSAVE", "INFO"]))),
            _ => {
                let ways = [
                    format!("DEL {key}"),
                    format!("UNLINK {key}"),
                    format!("RENAME {key} elsewhere"),
                    format!("PEXPIRE {key} 3"),
                    format!("SET {key} stranger PX 5"),
                    format!("EVAL return(redis.call('DEL',KEYS[1])) 1 {key}"),
                    format!("GETDEL {key}"),
                ];
                free(stress, &mut client, Some(key), &ways[seed.below(ways.len())], lock..lock + 1);
            }
        }
    }
    pauses
}

fn free(
    stress: &Stress,
    client: &mut Client,
    key: Option<&'static str>,
    command: &str,
    locks: Range<usize>,
) {
    let touch = || {
        for lock in locks.clone() {
            stress.disturbed[lock].fetch_add(1, SeqCst);
        }
    };
    touch();
    let asked = unix_micros();
    client.cmd(command);
    stress.record(key, asked, Event::Freed);
    touch();
}

/// Frees a lock, has it handed on by a try that comes too late, and kills the one who got it, in one packet.
fn kill_the_next_between_grant_and_reply(stress: &Stress, client: &mut Client, lock: usize) {
    let key = KEYS[lock];
    let queue = rows(&client.cmd(format!("LOCK.WAITERS {key} COUNT 1")));
    let Some(first) = queue.first() else { return };
    stress.disturbed[lock].fetch_add(1, SeqCst);
    let asked = unix_micros();
    let kill = format!("CLIENT KILL ID {}", first.client);
    let one_packet = [&format!("DEL {key}"), &format!("LOCK.ACQUIRE {key} disturber 5"), &kill];
    client.pipeline(&one_packet.map(String::as_str));
    stress.record(Some(key), asked, Event::Freed);
    stress.disturbed[lock].fetch_add(1, SeqCst);
}

fn pause(stress: &Stress, client: &mut Client, seed: &mut Seed) {
    stress.pauses.fetch_add(1, SeqCst);
    if seed.below(2) == 0 {
        client.cmd("CLIENT PAUSE 20 ALL");
        // Answered when the pause is over.
        client.cmd("PING");
    } else {
        client.cmd("CLIENT PAUSE 1000 WRITE");
        thread::sleep(Duration::from_millis(seed.below(25) as u64));
        client.cmd("CLIENT UNPAUSE");
    }
    stress.pauses.fetch_add(1, SeqCst);
}

/// What was seen of a lock that was free while somebody waited.
struct Idle {
    first_in_line: String,
    since: u64,
    /// What had been done to the lock by then.
    disturbed: (u64, u64),
    /// Looks since it should have been handed on.
    too_late: usize,
}

/// Looks at one lock after the other: who waits, and that nobody does while the lock is free (L5). How often
/// it looked.
fn observe(stress: &Stress) -> usize {
    let mut client = stress.server.client();
    let mut idle: HashMap<usize, Idle> = HashMap::new();
    let mut looks = 0;
    while stress.goes_on() {
        for (lock, key) in KEYS.into_iter().enumerate() {
            looks += 1;
            let counts = || (stress.disturbed[lock].load(SeqCst), stress.pauses.load(SeqCst));
            let disturbed = counts();
            let asked = unix_micros();
            let look = [&format!("LOCK.INFO {key}"), &*format!("LOCK.WAITERS {key}"), "TIME"];
            let replies = client.transaction(&look);
            let queue = rows(&replies[1]);
            for row in &queue {
                stress.record(Some(key), asked, Event::Waits { owner: row.owner.clone() });
            }
            let undisturbed = disturbed == counts() && disturbed.1 % 2 == 0;
            let Some(first) = queue.first().filter(|_| replies[0] == Value::Nil && undisturbed)
            else {
                idle.remove(&lock);
                continue;
            };
            let at = micros(&replies[2]).unwrap();
            let seen = idle.entry(lock).or_insert_with(|| Idle {
                first_in_line: first.owner.clone(),
                since: at,
                disturbed,
                too_late: 0,
            });
            if seen.first_in_line != first.owner || seen.disturbed != disturbed {
                idle.remove(&lock);
                continue;
            }
            // Between two looks, the server has let its timers ring.
            seen.too_late += usize::from(at > seen.since + AT_ONCE_MICROS);
            let waited = at - seen.since;
            assert!(seen.too_late < 2, "{key} was free for {waited} us while {first:?} waited");
        }
    }
    looks
}
