//! Locks that the server evicts although they are held: kept in memory, and put back.
//!
//! The key cannot be written during the event that announces its eviction. The timer writes it right after; or the next
//! command that names the key does, if it comes first. [`Evicted`](crate::lock::Evicted) says how many keys are written
//! at once.

use super::{Authority, Engine, Host, Initiator, Key, Lock, Mode, Warning};
use crate::command::Error;
use crate::lock::{Moment, Name, Seen, Stored, Write};

impl<C> Engine<C> {
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

    /// Whether anybody waits for the lock.
    pub fn is_contended(&self, name: Name<'_>) -> bool {
        self.waiters_for(name) > 0
    }

    /// Puts back as many evicted locks as may be put back now.
    pub(super) fn put_back_due<H: Host<Client = C>>(&self, host: &H) {
        loop {
            let next = self.evicted.borrow_mut().next(host.now());
            let Some(name) = next else { break };
            let lock = host.lock(name.as_name());
            match lock.as_ref().map(|lock| (lock, lock.may_write(Initiator::Module))) {
                Some((lock, Authority::Yes)) => self.open_and_put_back(host, lock),
                // If the slot stays here, the lock is still held.
                Some((_, Authority::NotNow | Authority::Refused | Authority::ClusterDown)) => {
                    return self.evicted.borrow_mut().wait(host.now());
                }
                // Another server decides, and the deletion was replicated to it.
                Some((_, Authority::Replica | Authority::NotOurs)) | None => {
                    self.evicted.borrow_mut().remove(name.as_name());
                }
            }
        }
        let missing = {
            let mut evicted = self.evicted.borrow_mut();
            evicted.complains(host.now()).then(|| evicted.len())
        };
        if let Some(missing) = missing {
            host.warn(Warning::EvictedTooFast { missing });
        }
    }

    /// Opens the key of a lock that the module may write, and puts the lock back if it was evicted.
    pub(super) fn open_and_put_back<H: Host<Client = C>>(&self, host: &H, lock: &H::Lock<'_>) {
        let name = lock.name();
        if self.evicted.borrow().get(name).is_none() {
            return;
        }
        let mut key = lock.open(Mode::Write);
        // A server that refuses now will refuse again: the lock is lost, and free for its waiters.
        if self.put_back(&mut key, name, host.now()).is_err()
            || matches!(key.stored(), Stored::Nothing)
        {
            self.with_queues(|queues| queues.mark(name));
        }
    }

    /// Writes what the key held when it was evicted, if it holds nothing now and the lease lasts. Every key passes here
    /// before anybody looks at it in order to change it.
    pub(super) fn put_back(
        &self,
        key: &mut impl Key,
        name: Name<'_>,
        now: Moment,
    ) -> Result<(), Error> {
        // Usually nothing was evicted, so this costs one comparison.
        if self.evicted.borrow().is_empty() {
            return Ok(());
        }
        let evicted = self.evicted.borrow_mut().take(name, key.stored(), now);
        if let Some(seen) = evicted {
            key.write(Write::Restore(&seen))?;
            self.with_observer(|observer| observer.note_restored(name, &seen, now));
        }
        Ok(())
    }
}
