//! What happens to many locks at once, and without a command that names them.
//!
//! Nothing is decided here. The contended locks are marked, and the next [`Engine::work`] settles them. Such events
//! come in the middle of whatever the server does: it may be walking over the very tables that a hand-off would change.

use super::Engine;
use super::unheard::UnheardGrants;
use crate::lock::{Moment, Suspicion};
use crate::observe::Observer;

impl<C> Engine<C> {
    /// A client's command has these words. It may do what `suspicion` says to any locks among them.
    pub fn suspect<'w>(
        &self,
        words: impl Iterator<Item = &'w [u8]>,
        suspicion: impl FnOnce() -> Option<Suspicion>,
        now: impl Fn() -> Moment,
    ) {
        let is_sooner =
            self.with_queues(|queues| !queues.is_empty() && queues.suspect(words, suspicion, now));
        if is_sooner {
            self.changes_due();
        }
    }

    /// This database was emptied (`None`: all of them).
    pub fn flushed(&self, db: Option<i32>) {
        self.evicted.borrow_mut().forget(db);
        self.bindings.borrow_mut().doubt(db);
        self.mark_all(db);
    }

    /// Two databases changed places. A waiter stays with its database number, as a client blocked in BLPOP does, but
    /// the database has other keys now.
    pub fn swapped(&self, one: i32, other: i32) {
        self.evicted.borrow_mut().swap(one, other);
        self.bindings.borrow_mut().swap(one, other);
        self.mark_all(Some(one));
        self.mark_all(Some(other));
    }

    /// The server has loaded its data. Any key may have changed.
    pub fn loaded(&self) {
        self.with_observer(Observer::forget_grants);
        self.mark_all(None);
    }

    /// The server has become a primary, or a replica. Evictions are replicated as deletions, so the evicted locks are
    /// gone for the other server, too.
    pub fn role_changed(&self) {
        self.with_observer(Observer::forget_grants);
        self.evicted.borrow_mut().forget(None);
        *self.unheard.borrow_mut() = UnheardGrants::new();
        self.forget_bindings();
    }

    /// Slots begin to move, each with all its keys. The server copies the keys a little later. Evicted locks move with
    /// them only if they are put back before.
    pub fn slots_begin_to_go(&self) {
        self.evicted.borrow_mut().hurry();
        self.changes_due();
    }

    /// Slots may have come, and others gone. A hold that comes back may have been bound elsewhere meanwhile.
    pub fn slots_moved(&self) {
        self.bindings.borrow_mut().doubt(None);
        self.with_observer(Observer::doubt_grants);
        self.with_queues(|queues| queues.doubt_all_slots());
        self.changes_due();
    }

    /// The locks of this database (`None`: of all) may be granted from now on, as when a quarantine ends.
    pub fn mark_all(&self, db: Option<i32>) {
        self.with_queues(|queues| queues.mark_all(db));
        self.changes_due();
    }
}
