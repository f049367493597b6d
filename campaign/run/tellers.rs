//! Tellers: each has several connections, and a conversation with the server on them in which the order of
//! everything is certain, because nothing is asked before what came before it was seen.
//!
//! ```text
//!   main        grant m ── sees w0 ── sees w1 ── release, and a try in the same write ── PING PING PING …
//!   waiters     w0 asks ──▲  w1 asks ──▲                                      w0: granted? and not w1, nor the try
//! ```
//!
//! Whether something takes too long is not measured by the clock alone, which goes on when the machine does not: the
//! server must also have answered others many times since, and each answer is a turn of its loop.

mod fences;
mod gone;
mod kept;
mod leases;
mod turns;

pub(crate) use gone::{closed_in_any_way, over_when_told};
pub(crate) use kept::{
    MOST, deletion_in_a_step, evicted, evicted_unwaited, limited, transaction_in_a_step,
};
pub(crate) use turns::handed_on_unseen;

use crate::claims::{Claims, Excuse};
use crate::connection::{Connection, Lost, owners};
use crate::fight::{Field, now};
use redis::Value;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::Seed;

/// Of a teller.
const WAITERS: usize = 8;

/// No lease of a conversation that goes as it should lasts so long.
const LONG: u64 = 60_000;

/// What is to be done at once was not, if so many others were answered since, and so much time has passed.
const ANSWERS: u32 = 20;
const LATE_MICROS: u64 = 100_000;

pub(crate) struct Teller<'c> {
    claims: &'c Claims,
    pub(crate) seed: Seed,
    pub(crate) main: Connection,
    pub(crate) waiters: Vec<Connection>,
    port: u16,
    database: u32,
    /// When this conversation began.
    begun: u64,
    /// What the names of its locks begin with.
    name: String,
    next_lock: u32,
}

pub(crate) type Conversation = fn(&mut Teller<'_>) -> Result<(), Lost>;

/// How often each is to be had.
const ALL: [(usize, Conversation); 13] = [
    (300, turns::order),
    (300, turns::hand_offs),
    // Keeps the server busy.
    (10, turns::unseen),
    (50, turns::twice),
    (50, turns::patience),
    (100, leases::exact),
    // Keeps the server busy.
    (10, leases::in_a_transaction),
    (50, leases::proofs),
    (40, leases::foreign),
    (60, fences::lifted),
    (30, fences::minted),
    (30, gone::deleted_user),
    // Keeps the server busy.
    (10, over_when_told),
];

/// One in so many is a pause, which excuses the others: only of those who talk all the time.
const PAUSES: usize = 500;

/// Converses until it is hushed.
pub(crate) fn tell(at: &Field, mut seed: Seed, pauses: bool) {
    // No other teller has this name, nor had it while this field was fought on.
    let name = format!("{}t{}", at.prefix, at.next_owner.fetch_add(1, SeqCst));
    let mut next_lock = 0;
    while !at.hushed.load(SeqCst) {
        let databases = if at.roams.load(SeqCst) { [0; 4] } else { [0, 0, 2, 5] };
        let database = *seed.pick(&databases);
        let port = at.port_of_tellers();
        let Ok(mut teller) = Teller::connect(&at.claims, port, database, seed.fork(), &name) else {
            if at.is_gone() {
                return gone(&at.claims);
            }
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        teller.next_lock = next_lock;
        while !at.hushed.load(SeqCst) && at.is_at(teller.main.port) {
            let done = match pauses && teller.seed.below(PAUSES) == 0 {
                true => teller.converse(turns::paused),
                false => teller.goes_on(),
            };
            if done.is_err() {
                break;
            }
            at.conversations.fetch_add(1, SeqCst);
        }
        next_lock = teller.next_lock;
        if at.is_gone() {
            return gone(&at.claims);
        }
    }
    // One that fails takes a while to write down why.
    if at.is_gone() {
        gone(&at.claims);
    }
}

/// While there are tellers, nobody ends the server.
fn gone(claims: &Claims) {
    claims.add("L6", Excuse::None, now(), "the server has ended by itself".to_owned());
}

impl<'c> Teller<'c> {
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

    /// A lock that nobody knows.
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

    /// This waiter asks for the lock, and is seen in the queue.
    pub(crate) fn queue(
        &mut self,
        lock: &str,
        waiter: usize,
        owner: &str,
        patience: u64,
    ) -> Result<(), Lost> {
        let asked = format!("LOCK.ACQUIRE {lock} {owner} {LONG} BLOCK {patience}");
        self.waiters[waiter].send(&[asked])?;
        let (begin, mut answers) = (now(), 0);
        while !self.owners(lock)?.iter().any(|seen| seen == owner) {
            let late = answers >= ANSWERS && now() - begin > LATE_MICROS;
            if self.waiters[waiter].has_reply()? {
                // The lock was taken away by somebody, or patience was at an end.
                return Err(Lost);
            }
            if late {
                self.claim("L5", Excuse::Stop, format!("{owner} asked for {lock}, and is nowhere"));
                return Err(Lost);
            }
            answers += 1;
        }
        Ok(())
    }

    /// Who waits for it, oldest first.
    pub(crate) fn owners(&mut self, lock: &str) -> Result<Vec<String>, Lost> {
        owners(&self.main.ask(&format!("LOCK.WAITERS {lock}"))?)
    }

    /// The reply of one who is to be told at once.
    pub(crate) fn reply_soon(&mut self, waiter: usize, what: &str) -> Result<Value, Lost> {
        self.soon(Excuse::Stop, what, |teller| teller.reply_of(waiter))
    }

    /// If there is one by now.
    pub(crate) fn reply_of(&mut self, waiter: usize) -> Result<Option<Value>, Lost> {
        match self.waiters[waiter].has_reply()? {
            true => self.waiters[waiter].receive().map(Some),
            false => Ok(None),
        }
    }

    /// What must be so at once.
    pub(crate) fn soon<T>(
        &mut self,
        excuse: Excuse,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Result<Option<T>, Lost>,
    ) -> Result<T, Lost> {
        let (begin, mut answers) = (now(), 0);
        loop {
            // Counted before: what the server had done by its last answer has arrived.
            let late = answers >= ANSWERS && now() - begin > LATE_MICROS;
            if let Some(so) = is_so(self)? {
                return Ok(so);
            }
            if late {
                self.claim("L5", excuse, format!("{what}: not so after {answers} PINGs"));
                return Err(Lost);
            }
            self.main.ask("PING")?;
            answers += 1;
        }
    }

    pub(crate) fn another(&self) -> Result<Connection, Lost> {
        Connection::connect(self.port, self.database)
    }

    /// Hangs up, and comes again.
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
