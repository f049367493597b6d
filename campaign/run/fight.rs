//! One scenario: clients, somebody who watches the queues, and faults beside them; in rounds, each of which is
//! judged.
//!
//! ```text
//!   clients   ───────────────────────────────────────────────────
//!   faults    ! !  !!   !  !               ! !!  !  !
//!   tellers                   ─────────                 ─────────
//! ```
//!
//! While a server is stopped again and again, hardly anything can be held against it: who is next, and when, it may have
//! forgotten or be late with. So now and then it is left alone, and then everything must be as it ought to be. Where hardly
//! anything stops it, as in `alone`, tellers talk all the time.

use crate::claims::{Claims, Disturbance, Excuse};
use crate::{clients, connection, tellers, waiters};
use leasehold_campaign::{EVERY_LOCK, History, Op, Outcome, Record, Rules, Span};
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Seed, Server, unix_micros};

const CLIENTS: usize = 24;

/// So that a round fits into memory, whatever the server.
const ROUND: Duration = Duration::from_secs(20);

/// What is easily found is found soon.
const FIRST_ROUND: Duration = Duration::from_secs(5);

/// The server is left alone once in so long, ...
const BETWEEN_RESTS: Duration = Duration::from_secs(10);

/// ... for some seconds, of which the first are for what was begun to end.
const CALM: Duration = Duration::from_secs(2);
const CONVERSATION: Duration = Duration::from_secs(4);
const REST: Duration = Duration::from_secs(CALM.as_secs() + CONVERSATION.as_secs());

/// Who comes when all is quiet.
const VISITORS: usize = 2;

/// How long a free lock may have a waiter on a machine on which much else is done.
pub(crate) const IDLE_MICROS: u64 = 1_000_000;

/// The wall clock, in microseconds, by which servers end leases.
pub(crate) fn now() -> u64 {
    unix_micros()
}

/// What all clients share.
pub(crate) struct Field {
    /// Where they connect to.
    pub(crate) port: AtomicU16,
    /// The same for tellers, if it is another place.
    pub(crate) aside: Option<u16>,
    /// The number of that server.
    pub(crate) server: AtomicU8,
    /// Whether they go where servers send them, as clients of a cluster do: then any node will do to begin with.
    pub(crate) roams: AtomicBool,
    pub(crate) over: AtomicBool,
    /// Whether tellers are to come to an end.
    pub(crate) hushed: AtomicBool,
    /// How many of their conversations have come to an end, as they should.
    pub(crate) conversations: AtomicU64,
    pub(crate) locks: u32,
    /// What the keys of all locks begin with.
    pub(crate) prefix: String,
    pub(crate) next_owner: AtomicU32,
    /// Shared by all who are asking, or going where they were sent: see [`Field::nobody_is_on_the_way`].
    pub(crate) on_the_way: RwLock<()>,
    pub(crate) claims: Claims,
}

/// How closely it is looked at.
pub(crate) struct Closely {
    /// How many converse with the server in an order that is certain, all the time. 0: only when all is quiet.
    pub(crate) tellers: u32,
    /// How long after something that stops the server everything is as it was.
    pub(crate) calm_micros: u64,
    /// How long a free lock may have a waiter. 0: not looked at.
    pub(crate) idle_micros: u64,
    /// Where tellers connect to, if clients are behind a link: it may be late for one connection and not for another.
    pub(crate) aside: Option<u16>,
}

/// Where so much is done to a server that tellers would seldom have something to say.
pub(crate) const FROM_AFAR: Closely =
    Closely { tellers: 0, calm_micros: IDLE_MICROS, idle_micros: IDLE_MICROS, aside: None };

impl Field {
    /// Waits until everybody has arrived where a node sent them. One who follows an `ASK` when the slot has gone on, and is
    /// coming again, would be served by a node that does not have the lock, beside the one that does: no node can know.
    pub(crate) fn nobody_is_on_the_way(&self) {
        drop(self.on_the_way.write().unwrap());
    }

    /// Clients are to go there now.
    pub(crate) fn goes_to(&self, server: &Server, number: usize) {
        self.port.store(server.port(), SeqCst);
        self.server.store(u8::try_from(number).unwrap(), SeqCst);
    }

    /// Whether a connection to this port goes where clients are to go now, or tellers.
    pub(crate) fn is_at(&self, port: u16) -> bool {
        self.roams.load(SeqCst) || port == self.port.load(SeqCst) || self.aside == Some(port)
    }

    pub(crate) fn port_of_tellers(&self) -> u16 {
        self.aside.unwrap_or_else(|| self.port.load(SeqCst))
    }

    /// Whether nobody listens to tellers any more.
    pub(crate) fn is_gone(&self) -> bool {
        connection::is_gone(self.port_of_tellers())
    }
}

/// What was done to the servers, and what it excuses.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) log: Vec<(u64, String)>,
    pub(crate) loss: Vec<Span>,
    pub(crate) standstill: Vec<Span>,
    pub(crate) forgotten: Vec<Span>,
    pub(crate) beside: Vec<Span>,
    deletes: Vec<Record>,
    disturbances: Vec<Disturbance>,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Fought {
    pub(crate) operations: u64,
    pub(crate) grants: u64,
    pub(crate) waited: u64,
    pub(crate) faults: u64,
    pub(crate) micros: u128,
    /// For people.
    pub(crate) wrong: Vec<String>,
}

impl Fought {
    pub(crate) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.grants += other.grants;
        self.waited += other.waited;
        self.faults += other.faults;
        self.micros += other.micros;
        self.wrong.extend(other.wrong);
    }
}

impl Faults {
    /// Does something, and notes when.
    pub(crate) fn note<T>(&mut self, what: &str, does: impl FnOnce() -> T) -> (T, Span) {
        let from = now();
        self.log.push((from, what.to_owned()));
        let done = does();
        (done, Span { from, to: now() })
    }

    /// The same where data may be lost; what was answered shortly before too.
    pub(crate) fn lossy<T>(&mut self, what: &str, before: Duration, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.lost(span, before);
        done
    }

    /// Data may have been lost then, whatever it was that was noted.
    pub(crate) fn lost(&mut self, span: Span, before: Duration) {
        let before = u64::try_from(before.as_micros()).unwrap();
        self.loss.push(Span { from: span.from - before, to: span.to });
        self.standstill.push(after(span));
        self.disturbances.push(Disturbance { span, stops: true, frees: true, cuts: false });
    }

    /// Another has become the primary, at any time since `from`, though nobody had asked for that.
    pub(crate) fn lost_unasked(&mut self, from: u64, before: Duration) -> Span {
        let ((), noted) = self.note("unasked, another has become the primary", || ());
        let span = Span { from, ..noted };
        self.lost(span, before);
        span
    }

    /// The same where nothing is lost, but nothing granted either.
    pub(crate) fn still<T>(&mut self, what: &str, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.stood_still(span);
        done
    }

    /// The same where data is lost, but nobody is granted anything before what was lost is over, which takes so long.
    pub(crate) fn forgets<T>(&mut self, what: &str, rest: Duration, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.forgotten.push(span);
        let rest = u64::try_from(rest.as_micros()).unwrap();
        self.stood_still(Span { to: span.to + rest, ..span });
        done
    }

    /// The same where some links are cut: who is told nothing meanwhile, others may be told something.
    pub(crate) fn cuts<T>(&mut self, what: &str, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.cut_off(span);
        done
    }

    /// Links were cut then, whatever it was that was noted.
    pub(crate) fn cut_off(&mut self, span: Span) {
        self.disturbances.push(Disturbance { span, stops: false, frees: false, cuts: true });
    }

    /// Nothing was lost by it, but nothing granted either.
    pub(crate) fn stood_still(&mut self, span: Span) {
        self.standstill.push(after(span));
        self.disturbances.push(Disturbance { span, stops: true, frees: false, cuts: false });
    }

    /// The same where the key of a lock, or of every lock, is taken away, at the latest so long afterwards.
    pub(crate) fn frees<T>(
        &mut self,
        what: &str,
        lock: Option<u32>,
        within: Duration,
        does: impl FnOnce() -> T,
    ) -> T {
        let (done, span) = self.note(what, does);
        self.deletes.push(Record {
            asked: span.from,
            told: span.to + u64::try_from(within.as_micros()).unwrap(),
            fence: 0,
            ttl: 0,
            owner: u32::MAX,
            lock: lock.unwrap_or(EVERY_LOCK),
            op: Op::Delete,
            outcome: Outcome::Ok,
            server: 0,
        });
        if lock.is_none() {
            self.disturbances.push(Disturbance { span, stops: false, frees: true, cuts: false });
        }
        done
    }
}

/// It takes a moment until everything is as it was.
fn after(span: Span) -> Span {
    Span { from: span.from.saturating_sub(IDLE_MICROS), to: span.to + IDLE_MICROS }
}

/// Fights for so long. `fault` makes one fault, of its own choice, and is called again and again.
pub(crate) fn fight(
    place: (u16, u32, &str),
    rules: &Rules,
    seed: u64,
    length: Duration,
    fault: impl FnMut(&mut Faults, &mut Seed, &Field),
) -> Fought {
    fight_closely(place, rules, &FROM_AFAR, (seed, length), fault)
}

/// The same, looked at as closely as it is said.
pub(crate) fn fight_closely(
    (port, locks, prefix): (u16, u32, &str),
    rules: &Rules,
    closely: &Closely,
    (seed, length): (u64, Duration),
    mut fault: impl FnMut(&mut Faults, &mut Seed, &Field),
) -> Fought {
    let mut seed = Seed::of(seed);
    let mut fought = Fought::default();
    let mut before = HashMap::new();
    let field = Field {
        port: port.into(),
        aside: closely.aside,
        server: AtomicU8::new(0),
        roams: AtomicBool::new(false),
        over: AtomicBool::new(false),
        hushed: AtomicBool::new(false),
        conversations: AtomicU64::new(0),
        locks,
        prefix: prefix.to_owned(),
        next_owner: AtomicU32::new(1),
        on_the_way: RwLock::new(()),
        claims: Claims::default(),
    };
    let begin = Instant::now();
    let mut sofar = Duration::ZERO;
    while sofar < length && fought.wrong.is_empty() {
        let usual = if sofar.is_zero() { FIRST_ROUND } else { ROUND };
        let round = (length - sofar).min(usual);
        let begun = Instant::now();
        // How far the one before came is no part of what the seed says.
        let of_round = seed.fork();
        let (records, faults, broken) = one_round(&field, closely, of_round, round, &mut fault);
        sofar = begin.elapsed();
        fought.micros += begun.elapsed().as_micros();
        fought.operations += records.iter().filter(|record| record.op != Op::Seen).count() as u64;
        fought.faults += faults.log.len() as u64;
        let rules = Rules {
            loss: faults.loss,
            standstill: faults.standstill,
            forgotten: faults.forgotten,
            beside: faults.beside,
            idle_micros: closely.idle_micros,
            ..rules.clone()
        };
        let history = History { records, before };
        let verdict = history.check(&rules);
        fought.grants += verdict.grants;
        fought.waited += verdict.waited;
        fought.wrong.extend(field.claims.take_unexcused(
            &faults.disturbances,
            closely.calm_micros,
            &faults.log,
        ));
        let explain = |(index, one)| match index {
            // Each looks through the whole history.
            0..3 => history.explain(one, &faults.log),
            _ => String::new(),
        };
        fought.wrong.extend(verdict.violations.iter().enumerate().map(explain));
        before = history.highest();
        if broken {
            fought.wrong.push("the next fault could not be made: see above".to_owned());
            // As it was on its way to, with what is known by now: the servers must not end as if nothing were wrong.
            panic::resume_unwind(Box::new(fought));
        }
    }
    if fought.grants == 0 || fought.waited == 0 || fought.faults == 0 {
        fought.wrong.push("hardly anything happened: that shows nothing".to_owned());
    }
    fought
}

/// Nothing is done to the servers for a while, and nothing is an excuse, unless they do it themselves: on a machine that
/// keeps them waiting, others take a primary for dead.
fn leave_alone(field: &Field, faults: &mut Faults, seed: &mut Seed) {
    let quiet = now();
    thread::sleep(CALM);
    field.hushed.store(false, SeqCst);
    let (before, begin) = (field.conversations.load(SeqCst), now());
    thread::scope(|scope| {
        for _ in 0..VISITORS {
            let seed = seed.fork();
            scope.spawn(move || tellers::tell(field, seed, false));
        }
        thread::sleep(CONVERSATION);
        field.hushed.store(true, SeqCst);
    });
    if field.conversations.load(SeqCst) == before {
        let what = format!("no lock could be had as it should, for {CONVERSATION:?}");
        field.claims.add("L5", Excuse::Stop, begin, what);
    }
    if connection::is_replica(field.port_of_tellers()) {
        let span = faults.lost_unasked(quiet, CALM);
        if field.roams.load(SeqCst) {
            // Clients may have been at both.
            faults.beside.push(span);
        }
    }
}

/// Also says whether a fault could not be made, as when the server has ended: then it is over before its time.
fn one_round(
    field: &Field,
    closely: &Closely,
    mut seed: Seed,
    length: Duration,
    fault: &mut impl FnMut(&mut Faults, &mut Seed, &Field),
) -> (Vec<Record>, Faults, bool) {
    let mut faults = Faults::default();
    let mut records = Vec::new();
    let (mut of_faults, mut of_visitors) = (seed.fork(), seed.fork());
    field.over.store(false, SeqCst);
    field.hushed.store(false, SeqCst);
    let broken = thread::scope(|scope| {
        let mut clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let seed = seed.fork();
                scope.spawn(move || clients::work(field, seed))
            })
            .collect();
        let watcher = seed.fork();
        clients.push(scope.spawn(move || waiters::watch(field, watcher)));
        for _ in 0..closely.tellers {
            let seed = seed.fork();
            scope.spawn(move || tellers::tell(field, seed, true));
        }
        let made = panic::catch_unwind(AssertUnwindSafe(|| {
            let rests =
                if closely.tellers > 0 { 0 } else { length.as_secs() / BETWEEN_RESTS.as_secs() };
            let until_rest = match u32::try_from(rests).unwrap() {
                0 => length,
                rests => length / rests - REST,
            };
            for _ in 0..rests.max(1) {
                let begin = Instant::now();
                while begin.elapsed() < until_rest {
                    fault(&mut faults, &mut of_faults, field);
                }
                if rests > 0 {
                    leave_alone(field, &mut faults, &mut of_visitors);
                }
            }
        }));
        field.over.store(true, SeqCst);
        field.hushed.store(true, SeqCst);
        for client in clients {
            records.append(&mut client.join().unwrap());
        }
        made.is_err()
    });
    records.append(&mut faults.deletes);
    field.claims.take_pauses().into_iter().for_each(|span| faults.stood_still(span));
    faults.standstill.append(&mut field.claims.take_delays());
    (records, faults, broken)
}
