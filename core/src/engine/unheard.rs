//! Grants that were published, and that no subscriber received.
//!
//! Usually the program that asked for the ticket was killed. Its hold gets a short lease. If nobody claims the hold in
//! that time, all places are given up whose grants would be published on the same channel. So a killed process with
//! many places costs a lock one such window, and not one for each place.
//!
//! ```text
//!   granted to a, published on "c": nobody hears      b, on "c", too: given up      d, on "e"
//!   ├──────────── Host::window_millis ───────────────►│─────────────────────────────►│ granted
//! ```
//!
//! A program that is alive after all asks again, and queues anew.

use super::effort::{Budget, Effort};
use super::pending::PendingRelease;
use super::{Answer, Engine, Host, Key, Lock, Mode};
use crate::lock::{
    self, Deadline, Departed, Fence, KeptNames, KeptOwner, Monotonic, Name, Outcome, Ttl,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Debug)]
pub(super) struct Unheard {
    names: KeptNames,
    owner: KeptOwner,
    fence: Fence,
    channel: Rc<[u8]>,
    due: Monotonic,
}

/// Indexed by fence, in the order of the grants; by when they are due; and by channel.
#[derive(Debug, Default)]
pub(super) struct UnheardGrants {
    grants: BTreeMap<u64, Unheard>,
    due: BTreeSet<(Monotonic, u64)>,
    channels: BTreeSet<(Rc<[u8]>, u64)>,
    /// Channels without subscribers, while the places of their tickets are given up.
    deaf: Vec<Rc<[u8]>>,
}

impl UnheardGrants {
    pub(super) const fn new() -> Self {
        Self {
            grants: BTreeMap::new(),
            due: BTreeSet::new(),
            channels: BTreeSet::new(),
            deaf: Vec::new(),
        }
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        let now = self.deaf.first().map(|_| Monotonic::default());
        now.or_else(|| self.due.first().map(|&(due, _)| due))
    }

    fn add(&mut self, grant: Unheard) {
        let number = grant.fence.number();
        self.channels.insert((Rc::clone(&grant.channel), number));
        self.due.insert((grant.due, number));
        self.grants.insert(number, grant);
    }

    /// The owner claims the grant, or gives it back.
    pub(super) fn claimed(&mut self, fence_number: u64) {
        // Usually no grant is unheard, so this costs one comparison.
        if !self.grants.is_empty() {
            let _claimed = self.take(fence_number);
        }
    }

    fn take(&mut self, fence_number: u64) -> Option<Unheard> {
        let grant = self.grants.remove(&fence_number)?;
        self.due.remove(&(grant.due, fence_number));
        self.channels.remove(&(Rc::clone(&grant.channel), fence_number));
        Some(grant)
    }

    /// Takes a grant that nobody has claimed in time.
    fn take_due(&mut self, now: Monotonic) -> Option<Unheard> {
        let &(_, number) = self.due.first().filter(|(due, _)| *due <= now)?;
        self.take(number)
    }

    /// Takes a grant that was published on this channel.
    fn take_of(&mut self, channel: &Rc<[u8]>) -> Option<Unheard> {
        let first = (Rc::clone(channel), 0);
        let number = self.channels.range(first..).next().filter(|(of, _)| of == channel)?.1;
        self.take(number)
    }
}

impl<C> Engine<C> {
    /// Keeps a grant that no subscriber received, and shortens the leases of its holds.
    pub(super) fn keep_unheard<H: Host<Client = C>>(
        &self,
        host: &H,
        names: KeptNames,
        owner: KeptOwner,
        fence: Fence,
        deadline: Deadline,
        channel: &[u8],
    ) {
        for name in names.iter() {
            self.shorten_unheard(host, name.as_name(), &owner, fence);
        }
        let left = deadline.millis().saturating_sub(host.now().millis());
        let due = host.monotonic().plus_millis(left.min(host.window_millis()));
        self.unheard.borrow_mut().add(Unheard {
            names,
            owner,
            fence,
            channel: channel.into(),
            due,
        });
        self.changes_due();
    }

    /// Shortens the lease of one hold. The lock was handed on in this call, so the module may write it.
    fn shorten_unheard<H: Host<Client = C>>(
        &self,
        host: &H,
        name: Name<'_>,
        owner: &KeptOwner,
        fence: Fence,
    ) {
        let (lock, now) = (host.beside(name), host.now());
        let proof = super::delivery::proof_of(owner, fence.number());
        let mut key = lock.open(Mode::Write);
        let Some(ttl) = Ttl::from_millis(host.window_millis()) else { return };
        let Some(holders) = self.holders_in(host, &key, &proof, now) else { return };
        let end = holders.own().and_then(|own| own.deadline);
        if end.is_some_and(|end| end <= Deadline::after(now, ttl)) {
            return;
        }
        let outcome = Outcome::Extend(lock::extend_one(&holders, &proof, ttl, now));
        let write = outcome.write(&holders);
        // If the server refuses, the lease ends later.
        let _written = key.write(write);
        self.with_queues(|queues| queues.remember(name, key.stored(), now));
    }

    /// Gives up the grants that nobody has claimed in time, and all places with the same channels, as many as fit in
    /// one turn.
    pub(super) fn give_up_unheard<H: Host<Client = C>>(&self, host: &H) {
        let now = host.monotonic();
        loop {
            let due = self.unheard.borrow_mut().take_due(now);
            let Some(Unheard { channel, .. }) = due else { break };
            self.take_back_all_on(&channel, now);
            self.unheard.borrow_mut().deaf.push(channel);
        }
        let (budget, mut effort) = (Budget::of(host, host.batch()), Effort::default());
        while !budget.is_used_up(host, effort) {
            let Some(channel) = self.unheard.borrow().deaf.last().cloned() else { return };
            self.changes_due();
            match self.with_queues(|queues| queues.leave_by_channel(&channel)) {
                Some(Departed { name, waiter }) => {
                    effort.add(self.answer(host, name.as_name(), waiter, Answer::GaveUp));
                    effort.add(Effort::ROUND);
                }
                None => drop(self.unheard.borrow_mut().deaf.pop()),
            }
        }
    }

    /// Takes back the other grants that were published on this channel.
    fn take_back_all_on(&self, channel: &Rc<[u8]>, now: Monotonic) {
        loop {
            let other = self.unheard.borrow_mut().take_of(channel);
            let Some(Unheard { names, owner, fence, .. }) = other else { return };
            for name in names.iter() {
                let (name, owner) = (name.clone(), owner.clone());
                self.pending_releases.borrow_mut().add(PendingRelease { name, owner, fence }, now);
            }
        }
    }
}
