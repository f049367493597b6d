//! A client's request about one lock.

use super::disconnecting::Parted;
use super::{Engine, Host, Initiator, Key, Lock, Mode, Warning};
use crate::command::{Decide, Error};
use crate::lock::{
    self, Changed, Checked, FenceClock, Hold, Moment, Outcome, Owner, Ownership, Proof, Seen,
    Stored, Write,
};
use crate::observe::Given;

impl<C> Engine<C> {
    /// Lets a request decide what becomes of its lock, and carries that out.
    ///
    /// If anybody waits for the lock, this is where it changes hands: the lock is settled before the
    /// request if it is suspected, and after the request if that changed it.
    pub fn change<'r, H: Host<Client = C>>(
        &self,
        host: &H,
        lock: &H::Lock<'_>,
        request: &'r impl Decide,
    ) -> Result<Outcome<'r>, Error> {
        let ephemeral = self.ephemeral(host, request)?;
        let waiters = self.settle_if_suspect(host, lock, request.owner().ok());
        lock.prepare();
        let mut key = lock.open(Mode::Write);
        let now = host.now();
        self.put_back(&mut key, lock.name(), now)?;
        let stored = key.stored();
        if stored.may_be_granted(now) {
            lock.about_to_grant();
        }
        let mut write = Write::Keep;
        let outcome = self.consult(host, |fences| {
            let holders = stored.holders(request.owner()?, now, fences)?;
            let outcome = request.decide(&holders, waiters, now, fences)?;
            write = outcome.write(&holders);
            Ok::<_, Error>(outcome)
        })?;
        let changed = write.changes();
        let is_overlooked = waiters > 0 && changed == Changed::Nothing && stored.is_free(now);
        key.write(write)?;
        drop(key);
        // Somebody waits for a lock that nobody holds, and nothing told so.
        if is_overlooked && !self.fences.get().is_quarantined() {
            self.with_queues(|queues| queues.mark(lock.name()));
            self.changes_due();
        }
        // Not before the write: if that is refused, the client gets an error, and nothing that it could count on.
        if let Some(fence_number) = outcome.confirmed() {
            self.mark_delivered(fence_number);
        }
        self.rebind(lock.name(), request.owner()?, &outcome);
        if let Some(ephemeral) = ephemeral {
            self.bind(host, lock.name(), &outcome, ephemeral, now);
        }
        self.report(lock, &outcome, Given::Asked, now);
        if waiters > 0 && request.gives_up_ticket() {
            self.give_up_ticket(host, lock.name(), request.owner()?);
        }
        if waiters > 0 && changed != Changed::Nothing {
            if changed == Changed::Value {
                self.with_queues(|queues| queues.forget_seen(lock.name()));
            }
            self.settle(host, lock, Initiator::Client, Ownership::Ours);
        }
        Ok(outcome)
    }

    /// Whether this proof is of the hold in force. A client that is told so counts on it.
    pub fn check<H: Host<Client = C>>(
        &self,
        host: &H,
        lock: &H::Lock<'_>,
        proof: &Proof<'_>,
    ) -> Result<Checked, Error> {
        let (name, evicted) = (lock.name(), self.evicted_value(lock));
        let key = lock.open(Mode::Read);
        let (stored, now) = (with_evicted(key.stored(), evicted.as_ref()), host.now());
        let holders = self.consult(host, |fences| stored.holders(proof.owner, now, fences))?;
        let checked = lock::check(&holders, proof);
        let Checked::Holds { fence_number } = checked else { return Ok(checked) };
        if self.is_pending_release(name, fence_number)
            || self.over_with_connections(host, name).has(proof.owner.as_bytes(), fence_number)
        {
            return Ok(Checked::NotHolder);
        }
        self.mark_delivered(fence_number);
        Ok(checked)
    }

    /// What `look` makes of the holds in force, the oldest first, of how many wait, and of the time.
    ///
    /// A command that only reads must not write, but it tells what the lock is about to become: an
    /// evicted lock is held, and a grant that is about to be taken back is none.
    pub fn read<H: Host<Client = C>, T>(
        &self,
        host: &H,
        lock: &H::Lock<'_>,
        look: impl FnOnce(&mut dyn Iterator<Item = Hold<'_>>, usize, Moment) -> T,
    ) -> Result<T, Error> {
        let (name, evicted) = (lock.name(), self.evicted_value(lock));
        let waiters = self.waiters_for(name);
        let key = lock.open(Mode::Read);
        let (stored, now) = (with_evicted(key.stored(), evicted.as_ref()), host.now());
        let holds = self.consult(host, |fences| stored.holds(now, fences))?;
        let pending = self.pending_releases_of(name);
        let over = self.over_with_connections(host, name);
        let is_in_force = |hold: &Hold<'_>| {
            pending.as_ref().is_none_or(|fences| !fences.contains(&hold.fence_number()))
                && !over.has(hold.owner, hold.fence_number())
        };
        Ok(look(&mut holds.filter(is_in_force), waiters, now))
    }

    pub(super) fn evicted_value(&self, lock: &impl Lock) -> Option<Seen> {
        self.evicted.borrow().get(lock.name()).cloned()
    }

    /// Makes the key say what is true of the lock, before anybody looks at it. Returns how many wait
    /// for the lock then.
    #[inline]
    pub(super) fn settle_if_suspect<H: Host<Client = C>>(
        &self,
        host: &H,
        lock: &H::Lock<'_>,
        asker: Option<Owner<'_>>,
    ) -> usize {
        // Nearly always nobody waits for anything.
        let nobody_waits = self.queues.borrow().is_empty();
        if nobody_waits && !self.has_pending_releases() && !self.has_ended_connections() {
            return 0;
        }
        self.settle_suspected(host, lock, asker)
    }

    #[inline(never)]
    fn settle_suspected<H: Host<Client = C>>(
        &self,
        host: &H,
        lock: &H::Lock<'_>,
        asker: Option<Owner<'_>>,
    ) -> usize {
        self.take_back_pending(host, lock);
        self.part_pending(host, lock, asker, host.batch());
        let name = lock.name();
        let waiters = self.queues.borrow().waiters_if_settled(name);
        waiters.unwrap_or_else(|| {
            self.settle(host, lock, Initiator::Client, Ownership::Ours);
            // The asker may have been granted the lock just now, for a connection of its own that has ended since it
            // asked there.
            if self.part_own(host, lock, asker) == Parted::Own {
                self.settle(host, lock, Initiator::Client, Ownership::Ours);
            }
            self.waiters_for(name)
        })
    }

    /// Lends the fence clock to a decision. Warns if the decision met a fence that the clock will not
    /// learn: somebody wrote it by hand, or a clock somewhere is wrong by more than a day.
    pub(super) fn consult<H: Host, T>(
        &self,
        host: &H,
        decide: impl FnOnce(&mut FenceClock) -> T,
    ) -> T {
        let refused = self.fences.get().refused();
        let outcome = self.with_fences(|| host.monotonic(), decide);
        if self.fences.get().refused() != refused && self.may_complain(host.monotonic()) {
            host.warn(Warning::FenceNotCredible);
        }
        outcome
    }

    /// Tells the observer and the listeners to key events what a request came to. No key is open.
    pub(super) fn report(
        &self,
        lock: &impl Lock,
        outcome: &Outcome<'_>,
        given: Given,
        now: Moment,
    ) {
        let events = self.with_observer(|observer| observer.note(lock.name(), outcome, given, now));
        events.iter().flatten().for_each(|event| lock.publish(*event));
    }
}

/// What a key holds, or is about to hold once more: what it held when it was evicted.
pub(super) fn with_evicted<'v>(stored: Stored<'v>, evicted: Option<&'v Seen>) -> Stored<'v> {
    match (stored, evicted) {
        (Stored::Nothing, Some(evicted)) => evicted.as_stored(),
        (stored, _) => stored,
    }
}
