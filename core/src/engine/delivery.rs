//! Whether those who are granted a lock while they wait hear of it, and what becomes of a grant that nobody heard of.

use super::{Answer, Authority, Engine, Granted, Host, Initiator, Key, Mode, PAUSE_MILLIS, Site};
use crate::lock::{
    self, Checked, Deadline, KeptOwner, Name, Ownership, Proof, Released, Waiter, Write,
};
use crate::observe::WaitEnd;
use crate::plant::{Bug, planted};

impl<C> Engine<C> {
    /// Tells one who has left its queue what became of its wait.
    pub(super) fn answer<H: Host<Client = C>>(
        &self,
        host: &H,
        name: Name<'_>,
        waiter: Waiter<C>,
        answer: Answer,
    ) {
        let Waiter { owner, since, parked: client, .. } = waiter;
        let end = match &answer {
            Answer::Granted { .. } | Answer::Again { .. } => WaitEnd::Granted,
            Answer::GaveUp => WaitEnd::TimedOut,
            Answer::Refused(_) => WaitEnd::Refused,
        };
        self.wait_ended(host, name, &owner, since, end);
        if let Answer::Granted { fence, .. } = &answer {
            self.undelivered.borrow_mut().insert(fence.number());
        }
        host.answer(client, owner, answer);
    }

    /// Somebody counts on the grant with this fence: even if the waiter that it was made to never hears of it, it is not
    /// taken back. False if somebody had counted on it before.
    pub fn delivered(&self, fence_number: u64) -> bool {
        self.undelivered.borrow_mut().remove(&fence_number)
    }

    /// Nobody has heard of this grant by now, and its waiter never will. Unless the same owner has heard of it on another
    /// connection, the grant is taken back: the lock must not stay with somebody who does not know that it has it. Not at
    /// once, because the server is in the middle of ending a connection.
    pub fn undeliverable<H: Host<Client = C>>(&self, host: &H, grant: Granted) {
        if self.delivered(grant.fence.number()) && !planted(Bug::GrantNotGivenBack) {
            self.pending_releases.borrow_mut().add(grant, host.monotonic());
        }
    }

    /// Whether a lease ended before its client could be told of it, as when a script took longer than the lease. The
    /// deadline says so unless the owner extended the lease meanwhile on another connection, so the key has the last word.
    pub fn is_over<'s, H: Host<Client = C> + 's>(
        &self,
        host: &'s H,
        owner: &KeptOwner,
        fence_number: u64,
        deadline: Option<Deadline>,
        site: impl FnOnce() -> H::Site<'s>,
    ) -> bool {
        let now = host.now();
        if deadline.is_none_or(|deadline| !deadline.has_passed(now)) {
            return false;
        }
        let site = site();
        let key = site.open(Mode::Read);
        let hold = self.with_fences(|| host.monotonic(), |fences| key.stored().hold(now, fences));
        let proof = Proof { owner: owner.as_owner(), fence: Some(fence_number) };
        lock::check(hold.ok().flatten().as_ref(), &proof) == Checked::NotHolder
    }

    /// Whether this grant is about to be taken back.
    pub(crate) fn is_pending_release(&self, name: Name<'_>, fence_number: u64) -> bool {
        self.pending_releases.borrow().has(name, fence_number)
    }

    pub(super) fn take_back_due<H: Host<Client = C>>(&self, host: &H) {
        let now = host.monotonic();
        loop {
            let due = self.pending_releases.borrow_mut().take_due(now);
            let Some(grant) = due else { return };
            if let Some(site) = host.site(grant.name.as_name()) {
                self.take_back(host, &site, &grant);
            }
        }
    }

    /// Takes back what nobody heard of before a command looks at the lock: otherwise its owner could come back, be told that
    /// it holds the lock, and lose it.
    pub(super) fn take_back_first<H: Host<Client = C>>(&self, host: &H, site: &H::Site<'_>) {
        // Nearly always there is nothing to take back.
        while !self.pending_releases.borrow().is_empty() {
            let pending = self.pending_releases.borrow_mut().take_of(site.name());
            let Some(grant) = pending else { return };
            self.take_back(host, site, &grant);
        }
    }

    fn take_back<H: Host<Client = C>>(&self, host: &H, site: &H::Site<'_>, grant: &Granted) {
        match site.may_write(Initiator::Module) {
            Authority::Yes => {}
            Authority::NotNow | Authority::Refused => {
                let due = host.monotonic().plus_millis(PAUSE_MILLIS);
                return self.pending_releases.borrow_mut().add(grant.clone(), due);
            }
            // Whoever decides now has the grant too, if it got that far; the lease ends it.
            Authority::Replica | Authority::NotOurs | Authority::ClusterDown => return,
        }
        let mut key = site.open(Mode::Write);
        let now = host.now();
        if self.put_back(&mut key, site.name(), now).is_err() {
            return;
        }
        let hold = self.with_fences(|| host.monotonic(), |fences| key.stored().hold(now, fences));
        let proof = Proof { owner: grant.owner.as_owner(), fence: Some(grant.fence.number()) };
        let released = lock::release(hold.ok().flatten().as_ref(), &proof);
        if let Released::Released { .. } = released
            && key.write(Write::Delete).is_ok()
        {
            drop(key);
            let event =
                self.with_observer(|observer| observer.note_taken_back(site.name(), grant.fence));
            site.publish(event);
            self.with_queues(|queues| queues.changed(site.name()));
            let _done = self.settle(host, site, Initiator::Module, Ownership::Ours);
        }
    }
}
