//! What happens to many locks at once, and without a command that names them.
//!
//! Nothing is decided here. The locks that somebody waits for are marked, and settled in the next [`Engine::work`]: such
//! events come in the middle of whatever the server is doing, such as walking over the very tables that a hand-off would
//! change.

use super::Engine;
use crate::lock::{Moment, Suspicion};
use crate::observe::Observer;

impl<C> Engine<C> {
    /// A client's command has these words. True if one of them is a contended lock that is to be looked at sooner than
    /// before.
    pub fn named<'w>(
        &self,
        words: impl Iterator<Item = &'w [u8]>,
        suspicion: impl FnOnce() -> Option<Suspicion>,
        now: impl Fn() -> Moment,
    ) -> bool {
        self.with_queues(|queues| !queues.is_empty() && queues.touch(words, suspicion, now))
    }

    /// This database was emptied (`None`: all of them).
    pub fn flushed(&self, db: Option<i32>) {
        self.evicted.borrow_mut().forget(db);
        self.mark_all(db);
    }

    /// Two databases changed places. Waiters stay with the number of theirs, as those of BLPOP do; what it holds is new.
    pub fn swapped(&self, one: i32, other: i32) {
        self.evicted.borrow_mut().swap(one, other);
        self.mark_all(Some(one));
        self.mark_all(Some(other));
    }

    /// The server has loaded its data.
    pub fn loaded(&self) {
        self.with_observer(Observer::forget_grants);
        self.mark_all(None);
    }

    /// The server has become a primary, or a replica. Whoever decided until now heard of the deletions.
    pub fn role_changed(&self) {
        self.with_observer(Observer::forget_grants);
        self.evicted.borrow_mut().forget(None);
    }

    /// Slots begin to be moved at once. What is evicted does not go with them, unless it is put back before they are copied,
    /// which the server does a little later.
    pub fn slots_begin_to_go(&self) {
        self.evicted.borrow_mut().hurry();
    }

    /// Slots may have come, and others gone.
    pub fn slots_moved(&self) {
        self.with_observer(Observer::doubt_grants);
        self.with_queues(|queues| queues.doubt_all_slots());
    }

    /// What is granted may be granted otherwise from now on, as when a quarantine ends.
    pub fn mark_all(&self, db: Option<i32>) {
        self.with_queues(|queues| queues.mark_all(db));
    }
}
