//! Whether a waiter learns of its grant, and what happens to a grant that was not delivered.

use super::effort::{Budget, Effort};
use super::pending::PendingRelease;
use super::unheard::Unheard;
use super::{
    Announced, Answer, Authority, Engine, Host, Initiator, Key, Lock, Memory, Mode, PAUSE_MILLIS,
    WaiterGrant,
};
use crate::command::Error;
use crate::lock::{
    self, Checked, Deadline, Departed, Fence, FenceClock, Holders, KeptOwner, KeptWait, Moment,
    Monotonic, Name, Outcome, Owner, Proof, Stored, Ttl, WaitKind, Waiter,
};
use crate::observe::{Event, Observer, WaitEnd};

impl<H: Host> Engine<'_, H> {
    /// Tells a client that has left its queue how its wait ended. Returns the effort of telling subscribers.
    pub(super) fn answer(
        self,
        name: Name<'_>,
        waiter: Waiter<H::Client>,
        answer: Answer,
    ) -> Effort {
        let Waiter { owner, since, wait, .. } = waiter;
        let end = match (&answer, wait.kind()) {
            (Answer::Granted { .. } | Answer::Again { .. }, _) => WaitEnd::Granted,
            (Answer::GaveUp, WaitKind::Blocked) => WaitEnd::TimedOut,
            (Answer::GaveUp, WaitKind::Ticket) => WaitEnd::Abandoned,
            (Answer::Refused(_), _) => WaitEnd::Refused,
        };
        self.wait_ended(name, &owner, since, end);
        let ticket = match wait {
            KeptWait::Ticket(ticket) => ticket,
            KeptWait::Blocked(client) => {
                if let Answer::Granted { fence, .. } = answer {
                    self.undelivered.borrow_mut().insert(fence.number());
                }
                self.host.answer(name, client, owner, answer);
                return Effort::default();
            }
        };
        match (self.host.announce(name, &ticket, owner.as_owner(), &answer), answer) {
            (Announced::To { receivers: 0 }, Answer::Granted { names, fence, deadline }) => {
                let channel = ticket.channel.as_deref().unwrap_or_default();
                self.keep_unheard(WaiterGrant { names, owner, fence }, deadline, channel);
                Effort::default()
            }
            (Announced::To { receivers }, _) => Effort::of_telling(receivers),
            (Announced::Silently, _) => Effort::default(),
        }
    }

    /// The waiter that this grant was made to will never learn of it. The grant is taken back unless the same owner has
    /// learned of it on another connection: the lock must not stay with an owner that does not know that it has it. The
    /// release is only queued here, because the server is in the middle of closing a connection.
    pub fn mark_undeliverable(self, grant: WaiterGrant) {
        let is_undelivered = self.undelivered.borrow_mut().remove(&grant.fence.number());
        if is_undelivered {
            self.queue_releases(&grant, self.host.monotonic());
        }
    }

    /// Whether a lease ended before its client could be told of it, as when a script took longer than the lease. If the
    /// deadline has passed, the key decides: the owner may have extended the lease meanwhile on another connection.
    pub fn lease_is_over<'s>(
        self,
        owner: &KeptOwner,
        fence_number: u64,
        deadline: Deadline,
        lock: impl FnOnce() -> H::Lock<'s>,
    ) -> bool
    where
        H: 's,
    {
        let now = self.host.now();
        if !deadline.has_passed(now) {
            return false;
        }
        let lock = lock();
        let Ok(key) = lock.open(Mode::Read) else { return true };
        let proof = Proof::of(owner, fence_number);
        let holders = self.holders_in(key.stored(), &proof, now);
        holders.is_none_or(|holders| lock::check(&holders, &proof) == Checked::NotHolder)
    }

    /// The holders as the owner of this proof sees them. `None` if the key is not a lock.
    pub(super) fn holders_in<'k>(
        self,
        stored: Stored<'k>,
        proof: &Proof<'_>,
        now: Moment,
    ) -> Option<Holders<'k>> {
        let look = |fences: &mut FenceClock| stored.holders(proof.owner, now, fences).ok();
        self.with_fences(|| self.host.monotonic(), look)
    }

    /// The end of the hold that this proof is of, and the effort of the look. `None` if there is no such hold, or
    /// another server decides about it. Called while the module may write.
    pub(super) fn end_of(
        self,
        lock: &H::Lock<'_>,
        proof: &Proof<'_>,
    ) -> Result<(Option<Option<Deadline>>, Effort), Error> {
        if lock.may_read() == Authority::NotOurs {
            return Ok((None, Effort::ROUND));
        }
        let evicted = self.evicted_value(lock);
        let key = lock.open(Mode::Peek)?;
        let stored = key.stored().or(evicted.as_ref());
        let effort = Effort::of_round(stored);
        let holders = self.holders_in(stored, proof, self.host.now());
        let own = holders.as_ref().and_then(Holders::own).filter(|own| own.matches(proof));
        Ok((own.map(|own| own.deadline), effort))
    }

    /// Takes back the undelivered grants that are due, as many as fit in one turn.
    pub(super) fn take_back_due(self) {
        let now = self.host.monotonic();
        let (budget, mut effort) = (Budget::of(self.host, self.host.batch()), Effort::default());
        while !budget.is_used_up(self.host, effort) {
            let due = self.pending_releases.borrow_mut().take_due(now);
            let Some(pending) = due else { return };
            if let Some(lock) = self.host.lock(pending.name.as_name()) {
                effort.add(self.take_back(&lock, &pending));
            }
        }
    }

    /// Takes back the undelivered grants of this lock before a command looks at it. Otherwise their owner could come
    /// back, be told that it holds the lock, and lose it. The asker's come first, then others, at most `most` in all: each
    /// costs a read of the whole value, and the timer takes back the rest.
    pub(super) fn take_back_pending(
        self,
        lock: &H::Lock<'_>,
        asker: Option<Owner<'_>>,
        most: usize,
    ) {
        if !self.has_pending_releases() {
            return;
        }
        let pending = self.pending_releases.borrow_mut().take_of(lock.name(), asker, most);
        let (budget, mut effort) = (Budget::of(self.host, most), Effort::default());
        let mut is_over = false;
        for pending in pending {
            let is_askers = Some(pending.owner.as_owner()) == asker;
            if is_over && !is_askers {
                self.changes_due();
                self.pending_releases.borrow_mut().add(pending, self.host.monotonic());
                continue;
            }
            effort.add(self.take_back(lock, &pending));
            is_over = budget.is_used_up(self.host, effort);
        }
    }

    fn take_back(self, lock: &H::Lock<'_>, pending: &PendingRelease) -> Effort {
        let put_off = || {
            let due = self.host.monotonic().plus_millis(PAUSE_MILLIS);
            self.pending_releases.borrow_mut().add(pending.clone(), due);
            Effort::ROUND
        };
        match lock.may_write(Initiator::Module) {
            Authority::Yes => {}
            Authority::NotNow | Authority::Refused => return put_off(),
            // If the grant was replicated, the server that decides now has it. Its lease ends it.
            Authority::Replica | Authority::NotOurs | Authority::ClusterDown => {
                return Effort::ROUND;
            }
        }
        let proof = Proof::of(&pending.owner, pending.fence.number());
        let Ok((end, looked)) = self.end_of(lock, &proof) else { return put_off() };
        if end.is_none() {
            return looked;
        }
        let note = |observer: &mut Observer, _: &Outcome<'_>, _, _| {
            observer.note_taken_back(lock.name(), pending.fence);
            Some(Event::Released)
        };
        // If the server refuses, the lease ends the hold.
        let Ok(effort) = self.shorten(lock, &proof, None, note) else { return Effort::ROUND };
        self.unbind(lock.name(), proof.owner, pending.fence.number());
        effort
    }

    /// Keeps a grant that no subscriber received, and shortens the leases of its holds.
    pub(super) fn keep_unheard(self, grant: WaiterGrant, deadline: Deadline, channel: &[u8]) {
        for name in grant.names.iter() {
            self.shorten_unheard(name.as_name(), &grant.owner, grant.fence);
        }
        let left = deadline.millis().saturating_sub(self.host.now().millis());
        let due = self.host.monotonic().plus_millis(left.min(self.host.window_millis()));
        self.unheard.borrow_mut().add(Unheard { grant, channel: channel.into(), due });
        self.changes_due();
    }

    /// Shortens the lease of one hold. The lock was handed on in this call, so the module may write it.
    fn shorten_unheard(self, name: Name<'_>, owner: &KeptOwner, fence: Fence) {
        let (lock, now) = (self.host.beside(name), self.host.now());
        let proof = Proof::of(owner, fence.number());
        let Ok(mut key) = lock.open(Mode::Write) else { return };
        let Some(ttl) = Ttl::from_millis(self.host.window_millis()) else { return };
        let Some(holders) = self.holders_in(key.stored(), &proof, now) else { return };
        let end = holders.own().and_then(|own| own.deadline);
        if end.is_some_and(|end| end <= Deadline::after(now, ttl)) {
            return;
        }
        let outcome = lock::extend_one(&holders, &proof, ttl, now);
        let write = outcome.write(&holders);
        // If the server refuses, the lease ends later.
        let _written = key.write(&write);
        self.with_queues(|queues| queues.remember(name, key.stored(), now));
    }

    /// Gives up the grants that nobody has claimed in time, and with each all other grants and places with its channel:
    /// as many as fit in one turn. Channels take turns, so that a client that keeps asking on one of them delays no
    /// other.
    pub(super) fn give_up_unheard(self) {
        let now = self.host.monotonic();
        let (budget, mut effort) = (Budget::of(self.host, self.host.batch()), Effort::default());
        while !budget.is_used_up(self.host, effort) {
            let Some(channel) = self.unheard.borrow_mut().next_deaf(now) else { return };
            self.changes_due();
            effort.add(Effort::ROUND);
            let other = self.unheard.borrow_mut().take_of(&channel);
            if let Some(Unheard { grant, .. }) = other {
                self.queue_releases(&grant, now);
            } else if let Some(Departed { name, waiter }) =
                self.with_queues(|queues| queues.leave_by_channel(&channel))
            {
                effort.add(self.answer(name.as_name(), waiter, Answer::GaveUp));
            } else {
                continue;
            }
            self.unheard.borrow_mut().deaf.push_back(channel);
        }
    }
}

impl<C> Memory<C> {
    /// A client counts on the grant with this fence. From now on the grant is not taken back, even if the waiter that
    /// it was made to never learns of it.
    #[inline(always)]
    pub fn mark_delivered(&self, fence_number: u64) {
        // Usually no grant is in doubt, so this costs three comparisons.
        if !self.undelivered.borrow().is_empty()
            || !self.pending_releases.borrow().is_empty()
            || !self.unheard.borrow().is_empty()
        {
            self.is_known(fence_number);
        }
    }

    #[inline(never)]
    fn is_known(&self, fence_number: u64) {
        self.undelivered.borrow_mut().remove(&fence_number);
        // A release may still be pending if writes have been paused.
        self.pending_releases.borrow_mut().forget(fence_number);
        let _claimed = self.unheard.borrow_mut().take(fence_number);
    }

    /// How many grants have been published and heard by nobody.
    #[cfg(test)]
    pub(crate) fn unheard(&self) -> usize {
        self.unheard.borrow().len()
    }

    /// All holds of this grant are taken back soon.
    pub(super) fn queue_releases(&self, grant: &WaiterGrant, due: Monotonic) {
        let WaiterGrant { names, owner, fence } = grant;
        for name in names.iter().cloned() {
            let pending = PendingRelease { name, owner: owner.clone(), fence: *fence };
            self.pending_releases.borrow_mut().add(pending, due);
        }
        self.changes_due();
    }

    pub(crate) fn is_pending_release(&self, name: Name<'_>, fence_number: u64) -> bool {
        self.pending_releases.borrow().has(name, fence_number)
    }

    pub(super) fn has_pending_releases(&self) -> bool {
        !self.pending_releases.borrow().is_empty()
    }
}
