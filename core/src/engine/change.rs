//! A request of a client about one lock.

use super::{Engine, Host, Initiator, Key, Mode, Site, Warning};
use crate::command::{Decide, Error};
use crate::lock::{
    self, Checked, FenceClock, Hold, Moment, Outcome, Ownership, Proof, Stored, Write,
};
use crate::observe::Given;

impl<C> Engine<C> {
    /// Lets a request say what is to become of its lock, and does it.
    ///
    /// If anybody waits for the lock, this is where it changes hands: what may have happened to it is dealt with before, what
    /// was done to it now, after.
    pub fn change<'r, H: Host<Client = C>>(
        &self,
        host: &H,
        site: &H::Site<'_>,
        request: &'r impl Decide,
    ) -> Result<Outcome<'r>, Error> {
        let waiters = self.settle_if_suspect(host, site);
        site.prepare();
        let mut key = site.open(Mode::Write);
        let now = host.now();
        self.put_back(&mut key, site.name(), now)?;
        let stored = key.stored();
        if stored.is_free(now) {
            site.about_to_grant();
        }
        let outcome = self.consult(host, |fences| {
            let current = stored.hold(now, fences)?;
            request.decide(current.as_ref(), waiters, now, fences)
        })?;
        if let Some(fence_number) = outcome.confirmed() {
            self.delivered(fence_number);
        }
        let write = outcome.write();
        key.write(write)?;
        drop(key);
        self.report(site, &outcome, Given::Asked, now);
        if waiters > 0 && write != Write::Keep {
            if outcome.ends_a_hold() {
                self.with_queues(|queues| queues.changed(site.name()));
            }
            let _done = self.settle(host, site, Initiator::Client, Ownership::Ours);
        }
        Ok(outcome)
    }

    /// Whether this proof is of the hold in force. Whoever is told so counts on it.
    pub fn check<H: Host<Client = C>>(
        &self,
        host: &H,
        site: &H::Site<'_>,
        proof: &Proof<'_>,
    ) -> Result<Checked, Error> {
        let checked = self.read(host, site, |current, _, _| lock::check(current, proof))?;
        if let Checked::Holds { fence_number } = checked {
            self.delivered(fence_number);
        }
        Ok(checked)
    }

    /// What `look` makes of the hold in force, of how many wait, and of the time.
    ///
    /// What is about to become of the lock, a command that only reads cannot do, but it can tell: an evicted lock is held,
    /// and a grant that is going to be taken back is none.
    pub fn read<H: Host<Client = C>, T>(
        &self,
        host: &H,
        site: &H::Site<'_>,
        look: impl FnOnce(Option<&Hold<'_>>, usize, Moment) -> T,
    ) -> Result<T, Error> {
        let name = site.name();
        let waiters = self.waiters_for(name);
        let evicted = self.evicted.borrow().get(name).cloned();
        let key = site.open(Mode::Read);
        let stored = match (key.stored(), &evicted) {
            (Stored::Nothing, Some(evicted)) => evicted.as_stored(),
            (stored, _) => stored,
        };
        let now = host.now();
        let current = self.consult(host, |fences| stored.hold(now, fences))?;
        let is_in_force = |hold: &Hold<'_>| !self.is_pending_release(name, hold.fence_number());
        Ok(look(current.filter(is_in_force).as_ref(), waiters, now))
    }

    /// How many wait for the lock, once whatever may have happened to it has had its effect.
    pub(super) fn settle_if_suspect<H: Host<Client = C>>(
        &self,
        host: &H,
        site: &H::Site<'_>,
    ) -> usize {
        self.take_back_first(host, site);
        let name = site.name();
        let is_suspect = {
            let queues = self.queues.borrow();
            if queues.is_empty() {
                return 0;
            }
            queues.may_have_changed(name)
        };
        if is_suspect {
            let _done = self.settle(host, site, Initiator::Client, Ownership::Ours);
        }
        self.waiters_for(name)
    }

    /// Lends the fence clock to a decision, and warns if it met a fence that it will not learn: somebody planted it, or a
    /// clock somewhere is wrong by more than a day.
    fn consult<H: Host, T>(&self, host: &H, decide: impl FnOnce(&mut FenceClock) -> T) -> T {
        let refused = self.fences.get().refused();
        let outcome = self.with_fences(|| host.monotonic(), decide);
        if self.fences.get().refused() != refused && self.may_complain(host.monotonic()) {
            host.warn(Warning::FenceNotCredible);
        }
        outcome
    }

    /// Tells operators, and those who listen to key events, of what a request came to. No key is open.
    pub(super) fn report(
        &self,
        site: &impl Site,
        outcome: &Outcome<'_>,
        given: Given,
        now: Moment,
    ) {
        let events = self.with_observer(|observer| observer.note(site.name(), outcome, given, now));
        events.into_iter().flatten().for_each(|event| site.publish(event));
    }
}
