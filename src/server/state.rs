//! What the module remembers between two calls: the fence clock, and the counters.
//!
//! The keyspace is the only state of a lock; nothing here is needed to know who holds one.

use crate::lock::{FenceClock, Moment};
use std::cell::Cell;

const MILLIS_BETWEEN_COMPLAINTS: u64 = 60_000;

/// The one instance.
pub(super) static STATE: State = State {
    fences: Cell::new(FenceClock::new()),
    panics_caught: Cell::new(0),
    learning: Cell::new(false),
    complained: Cell::new(None),
};

pub(super) struct State {
    fences: Cell<FenceClock>,
    pub(super) panics_caught: Cell<u64>,
    /// Whether grants are being applied here that others made.
    pub(super) learning: Cell<bool>,
    /// When the log last heard of a fence that was refused.
    complained: Cell<Option<Moment>>,
}

// SAFETY: the server calls every entry of a module on its main thread (with io-threads too: those
// read and write sockets, they do not execute commands), and the module starts no thread. A forked child
// has its own copy.
unsafe impl Sync for State {}

impl State {
    /// Forgets everything: a module that is loaded again begins anew, also where the C library kept the old
    /// one in memory.
    pub(super) fn reset(&self) {
        self.fences.set(FenceClock::new());
        self.panics_caught.set(0);
        self.learning.set(false);
        self.complained.set(None);
    }

    /// Lends the fence clock out. The clock is copied and put back, so that even a nested call, should a
    /// server ever make one, could not borrow it twice.
    pub(super) fn with_fences<T>(&self, body: impl FnOnce(&mut FenceClock) -> T) -> T {
        let mut fences = self.fences.get();
        let outcome = body(&mut fences);
        self.fences.set(fences);
        outcome
    }

    /// Whether a minute has passed since this last said yes: clients must not be able to fill the log.
    pub(super) fn may_complain(&self, now: Moment) -> bool {
        let due = self
            .complained
            .get()
            .is_none_or(|last| now.millis().abs_diff(last.millis()) >= MILLIS_BETWEEN_COMPLAINTS);
        if due {
            self.complained.set(Some(now));
        }
        due
    }

    pub(super) fn fences(&self) -> FenceClock {
        self.fences.get()
    }
}
