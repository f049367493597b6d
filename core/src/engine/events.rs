//! What happens to many locks at once, and without a command that names them.
//!
//! Nothing is decided here. The contended locks are marked, and the next [`Engine::work`] settles them. Such events
//! come in the middle of whatever the server does: it may be walking over the very tables that a hand-off would change.
//!
//! The key of a lock that is evicted although it is held cannot be written during the event that announces the eviction.
//! The timer writes it right after; or the next command that names the key does, if it comes first.
//! [`Evicted`](crate::lock::Evicted) says how many keys are written at once.

use super::unheard::UnheardGrants;
use super::{Authority, Engine, Host, Initiator, Key, Lock, Memory, Mode, Warning};
use crate::command::Error;
use crate::lock::{Moment, Name, Seen, Stored, Suspicion, Write};
use crate::observe::Observer;

impl<C> Memory<C> {
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

    /// The server evicts what this key holds, or has evicted it. True if the engine has work now.
    pub fn evicted(&self, name: Name<'_>, stored: Stored<'_>, now: Moment) -> bool {
        let is_contended = self.is_contended(name);
        let is_kept = self.evicted.borrow_mut().keep(name, stored, is_contended, now);
        let has_work = is_kept || (is_contended && self.with_queues(|queues| queues.mark(name)));
        if has_work {
            self.changes_due();
        }
        has_work
    }

    /// What the key of a contended lock held when it was last looked at. `None` if nobody waits.
    pub fn seen(&self, name: Name<'_>) -> Option<Option<Seen>> {
        self.with_queues(|queues| {
            (queues.waiters_for(name) > 0).then(|| queues.seen(name).cloned())
        })
    }

    pub fn is_contended(&self, name: Name<'_>) -> bool {
        self.waiters_for(name) > 0
    }

    /// Writes what the key held when it was evicted, if it holds nothing now and the lease lasts. Every key passes here
    /// before anybody looks at it in order to change it.
    #[inline(always)]
    pub(super) fn put_back(
        &self,
        key: &mut impl Key,
        name: Name<'_>,
        now: Moment,
    ) -> Result<(), Error> {
        // Usually nothing was evicted, so this costs one comparison.
        if self.evicted.borrow().is_empty() { Ok(()) } else { self.put_back_one(key, name, now) }
    }

    #[inline(never)]
    fn put_back_one(&self, key: &mut impl Key, name: Name<'_>, now: Moment) -> Result<(), Error> {
        let evicted = self.evicted.borrow_mut().take(name, key.stored(), now);
        if let Some(seen) = evicted {
            key.write(&Write::Restore(&seen))?;
            self.with_observer(|observer| observer.note_restored(name, &seen, now));
        }
        Ok(())
    }
}

impl<H: Host> Engine<'_, H> {
    /// Puts back as many evicted locks as may be put back now.
    pub(super) fn put_back_due(self) {
        loop {
            let next = self.evicted.borrow_mut().next(self.host.now());
            let Some(name) = next else { break };
            let lock = self.host.lock(name.as_name());
            match lock.as_ref().map(|lock| (lock, lock.may_write(Initiator::Module))) {
                Some((lock, Authority::Yes)) if self.open_and_put_back(lock).is_ok() => {}
                // Another server decides, and the deletion was replicated to it.
                Some((_, Authority::Replica | Authority::NotOurs)) | None => {
                    self.evicted.borrow_mut().remove(name.as_name());
                }
                // If the slot stays here, the lock is still held.
                Some(_) => return self.evicted.borrow_mut().wait(self.host.now()),
            }
        }
        let missing = {
            let mut evicted = self.evicted.borrow_mut();
            evicted.complains(self.host.now()).then(|| evicted.len())
        };
        if let Some(missing) = missing {
            self.host.warn(Warning::EvictedTooFast { missing });
        }
    }

    /// Opens the key of a lock that the module may write, and puts the lock back if it was evicted. The lock stays kept
    /// if the key cannot be opened.
    pub(super) fn open_and_put_back(self, lock: &H::Lock<'_>) -> Result<(), Error> {
        let name = lock.name();
        if self.evicted.borrow().get(name).is_none() {
            return Ok(());
        }
        let mut key = lock.open(Mode::Write)?;
        // A server that refuses now will refuse again: the lock is lost, and free for its waiters.
        if self.put_back(&mut key, name, self.host.now()).is_err()
            || matches!(key.stored(), Stored::Nothing)
        {
            self.with_queues(|queues| queues.mark(name));
        }
        Ok(())
    }
}
