//! What a client holds, and what it gives back, whichever of its keepers does the work.
//!
//! Whoever closes the client reads it here. A keeper on a runtime that nobody drives could not be
//! asked.

use crate::Loss;
use crate::home::Home;
use crate::lease::Lease;
use crate::releases::{Outcome, Releases};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

#[derive(Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    held: HashMap<u64, Held>,
    releases: Releases,
    /// Nothing is to be held any more.
    closed: bool,
}

/// A lease that has a guard.
struct Held {
    lease: Arc<Lease>,
    /// Whose keepers renew it. There are several where guards of several runtimes share it.
    kept_by: Vec<Home>,
}

/// What is to be done about a lease that a runtime has a guard of.
pub(crate) enum Keeping {
    Keep,
    IsKept,
    /// The client is closed: it is to be released, by this number.
    GiveBack {
        number: u64,
    },
    /// It is over already.
    Nothing,
}

/// What is to be done about a lease whose last guard is gone.
pub(crate) enum Leaving {
    /// Nothing: the client was closed before.
    Closed,
    /// It is to end by itself.
    LetEnd {
        kept_by: Vec<Home>,
    },
    Release {
        number: u64,
        kept_by: Vec<Home>,
    },
}

impl Ledger {
    pub(crate) fn keep(&self, lease: &Arc<Lease>, home: Home) -> Keeping {
        let mut books = self.books();
        if books.closed {
            return match books.give_back(lease, home) {
                Some(number) => Keeping::GiveBack { number },
                None => Keeping::Nothing,
            };
        }
        let new = || Held { lease: Arc::clone(lease), kept_by: Vec::new() };
        let held = books.held.entry(lease.id).or_insert_with(new);
        if held.kept_by.contains(&home) {
            return Keeping::IsKept;
        }
        held.kept_by.push(home);
        Keeping::Keep
    }

    pub(crate) fn kept_by(&self, id: u64) -> Vec<Home> {
        self.books().held.get(&id).map(|held| held.kept_by.clone()).unwrap_or_default()
    }

    /// The runtime of this keeper has ended. Whether nobody is left who renews the lease.
    pub(crate) fn is_orphaned(&self, id: u64, by: Home) -> bool {
        let mut books = self.books();
        let Some(held) = books.held.get_mut(&id) else { return true };
        held.kept_by.retain(|home| *home != by);
        held.kept_by.is_empty()
    }

    /// In one step, so that whoever closes the client either releases it or sees its release.
    pub(crate) fn leave(&self, lease: &Arc<Lease>, by: Home) -> Leaving {
        let mut books = self.books();
        let held = books.held.remove(&lease.id);
        let kept_by = held.map(|held| held.kept_by).unwrap_or_default();
        lease.end(Loss::Released);
        if lease.ended() == Some(Loss::Closed) {
            return Leaving::Closed;
        }
        if lease.is_kept() {
            return Leaving::LetEnd { kept_by };
        }
        let number = books.releases.begin(lease.key.clone(), Some(Arc::clone(lease)), by);
        Leaving::Release { number, kept_by }
    }

    /// A release of what may have been granted.
    pub(crate) fn begin(&self, key: String, by: Home) -> u64 {
        self.books().releases.begin(key, None, by)
    }

    pub(crate) fn pass_on(&self, number: u64, by: Home) {
        self.books().releases.pass_on(number, by);
    }

    pub(crate) fn end(&self, number: u64, outcome: Outcome) {
        let mut books = self.books();
        let key = books.releases.end(number);
        // Earlier failures are known to whoever had to know of them.
        if let Some(key) = key
            && outcome == Outcome::Failed
            && books.closed
        {
            books.releases.note_failure(key);
        }
    }

    /// The keys of what this keeper was to release. Nobody does it any more.
    pub(crate) fn give_up(&self, by: Home) -> Vec<String> {
        self.books().releases.give_up(by)
    }

    /// All that is held is to be released, by these numbers.
    pub(crate) fn close(&self, by: Home) -> Vec<(u64, Arc<Lease>)> {
        let mut books = self.books();
        books.closed = true;
        let held: Vec<_> = books.held.values().map(|held| Arc::clone(&held.lease)).collect();
        let numbered = |lease: Arc<Lease>| Some((books.give_back(&lease, by)?, lease));
        held.into_iter().filter_map(numbered).collect()
    }

    pub(crate) fn of_others(&self, home: Home) -> Vec<(u64, Arc<Lease>)> {
        self.books().releases.of_others(home)
    }

    pub(crate) fn tell_when_done(&self, done: oneshot::Sender<()>) {
        self.books().releases.tell_when_done(done);
    }

    pub(crate) fn undone(&self) -> Vec<String> {
        self.books().releases.undone()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Whatever guards it has. None if it is over, or to end by itself.
    fn give_back(&mut self, lease: &Arc<Lease>, by: Home) -> Option<u64> {
        if !lease.end(Loss::Closed) || lease.is_kept() {
            return None;
        }
        Some(self.releases.begin(lease.key.clone(), Some(Arc::clone(lease)), by))
    }
}
