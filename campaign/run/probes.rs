//! Probes. Each has several connections and holds conversations with the server in which the order
//! of all requests is certain: nothing is sent before the effect of the request before it was seen.
//!
//! ```text
//!   main        grant m ── sees w0 ── sees w1 ── release and a try in one write ── PING PING …
//!   waiters     w0 asks ──▲  w1 asks ──▲                                   w0 has it, not w1
//! ```
//!
//! Lateness is not measured by the clock alone: see [`Lateness`]. Each answer that it counts is a turn of the server's event loop.

mod aged;
mod ephemeral;
mod fences;
mod gone;
mod kept;
mod leases;
mod shared;
mod tickets;
mod together;
mod turns;

pub(crate) use aged::handed_on_when_old;
pub(crate) use gone::{closed_in_any_way, over_when_told};
pub(crate) use kept::{
    MOST, deletion_in_a_fall, deletion_in_a_step, evicted, evicted_unwaited, limited,
    transaction_in_a_step,
};
pub(crate) use turns::handed_on_unseen;

use crate::claims::{Claims, Excuse};
use crate::connection::{Connection, Lost, owners};
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

/// What has not happened by then is not waited for any longer.
const FORGOTTEN_MICROS: u64 = 2_000_000;

pub(crate) struct Probe<'c> {
    claims: &'c Claims,
    pub(crate) seed: Seed,
    pub(crate) main: Connection,
    pub(crate) waiters: Vec<Connection>,
    port: u16,
    database: u32,
    /// When the conversation began.
    begun: u64,
    /// The prefix of the names of its locks.
    name: String,
    next_lock: u32,
}

pub(crate) type Conversation = fn(&mut Probe<'_>) -> Result<(), Lost>;

/// The conversations, each with its weight.
const ALL: [(usize, Conversation); 27] = [
    (300, turns::order),
    (300, turns::hand_offs),
    // Rare, because it keeps the server busy.
    (10, turns::unseen),
    (50, turns::twice),
    (50, turns::queued_before),
    (50, turns::patience),
    (100, leases::exact),
    // Rare, because it keeps the server busy.
    (10, leases::in_a_transaction),
    (50, leases::proofs),
    (40, leases::foreign),
    (80, shared::readers),
    (60, shared::pool),
    (40, shared::short_among_long),
    (60, shared::other_shares),
    (40, shared::damaged),
    (60, shared::taken_back),
    (60, ephemeral::bound),
    (80, tickets::kept),
    (20, tickets::unclaimed),
    (1, tickets::unheard),
    (80, together::in_turn),
    (60, together::leaving),
    (40, together::tried),
    (60, fences::lifted),
    (30, fences::minted),
    (30, gone::deleted_user),
    // Rare, because it keeps the server busy.
    (10, over_when_told),
];

/// One conversation in so many pauses writes, which excuses violations elsewhere. Only probes that
/// run all the time do that.
const PAUSES: usize = 500;

/// Holds conversations until probing is over.
pub(crate) fn probe(shared: &Shared, mut seed: Seed, pauses: bool) {
    // No other probe of this scenario has had this name.
    let name = format!("{}t{}", shared.prefix, shared.next_owner.fetch_add(1, SeqCst));
    let mut next_lock = 0;
    while !shared.probing_over.load(SeqCst) {
        let databases = if shared.roams.load(SeqCst) { [0; 4] } else { [0, 0, 2, 5] };
        let database = *seed.pick(&databases);
        let port = shared.port_of_probes();
        let Ok(mut probe) = Probe::connect(&shared.claims, port, database, seed.fork(), &name)
        else {
            if shared.is_gone() {
                return gone(&shared.claims);
            }
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        probe.next_lock = next_lock;
        while !shared.probing_over.load(SeqCst) && shared.is_at(probe.main.port) {
            let done = match pauses && probe.seed.below(PAUSES) == 0 {
                true => probe.converse(turns::paused),
                false => probe.goes_on(),
            };
            if done.is_err() {
                break;
            }
            shared.conversations.fetch_add(1, SeqCst);
        }
        next_lock = probe.next_lock;
        if shared.is_gone() {
            return gone(&shared.claims);
        }
    }
    // A server that crashes takes a while to write its report.
    if shared.is_gone() {
        gone(&shared.claims);
    }
}

/// Notes that the server has ended, which no fault does while there are probes.
fn gone(claims: &Claims) {
    claims.add("L6", Excuse::None, now(), "the server has ended by itself".to_owned());
}

impl<'c> Probe<'c> {
    pub(crate) fn connect(
        claims: &'c Claims,
        port: u16,
        database: u32,
        seed: Seed,
        name: &str,
    ) -> Result<Self, Lost> {
        let main = Connection::connect(port, database)?;
        let waiters =
            (0..WAITERS).map(|_| Connection::connect(port, database)).collect::<Result<_, _>>()?;
        let (name, next_lock) = (name.to_owned(), 0);
        Ok(Self { claims, seed, main, waiters, port, database, begun: now(), name, next_lock })
    }

    fn goes_on(&mut self) -> Result<(), Lost> {
        let all: usize = ALL.iter().map(|(weight, _)| weight).sum();
        let mut chosen = self.seed.below(all);
        for (weight, conversation) in ALL {
            if chosen < weight {
                return self.converse(conversation);
            }
            chosen -= weight;
        }
        Ok(())
    }

    pub(crate) fn converse(&mut self, conversation: Conversation) -> Result<(), Lost> {
        self.begun = now();
        conversation(self)
    }

    pub(crate) fn claim(&self, law: &'static str, excuse: Excuse, what: impl Into<String>) {
        self.claims.add(law, excuse, self.begun, what.into());
    }

    /// A lock that was never used.
    pub(crate) fn fresh(&mut self) -> String {
        self.next_lock += 1;
        format!("{}-{}", self.name, self.next_lock)
    }

    pub(crate) fn grant(&mut self, lock: &str, owner: &str, ttl: u64) -> Result<u64, Lost> {
        match self.main.ask(&format!("LOCK.ACQUIRE {lock} {owner} {ttl}"))? {
            Value::Int(fence) => u64::try_from(fence).map_err(|_| Lost),
            _ => Err(Lost),
        }
    }

    pub(crate) fn release(&mut self, lock: &str, owner: &str) -> Result<(), Lost> {
        if self.main.ask(&format!("LOCK.RELEASE {lock} {owner}"))? != Value::Int(1) {
            self.claim("L3", Excuse::Freed, format!("{owner} holds {lock} and cannot release it"));
            return Err(Lost);
        }
        Ok(())
    }

    /// Sends a request that waits, and returns when it is seen in the queue.
    pub(crate) fn queue(
        &mut self,
        lock: &str,
        waiter: usize,
        owner: &str,
        patience: u64,
    ) -> Result<(), Lost> {
        self.queue_for(lock, waiter, owner, 1, patience)
    }

    /// The same, for one who tolerates so many holders.
    pub(crate) fn queue_for(
        &mut self,
        lock: &str,
        waiter: usize,
        owner: &str,
        share: u32,
        patience: u64,
    ) -> Result<(), Lost> {
        let asked = format!("LOCK.ACQUIRE {lock} {owner} {LONG} SHARE {share} BLOCK {patience}");
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
    pub(crate) fn owners(&mut self, lock: &str) -> Result<Vec<String>, Lost> {
        owners(&self.main.ask(&format!("LOCK.WAITERS {lock}"))?)
    }

    /// The reply to a waiter, which must come at once.
    pub(crate) fn reply_soon(&mut self, waiter: usize, what: &str) -> Result<Value, Lost> {
        self.soon(Excuse::Stop, what, |probe| probe.reply_of(waiter))
    }

    /// The reply to a waiter, if it has arrived.
    pub(crate) fn reply_of(&mut self, waiter: usize) -> Result<Option<Value>, Lost> {
        match self.waiters[waiter].has_reply()? {
            true => self.waiters[waiter].receive().map(Some),
            false => Ok(None),
        }
    }

    /// Asks until `is_so` gives a value. It is a violation if that is late.
    pub(crate) fn soon<T>(
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
                let when = self.how_late(begin, is_so);
                let when = when.unwrap_or_else(|Lost| "and the connection has ended".to_owned());
                let text = format!("{what}: not so after {late} ms and many answers, {when}");
                self.claims.add_of(span, "L5", excuse, text);
                return Err(Lost);
            }
            let asked_at = now();
            self.main.ask("PING")?;
            lateness.answered(asked_at);
        }
    }

    /// When `is_so` gives a value at last, for whoever looks for the reason.
    fn how_late<T>(
        &mut self,
        begin: u64,
        mut is_so: impl FnMut(&mut Self) -> Result<Option<T>, Lost>,
    ) -> Result<String, Lost> {
        while now() - begin < FORGOTTEN_MICROS {
            self.main.ask("PING")?;
            if is_so(self)?.is_some() {
                return Ok(format!("but after {} ms", (now() - begin) / 1_000));
            }
        }
        Ok(format!("nor after {} ms", FORGOTTEN_MICROS / 1_000))
    }

    pub(crate) fn another(&self) -> Result<Connection, Lost> {
        Connection::connect(self.port, self.database)
    }

    /// Closes the connection of a waiter, and opens another.
    pub(crate) fn renew(&mut self, waiter: usize) -> Result<(), Lost> {
        self.waiters[waiter] = self.another()?;
        Ok(())
    }
}

pub(crate) fn is_granted(reply: &Value) -> Option<u64> {
    match reply {
        Value::Int(fence) => u64::try_from(*fence).ok(),
        _ => None,
    }
}
