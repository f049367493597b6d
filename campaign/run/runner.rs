//! Runs a scenario in rounds: clients, a watcher of the queues, probes, and faults beside them. The
//! checker judges each round.
//!
//! ```text
//!   clients   ───────────────────────────────────────────────────
//!   faults    ! !  !!   !  !               ! !!  !  !
//!   probes                   ─────────                 ─────────
//! ```
//!
//! A server that is stopped again and again may forget its queue or hand a lock on late, so L4 and L5 would hardly be
//! tested. It is therefore left alone now and then, and probes check that it keeps every promise. Where hardly anything
//! stops the server, as in `alone`, probes run all the time.

use crate::claims::{Claims, Excuse};
pub(crate) use crate::faults::Faults;
use crate::shares::{self, Shares};
use crate::{clients, connection, probes, queue_watcher, registers};
use leasehold_campaign::{History, Op, Record, Rules, Shape};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Seed, Server, unix_micros};

const CLIENTS: usize = 24;

/// Short enough that the records of a round fit into memory.
const ROUND: Duration = Duration::from_secs(20);

/// Short, so that what is easily found is found soon.
const FIRST_ROUND: Duration = Duration::from_secs(5);

/// The server is left alone once in this time …
const BETWEEN_RESTS: Duration = Duration::from_secs(10);

/// … until everything that was begun has ended, and probes have run for some seconds.
const CALM: Duration = Duration::from_secs(2);
const CONVERSATION: Duration = Duration::from_secs(4);
const REST: Duration = Duration::from_secs(CALM.as_secs() + CONVERSATION.as_secs());

/// Probes whose conversations all fail have asked for more by then. On a machine that is busy with other
/// work that takes longer, but not so long.
const MANY_QUESTIONS: u64 = 1_000;
const TOO_LONG: Duration = Duration::from_secs(60);

/// The probes that run while the server is left alone.
const VISITORS: usize = 2;

/// How long a free lock may have a waiter on a machine that is busy with other work.
pub(crate) const IDLE_MICROS: u64 = 1_000_000;

/// The wall clock, in microseconds, by which servers end leases.
pub(crate) fn now() -> u64 {
    unix_micros()
}

/// Where every history is written, for other checkers, and in which shape.
static TRANSCRIPT: OnceLock<(Shape, File)> = OnceLock::new();

/// Writes every history to this file from now on: as EDN, or as lines of JSON, as its name says.
pub(crate) fn write_transcript(file: &str) {
    let shape = if file.ends_with(".edn") { Shape::Edn } else { Shape::Json };
    assert!(TRANSCRIPT.set((shape, File::create(file).unwrap())).is_ok());
}

/// A server to run against, what clients ask it for, and how strictly it is judged.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The port that clients connect to.
    pub(crate) port: u16,
    pub(crate) locks: u32,
    /// The prefix of the keys of all locks.
    pub(crate) prefix: String,
    pub(crate) shares: Shares,
    /// How many milliseconds late a lease may end.
    pub(crate) late_millis: i64,
    /// How many probes run all the time. With 0, probes run only while the server is left alone, as where it is
    /// stopped too often for probes to run beside the faults.
    pub(crate) probes: u32,
    /// How long after a stop of the server it may still be late.
    pub(crate) calm_micros: u64,
    /// How long a free lock may have a waiter. 0: any time.
    pub(crate) idle_micros: u64,
    /// Whether owners may ask again on a new connection, and use what they held before.
    pub(crate) owners_stay: bool,
    /// The port of the probes, where clients use a link: it may delay one connection and not another.
    pub(crate) aside: Option<u16>,
}

/// What clients, probes and faults share.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    /// The port that clients connect to now.
    pub(crate) port: AtomicU16,
    /// The number of the server that clients connect to.
    pub(crate) server: AtomicU8,
    /// Whether clients follow `MOVED` and `ASK`, as clients of a cluster do. They may then begin at any node.
    pub(crate) roams: AtomicBool,
    pub(crate) over: AtomicBool,
    /// Whether probes are to end.
    pub(crate) probing_over: AtomicBool,
    /// How many conversations of probes have ended as they should.
    pub(crate) conversations: AtomicU64,
    pub(crate) next_owner: AtomicU32,
    /// The number of the next request for several locks.
    pub(crate) next_set: AtomicU32,
    /// How many guarded commands clients have sent.
    pub(crate) guarded: AtomicU64,
    /// Held for reading by clients that send requests or follow a redirection: see [`Shared::nobody_is_on_the_way`].
    pub(crate) on_the_way: RwLock<()>,
    pub(crate) claims: Claims,
}

impl Shared {
    /// Waits until no client is following a redirection. A client that follows an `ASK` after the slot has gone on and
    /// while it is coming back would be granted a lock by a node that does not have it. No node can detect that.
    pub(crate) fn nobody_is_on_the_way(&self) {
        drop(self.on_the_way.write().unwrap());
    }

    /// Sends clients to this server from now on.
    pub(crate) fn goes_to(&self, server: &Server, number: usize) {
        self.port.store(server.port(), SeqCst);
        self.server.store(u8::try_from(number).unwrap(), SeqCst);
    }

    /// Whether clients or probes are to use this port now.
    pub(crate) fn is_at(&self, port: u16) -> bool {
        self.roams.load(SeqCst) || port == self.port.load(SeqCst) || self.plan.aside == Some(port)
    }

    pub(crate) fn port_of_probes(&self) -> u16 {
        self.plan.aside.unwrap_or_else(|| self.port.load(SeqCst))
    }

    /// The number of a request for several locks.
    pub(crate) fn set(&self) -> u32 {
        self.next_set.fetch_add(1, SeqCst)
    }
}

/// What a scenario has done and found.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) operations: u64,
    /// How many of the operations had each of these options.
    pub(crate) tickets: u64,
    pub(crate) ephemeral: u64,
    pub(crate) several: u64,
    pub(crate) guarded: u64,
    pub(crate) grants: u64,
    pub(crate) waited: u64,
    pub(crate) faults: u64,
    pub(crate) micros: u128,
    /// The violations, as text.
    pub(crate) wrong: Vec<String>,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.tickets += other.tickets;
        self.ephemeral += other.ephemeral;
        self.several += other.several;
        self.guarded += other.guarded;
        self.grants += other.grants;
        self.waited += other.waited;
        self.faults += other.faults;
        self.micros += other.micros;
        self.wrong.extend(other.wrong);
    }
}

impl Plan {
    /// Ten locks of all kinds. A lease includes the millisecond of its deadline; two more are for the server, which may
    /// look late.
    pub(crate) fn at(port: u16) -> Self {
        Self {
            port,
            locks: 10,
            prefix: "l".to_owned(),
            shares: shares::ANY,
            late_millis: 3,
            probes: 0,
            calm_micros: IDLE_MICROS,
            idle_micros: IDLE_MICROS,
            owners_stay: true,
            aside: None,
        }
    }

    /// Runs rounds for `length`. `fault` makes one fault of its choice, and is called again and again.
    pub(crate) fn run(
        mut self,
        (seed, length): (u64, Duration),
        mut fault: impl FnMut(&mut Faults, &mut Seed, &Shared),
    ) -> Totals {
        let mut seed = Seed::of(seed);
        self.shares = self.shares.shuffled(&mut seed.fork());
        let shared = Shared {
            port: self.port.into(),
            plan: self,
            server: AtomicU8::new(0),
            roams: AtomicBool::new(false),
            over: AtomicBool::new(false),
            probing_over: AtomicBool::new(false),
            conversations: AtomicU64::new(0),
            next_owner: AtomicU32::new(1),
            next_set: AtomicU32::new(1),
            guarded: AtomicU64::new(0),
            on_the_way: RwLock::new(()),
            claims: Claims::default(),
        };
        let (mut totals, mut before) = (Totals::default(), HashMap::new());
        let begin = Instant::now();
        let mut sofar = Duration::ZERO;
        while sofar < length && totals.wrong.is_empty() {
            let usual = if sofar.is_zero() { FIRST_ROUND } else { ROUND };
            let round = (length - sofar).min(usual);
            let begun = Instant::now();
            // The seed of a round does not depend on how far the round before came.
            let of_round = seed.fork();
            let (records, faults, broken) = run_round(&shared, of_round, round, &mut fault);
            sofar = begin.elapsed();
            totals.micros += begun.elapsed().as_micros();
            let count =
                |is: fn(&Record) -> bool| records.iter().filter(|one| is(one)).count() as u64;
            let guarded = shared.guarded.swap(0, SeqCst);
            totals.guarded += guarded;
            let is_first = totals.operations == 0;
            totals.operations += count(|record| !matches!(record.op, Op::Seen | Op::Closed));
            totals.tickets += count(|record| record.is_ticket);
            totals.ephemeral += count(|record| record.is_bound);
            totals.several += count(|record| record.set != 0);
            totals.faults += faults.log.len() as u64;
            let history = History { records, before };
            if let Some((shape, file)) = TRANSCRIPT.get() {
                let what = if is_first { "run" } else { "round" };
                let mut file = BufWriter::new(file);
                shape.write(&mut file, what, (&history, &faults.rules), &faults.log).unwrap();
                file.flush().unwrap();
            }
            let verdict = history.check(&faults.rules);
            totals.grants += verdict.grants;
            totals.waited += verdict.waited;
            totals.wrong.extend(shared.claims.take_unexcused(
                &faults.disturbances,
                shared.plan.calm_micros,
                &faults.log,
            ));
            let explain = |(index, one)| match index {
                // Each explanation searches the whole history.
                0..3 => history.explain(one, &faults.log),
                _ => String::new(),
            };
            totals.wrong.extend(verdict.violations.iter().enumerate().map(explain));
            before = history.highest();
            if broken {
                totals.wrong.push("the next fault could not be made: see above".to_owned());
                // The panic goes on with what is known by now. The servers must not end as if nothing were wrong.
                panic::resume_unwind(Box::new(totals));
            }
        }
        if totals.grants == 0 || totals.waited == 0 || totals.faults == 0 {
            totals.wrong.push("hardly anything happened: that shows nothing".to_owned());
        }
        totals
    }
}

/// Leaves the servers alone for a while, in which nothing is excused. A failover that the servers
/// begin themselves is an exception: on a busy machine they may take a primary for dead.
fn leave_alone(shared: &Shared, faults: &mut Faults, seed: &mut Seed) {
    let quiet = now();
    thread::sleep(CALM);
    shared.probing_over.store(false, SeqCst);
    let (before, begin) = (shared.conversations.load(SeqCst), now());
    thread::scope(|scope| {
        for _ in 0..VISITORS {
            let seed = seed.fork();
            scope.spawn(move || probes::probe(shared, seed));
        }
        let (since, asked) = (Instant::now(), connection::asked());
        thread::sleep(CONVERSATION);
        while shared.conversations.load(SeqCst) == before
            && connection::asked() < asked + MANY_QUESTIONS
            && since.elapsed() < TOO_LONG
        {
            thread::sleep(CALM);
        }
        shared.probing_over.store(true, SeqCst);
    });
    if shared.conversations.load(SeqCst) == before {
        let lasted = (now() - begin) / 1_000;
        let what = format!("no lock could be had as it should, for {lasted} ms");
        shared.claims.add("L5", Excuse::Stop, begin, what);
    }
    if connection::is_replica(shared.port_of_probes()) {
        let span = faults.lost_unasked(quiet, CALM);
        if shared.roams.load(SeqCst) {
            // Clients may have used both primaries.
            faults.rules.beside.push(span);
        }
    }
}

/// Runs one round. The last value says whether a fault panicked, as when the server has ended; the
/// round ends early then.
fn run_round(
    shared: &Shared,
    mut seed: Seed,
    length: Duration,
    fault: &mut impl FnMut(&mut Faults, &mut Seed, &Shared),
) -> (Vec<Record>, Faults, bool) {
    let Plan { late_millis, idle_micros, probes, .. } = shared.plan;
    let rules = Rules { late_millis, idle_micros, ..Rules::default() };
    let mut faults = Faults { rules, ..Faults::default() };
    let mut records = Vec::new();
    let (mut of_faults, mut of_visitors) = (seed.fork(), seed.fork());
    shared.over.store(false, SeqCst);
    shared.probing_over.store(false, SeqCst);
    let broken = thread::scope(|scope| {
        let mut clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let seed = seed.fork();
                scope.spawn(move || clients::work(shared, seed))
            })
            .collect();
        let writers: Vec<_> = (0..registers::WRITERS)
            .map(|_| {
                let seed = seed.fork();
                scope.spawn(move || registers::write(shared, seed))
            })
            .collect();
        let watcher = seed.fork();
        clients.push(scope.spawn(move || queue_watcher::watch(shared, watcher)));
        for _ in 0..probes {
            let seed = seed.fork();
            scope.spawn(move || probes::probe(shared, seed));
        }
        let made = panic::catch_unwind(AssertUnwindSafe(|| {
            let rests = if probes > 0 { 0 } else { length.as_secs() / BETWEEN_RESTS.as_secs() };
            let until_rest = match u32::try_from(rests).unwrap() {
                0 => length,
                rests => length / rests - REST,
            };
            for _ in 0..rests.max(1) {
                let begin = Instant::now();
                while begin.elapsed() < until_rest {
                    fault(&mut faults, &mut of_faults, shared);
                }
                if rests > 0 {
                    leave_alone(shared, &mut faults, &mut of_visitors);
                }
            }
        }));
        shared.over.store(true, SeqCst);
        shared.probing_over.store(true, SeqCst);
        for client in clients {
            records.append(&mut client.join().unwrap());
        }
        for writer in writers {
            let (guarded, mut told) = writer.join().unwrap();
            shared.guarded.fetch_add(guarded, SeqCst);
            records.append(&mut told);
        }
        made.is_err()
    });
    records.append(&mut faults.deletes);
    faults.rules.standstill.append(&mut shared.claims.take_delays());
    (records, faults, broken)
}
