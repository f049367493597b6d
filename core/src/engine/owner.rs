//! Frees the holds and places of an owner that is gone.
//!
//! The module keeps no list of an owner's locks: it would cost memory for every lock that is held. But it remembers some
//! locks for other reasons, and the owner may hold them or wait for them. These are visited one after the other:
//!
//! ```text
//!   contended locks ──► holds bound to connections ──► log ──► most contended locks
//!        │                                                           │
//!        └── at each: take the owner out of the queue; release its hold, as its own RELEASE would
//! ```
//!
//! A step ends when it has freed as many as was asked for, or has visited a few places and taken as long as others can
//! wait, and returns the cursor of the next. As with SCAN, what is there from the first step to the last is found; a place that becomes a hold
//! between two steps may be missed. A memory is only a hint: the key says whether the owner holds the lock.

use super::effort::{Budget, Effort};
use super::{Answer, Authority, Engine, Host, Initiator, Lock};
use crate::command::{Decide, Error};
use crate::lock::{Departed, KeptName, Monotonic, Name, Owner, Proof};
use std::slice;

/// How long a step takes. Shorter than other turns, because what it leaves to the timer has one right after it.
const STEP_MICROS: u64 = 1_000;

/// How many places each step visits, however long it takes: so an owner that has little is dropped in one step.
const FEW: usize = 8;

/// What all steps together may take, however many a client sends at once. A step beyond it visits [`FEW`] places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    until: Monotonic,
    taken_micros: u64,
}

impl Steps {
    const EVERY_MICROS: u64 = 10_000;

    pub(super) const NONE: Self = Self { until: Monotonic::from_micros(0), taken_micros: 0 };

    /// How long a step may take that begins now.
    fn begin(&mut self, now: Monotonic) -> u64 {
        if now >= self.until {
            *self = Self { until: now.plus_micros(Self::EVERY_MICROS), taken_micros: 0 };
        }
        STEP_MICROS.saturating_sub(self.taken_micros)
    }
}

/// A place in one of the memories, as the number that a client shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u64);

impl Cursor {
    /// Before the first place. A client also gets it behind the last.
    const START: Self = Self(0);

    /// Bits for the place. All bits together fit into the 53 that every client can count with.
    const PLACE_BITS: u32 = 48;

    const fn new(memory: u64, place: u64) -> Self {
        Self(memory << Self::PLACE_BITS | place)
    }

    pub const fn number(self) -> u64 {
        self.0
    }

    const fn memory(self) -> u64 {
        self.0 >> Self::PLACE_BITS
    }

    const fn place(self) -> u64 {
        self.0 & ((1 << Self::PLACE_BITS) - 1)
    }
}

impl From<u64> for Cursor {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Freed {
    /// Where the next step begins: [`Cursor::START`] if this was the last.
    pub next: Cursor,
    pub count: usize,
}

impl<H: Host> Engine<'_, H> {
    /// Takes one step for the owner of the request, in the selected database. The request decides to release.
    /// `is_allowed` says whether the client may release the lock itself: others are left alone, and do not count.
    pub fn drop_owner(
        self,
        request: &impl Decide,
        db: i32,
        from: Cursor,
        most: usize,
        is_allowed: impl Fn(Name<'_>) -> bool,
    ) -> Result<Freed, Error> {
        if self.host.authority() == Authority::Replica {
            return Err(Error::DropOnReplica);
        }
        let begun = self.host.monotonic();
        let mut steps = self.memory.drop_steps.get();
        let budget = Budget::new(self.host, usize::MAX, steps.begin(begun));
        let freed = self.drop_within(budget, request, db, from, most, is_allowed);
        let took = self.host.monotonic().micros_since(begun);
        steps.taken_micros = steps.taken_micros.saturating_add(took);
        self.memory.drop_steps.set(steps);
        freed
    }

    fn drop_within(
        self,
        budget: Budget,
        request: &impl Decide,
        db: i32,
        from: Cursor,
        most: usize,
        is_allowed: impl Fn(Name<'_>) -> bool,
    ) -> Result<Freed, Error> {
        let owner = request.owner()?;
        let (mut next, mut count, mut visited) = (from, 0_usize, 0_usize);
        while let Some((behind, name)) = self.remembered(owner, next) {
            (next, visited) = (behind, visited.saturating_add(1));
            if let Some(name) = name.filter(|name| name.db == db) {
                let lock = self.host.beside(name.as_name());
                count = count.saturating_add(self.drop_place(&lock, owner, &is_allowed));
                count = count.saturating_add(self.drop_hold(&lock, request, &is_allowed)?);
            }
            let is_long = visited >= FEW && budget.is_used_up(self.host, Effort::default());
            if count >= most || is_long {
                return Ok(Freed { next, count });
            }
        }
        Ok(Freed { next: Cursor::START, count })
    }

    /// The next place, and the lock at this place, if the owner may have something to do with it. `None` behind the
    /// last.
    fn remembered(self, owner: Owner<'_>, at: Cursor) -> Option<(Cursor, Option<KeptName>)> {
        let place = usize::try_from(at.place()).ok()?;
        let found = match at.memory() {
            0 => self.with_queues(|queues| queues.lock_from(place)),
            1 => self.bindings.borrow().hold_from(place, owner),
            2 => self.with_observer(|observer| observer.log.lock_from(place, owner)),
            3 => self.with_observer(|observer| observer.contention.lock_at(place)),
            _ => return None,
        };
        Some(match found {
            Some((found_at, name)) => {
                let behind = u64::try_from(found_at).ok()?.saturating_add(1);
                (Cursor::new(at.memory(), behind), name)
            }
            None => (Cursor::new(at.memory().saturating_add(1), 0), None),
        })
    }

    /// Takes the owner out of the lock's queue, and out of those of all locks that it waits for together with this one.
    /// Returns how many places it had.
    fn drop_place(
        self,
        lock: &H::Lock<'_>,
        owner: Owner<'_>,
        is_allowed: impl Fn(Name<'_>) -> bool,
    ) -> usize {
        let waiter = self.with_queues(|queues| queues.waiter_as(lock.name(), owner));
        let Some(waiter) = waiter else { return 0 };
        let names = self.with_queues(|queues| queues.names_of(waiter));
        if !may_be_changed(lock) || !names.iter().all(|name| is_allowed(name.as_name())) {
            return 0;
        }
        let left = self.with_queues(|queues| queues.leave(waiter));
        let Some(Departed { name, waiter }) = left else { return 0 };
        self.changes_due();
        let _told = self.answer(name.as_name(), waiter, Answer::Refused(Error::Dropped));
        names.len()
    }

    /// Releases the owner's hold of the lock. A key that cannot be opened now is left alone.
    fn drop_hold(
        self,
        lock: &H::Lock<'_>,
        request: &impl Decide,
        is_allowed: impl Fn(Name<'_>) -> bool,
    ) -> Result<usize, Error> {
        let proof = Proof { owner: request.owner()?, fence: None };
        // A value without an expiry that equals the owner may be anything.
        let holds = matches!(self.end_of(lock, &proof), Ok((Some(Some(_)), _)));
        if !holds || !is_allowed(lock.name()) || !may_be_changed(lock) {
            return Ok(0);
        }
        match self.change(slice::from_ref(lock), request) {
            Ok(done) => Ok(done.released),
            Err(Error::NotNow | Error::WrongType) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// The server has accepted the command, but has checked none of these keys.
fn may_be_changed(lock: &impl Lock) -> bool {
    lock.may_write(Initiator::Module) == Authority::Yes
}
