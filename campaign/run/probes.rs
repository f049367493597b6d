//! Probes. Each has several connections and holds conversations with the server in which the order of all requests is
//! certain: nothing is sent before the effect of the request before it was seen. They go on beside faults, and find
//! what is late by milliseconds, or happens in one turn of the server, which no record of many clients shows.
//!
//! ```text
//!   main        grant m ── sees w0 ── sees w1 ── release and a try in one write ── PING PING …
//!   waiters     w0 asks ──▲  w1 asks ──▲                                   w0 has it, not w1
//! ```
//!
//! Lateness is not measured by the clock alone: see [`Lateness`]. Each answer that it counts is a turn of the server's event loop.

mod turns;

use crate::claims::{Claims, Excuse};
use crate::connection::{Connection, Lost, is_gone, owners};
use crate::runner::{Shared, now};
use leasehold_campaign::{Lateness, Span};
use redis::Value;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::Seed;

/// The waiting connections of a probe.
const WAITERS: usize = 8;

/// No conversation that goes as it should lasts so long.
const LONG: u64 = 60_000;

/// The patience of those who are not to give up.
const EVER: u64 = 600_000;

struct Probe<'c> {
    claims: &'c Claims,
    seed: Seed,
    main: Connection,
    waiters: Vec<Connection>,
    database: u32,
    /// When the conversation began.
    begun: u64,
    /// The prefix of the names of its locks.
    name: String,
    next_lock: u32,
}

/// Holds conversations until probing is over.
pub(crate) fn probe(shared: &Shared, mut seed: Seed) {
    // No other probe of this scenario has had this name.
    let name = format!("{}t{}", shared.plan.prefix, shared.next_owner.fetch_add(1, SeqCst));
    let mut next_lock = 0;
    while !shared.probing_over.load(SeqCst) {
        let databases = if shared.roams.load(SeqCst) { [0; 4] } else { [0, 0, 2, 5] };
        let (port, database) = (shared.port_of_probes(), *seed.pick(&databases));
        match Probe::connect(&shared.claims, (port, database), seed.fork(), (&name, next_lock)) {
            Err(Lost) => thread::sleep(Duration::from_millis(2)),
            Ok(mut probe) => {
                while !shared.probing_over.load(SeqCst) && shared.is_at(port) {
                    if probe.converses().is_err() {
                        break;
                    }
                    shared.conversations.fetch_add(1, SeqCst);
                }
                next_lock = probe.next_lock;
            }
        }
        if is_gone(port) {
            break;
        }
    }
    // No fault ends the server while there are probes. One that crashes takes a while to write its report.
    if is_gone(shared.port_of_probes()) {
        shared.claims.add("L6", Excuse::None, now(), "the server has ended by itself".to_owned());
    }
}

impl<'c> Probe<'c> {
    fn connect(
        claims: &'c Claims,
        (port, database): (u16, u32),
        seed: Seed,
        (name, next_lock): (&str, u32),
    ) -> Result<Self, Lost> {
        let main = Connection::connect(port, database)?;
        let waiters =
            (0..WAITERS).map(|_| Connection::connect(port, database)).collect::<Result<_, _>>()?;
        let name = name.to_owned();
        Ok(Self { claims, seed, main, waiters, database, begun: now(), name, next_lock })
    }

    fn converses(&mut self) -> Result<(), Lost> {
        self.begun = now();
        match self.seed.below(10) {
            0 => turns::queued_before(self),
            1 => turns::at_once(self),
            2..6 => turns::hand_offs(self),
            _ => turns::order(self),
        }
    }

    fn claim(&self, law: &'static str, excuse: Excuse, what: impl Into<String>) {
        self.claims.add(law, excuse, self.begun, what.into());
    }

    /// A lock that was never used.
    fn fresh(&mut self) -> String {
        self.next_lock += 1;
        format!("{}-{}", self.name, self.next_lock)
    }

    fn grant(&mut self, lock: &str, owner: &str, ttl: u64) -> Result<u64, Lost> {
        match self.main.ask(&format!("LOCK.ACQUIRE {lock} {owner} {ttl}"))? {
            Value::Int(fence) => u64::try_from(fence).map_err(|_| Lost),
            _ => Err(Lost),
        }
    }

    fn release(&mut self, lock: &str, owner: &str) -> Result<(), Lost> {
        if self.main.ask(&format!("LOCK.RELEASE {lock} {owner}"))? != Value::Int(1) {
            self.claim("L3", Excuse::Freed, format!("{owner} holds {lock} and cannot release it"));
            return Err(Lost);
        }
        Ok(())
    }

    /// Sends a request that waits, and returns when it is seen in the queue.
    fn queue(&mut self, lock: &str, waiter: usize, owner: &str, patience: u64) -> Result<(), Lost> {
        let asked = format!("LOCK.ACQUIRE {lock} {owner} {LONG} BLOCK {patience}");
        self.waiters[waiter].send(&[asked])?;
        let mut lateness = Lateness::from(now());
        loop {
            let asked_at = now();
            if self.owners(lock)?.iter().any(|seen| seen == owner) {
                return Ok(());
            }
            lateness.answered(asked_at);
            if self.waiters[waiter].has_reply()? {
                // A fault deleted the lock, or the patience has ended.
                return Err(Lost);
            }
            if lateness.is_late() {
                self.claim("L5", Excuse::Stop, format!("{owner} asked for {lock}, and is nowhere"));
                return Err(Lost);
            }
        }
    }

    /// The owners in the queue, oldest first.
    fn owners(&mut self, lock: &str) -> Result<Vec<String>, Lost> {
        owners(&self.main.ask(&format!("LOCK.WAITERS {lock}"))?)
    }

    /// The reply to a waiter, which must come at once.
    fn reply_soon(&mut self, waiter: usize, what: &str) -> Result<Value, Lost> {
        self.soon(Excuse::Stop, what, |probe| probe.reply_of(waiter))
    }

    /// The reply to a waiter, if it has arrived.
    fn reply_of(&mut self, waiter: usize) -> Result<Option<Value>, Lost> {
        match self.waiters[waiter].has_reply()? {
            true => self.waiters[waiter].receive().map(Some),
            false => Ok(None),
        }
    }

    /// Asks until `is_so` gives a value. It is a violation if that is late.
    fn soon<T>(
        &mut self,
        excuse: Excuse,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Result<Option<T>, Lost>,
    ) -> Result<T, Lost> {
        let begin = now();
        let mut lateness = Lateness::from(begin);
        loop {
            // Everything that the server had done by its last answer has arrived.
            if let Some(so) = is_so(self)? {
                return Ok(so);
            }
            if lateness.is_late() {
                let span = Span { from: self.begun, to: now() };
                let late = (span.to - begin) / 1_000;
                let text = format!("{what}: not so after {late} ms and many answers");
                self.claims.add_of(span, "L5", excuse, text);
                return Err(Lost);
            }
            let asked_at = now();
            self.main.ask("PING")?;
            lateness.answered(asked_at);
        }
    }

    fn another(&self) -> Result<Connection, Lost> {
        Connection::connect(self.main.port, self.database)
    }

    /// Closes the connection of a waiter, and opens another.
    fn renew(&mut self, waiter: usize) -> Result<(), Lost> {
        self.waiters[waiter] = self.another()?;
        Ok(())
    }
}

fn is_granted(reply: &Value) -> Option<u64> {
    match reply {
        Value::Int(fence) => u64::try_from(*fence).ok(),
        _ => None,
    }
}
