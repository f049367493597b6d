//! Locks that the server evicts although they are held: kept in memory, and put back.
//!
//! The key cannot be written in the event that tells of its eviction. It is written in the timer right after, or, if that
//! comes first, by the next command that names it. See [`Evicted`](crate::lock::Evicted) for how many are written at once.

use super::{Authority, Engine, Host, Initiator, Key, Mode, Site, Warning};
use crate::command::Error;
use crate::lock::{Moment, Name, Seen, Stored, Write};

impl<C> Engine<C> {
    /// The server evicts what this key holds, or has evicted it. True if there is something to do soon.
    pub fn evicted(&self, name: Name<'_>, stored: Stored<'_>, now: Moment) -> bool {
        let is_contended = self.waiters_for(name) > 0;
        let is_kept = self.evicted.borrow_mut().keep(name, stored, is_contended, now);
        is_kept || (is_contended && self.with_queues(|queues| queues.mark(name)))
    }

    /// What the key of a lock that somebody waits for held when it was last looked at. `None` if nobody waits.
    pub fn seen(&self, name: Name<'_>) -> Option<Option<Seen>> {
        self.with_queues(|queues| {
            (queues.waiters_for(name) > 0).then(|| queues.seen(name).cloned())
        })
    }

    /// Whether anybody waits for the lock.
    pub fn is_contended(&self, name: Name<'_>) -> bool {
        self.waiters_for(name) > 0
    }

    /// Puts back what is to be put back now.
    pub(super) fn put_back_due<H: Host<Client = C>>(&self, host: &H) {
        loop {
            let next = self.evicted.borrow_mut().next(host.now());
            let Some(name) = next else { break };
            let site = host.site(name.as_name());
            match site.as_ref().map(|site| (site, site.may_write(Initiator::Module))) {
                Some((site, Authority::Yes)) => self.put_back_first(host, site),
                // If the slot stays here, the lock is still held.
                Some((_, Authority::NotNow | Authority::Refused | Authority::ClusterDown)) => {
                    return self.evicted.borrow_mut().wait(host.now());
                }
                // Another server decides, and has heard of the deletion.
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

    /// The same as [`Engine::put_back`], for a key that is not open and that the module may write.
    pub(super) fn put_back_first<H: Host<Client = C>>(&self, host: &H, site: &H::Site<'_>) {
        let name = site.name();
        if self.evicted.borrow().get(name).is_none() {
            return;
        }
        let mut key = site.open(Mode::Write);
        // If the server refuses, it will refuse the next time too: the lock is lost, and free for those who wait.
        if self.put_back(&mut key, name, host.now()).is_err()
            || matches!(key.stored(), Stored::Nothing)
        {
            self.with_queues(|queues| queues.mark(name));
        }
    }

    /// Writes what the key held when it was evicted, if it holds nothing else now and the lease lasts. Called for every key
    /// that is about to be changed, before anybody looks at it.
    pub(super) fn put_back(
        &self,
        key: &mut impl Key,
        name: Name<'_>,
        now: Moment,
    ) -> Result<(), Error> {
        // Nearly always nothing was evicted.
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
