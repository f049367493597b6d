//! The hand-off: a lock passes to the oldest waiter in one step.

use super::{
    Answer, Authority, Engine, Host, Initiator, Key, Mode, PAUSE_MILLIS, REFUSAL_MILLIS, Site,
};
use crate::command::Error;
use crate::lock::{
    Acquired, Cause, Grant, KeptName, Left, Look, Lost, Marked, Moment, Next, Outcome, Ownership,
    Settled,
};
use crate::observe::Given;

/// How many locks are looked at for each cause. Nearly all of them are held as before, and a look costs a tenth of a
/// hand-off.
const LOOKS_AT_ONCE: usize = 5_000;

/// What it took to settle a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Done {
    /// One look: the lock is held, as it was.
    Look,
    More,
}

impl<C> Engine<C> {
    /// Does what is due, in a call that no client has made.
    pub fn work<H: Host<Client = C>>(&self, host: &H) {
        let now = host.clocks();
        for Left { name, waiter } in self.with_queues(|queues| queues.wake(now, host.at_once())) {
            self.answer(host, name.as_name(), waiter, Answer::GaveUp);
        }
        self.take_back_due(host);
        self.put_back_due(host);
        // Each cause has its own share of the turn, so that neither keeps the other waiting.
        self.serve(host, Cause::Due);
        self.serve(host, Cause::Suspected);
    }

    /// Looks at the locks that are marked for this cause, and settles those that need it.
    fn serve<H: Host<Client = C>>(&self, host: &H, cause: Cause) {
        let mut settled = 0;
        for _ in 0..LOOKS_AT_ONCE {
            if settled == host.at_once() {
                return;
            }
            let Some(marked) = self.with_queues(|queues| queues.take_marked(cause)) else { return };
            let Marked { name, ownership } = marked;
            let Some(site) = host.site(name.as_name()) else { continue };
            if self.settle(host, &site, Initiator::Module, ownership) == Done::More {
                settled = settled.saturating_add(1);
            }
        }
    }

    /// Gives the lock to whoever is next, until it is held or nobody waits.
    ///
    /// The key is looked at first. Only if there is something to do is the server asked whether the module may write.
    pub(super) fn settle<H: Host<Client = C>>(
        &self,
        host: &H,
        site: &H::Site<'_>,
        initiator: Initiator,
        ownership: Ownership,
    ) -> Done {
        self.settled.set(true);
        let authority = match (host.authority(), ownership) {
            (Authority::Yes, Ownership::Ours) => Authority::Yes,
            (Authority::Yes, Ownership::InDoubt) => site.may_read(),
            _ => site.may_write(initiator),
        };
        if authority == Authority::Yes && self.is_held(host, site) {
            return Done::Look;
        }
        let authority = match authority {
            Authority::Yes => site.may_write(initiator),
            refusal => refusal,
        };
        match authority {
            Authority::Yes => self.hand_on(host, site),
            Authority::NotNow => self.postpone(host, site, PAUSE_MILLIS),
            Authority::Refused => self.postpone(host, site, REFUSAL_MILLIS),
            Authority::Replica => self.send_away(host, site, host.demoted()),
            Authority::NotOurs => {
                host.slot_has_gone();
                self.send_away(host, site, Error::GrantedElsewhere);
            }
            Authority::ClusterDown => self.send_all_away(host, Error::GrantedElsewhere),
        }
        Done::More
    }

    /// Whether the lock is held, as nearly every lock is that somebody names: then nothing is to be done.
    fn is_held<H: Host<Client = C>>(&self, host: &H, site: &H::Site<'_>) -> bool {
        let key = site.open(Mode::Look);
        let now = host.clocks();
        let look = self.with_fences(
            || now.monotonic,
            |fences| self.with_queues(|queues| queues.look(site.name(), key.stored(), now, fences)),
        );
        drop(key);
        match look {
            Look::ToSettle => false,
            Look::Held { lost } => {
                self.report_lost(site, lost, now.wall);
                true
            }
        }
    }

    /// Carries out what the queue decides. Each turn but the last takes one out of the queue.
    fn hand_on<H: Host<Client = C>>(&self, host: &H, site: &H::Site<'_>) {
        let name = site.name();
        site.prepare();
        self.put_back_first(host, site);
        loop {
            let mut key = site.open(Mode::Write);
            let now = host.clocks();
            if key.stored().is_free(now.wall) {
                site.about_to_grant();
            }
            let held_until = key.stored().seen().and_then(|(_, deadline)| deadline);
            let Settled { lost, next } = self.with_fences(
                || now.monotonic,
                |fences| {
                    self.with_queues(|queues| {
                        queues.settle(name, key.stored(), now, host.max_ttl(), fences)
                    })
                },
            );
            let written = key.write(next.write());
            drop(key);
            self.report_lost(site, lost, now.wall);
            let (waiter, answer) = match (next, written) {
                (Next::Held | Next::Nobody, _) => return,
                (Next::GaveUp(waiter), _) => (waiter, Answer::GaveUp),
                (Next::NoFenceLeft(waiter), _) => (waiter, Answer::Refused(Error::NoFenceLeft)),
                (Next::Again { waiter, .. } | Next::Grant { waiter, .. }, Err(error)) => {
                    (waiter, Answer::Refused(error))
                }
                (Next::Again { waiter, fence_number, longer }, Ok(())) => {
                    self.delivered(fence_number);
                    let again = Outcome::Acquire(Acquired::Again { fence_number, longer });
                    self.report(site, &again, Given::HandedOff, now.wall);
                    let (name, deadline) = (KeptName::from(name), longer.or(held_until));
                    (waiter, Answer::Again { name, fence_number, deadline })
                }
                (Next::Grant { waiter, fence, deadline }, Ok(())) => {
                    let grant = Grant { owner: waiter.owner.as_owner(), fence, deadline };
                    let granted = Outcome::Acquire(Acquired::Granted(grant));
                    self.report(site, &granted, Given::HandedOff, now.wall);
                    (waiter, Answer::Granted { name: KeptName::from(name), fence, deadline })
                }
            };
            self.answer(host, name, waiter, answer);
        }
    }

    fn postpone<H: Host<Client = C>>(&self, host: &H, site: &H::Site<'_>, millis: u64) {
        let now = host.now();
        self.with_queues(|queues| queues.postpone(site.name(), now, millis));
    }

    fn send_away<H: Host<Client = C>>(&self, host: &H, site: &H::Site<'_>, error: Error) {
        let name = site.name();
        while let Some(Left { waiter, .. }) = self.with_queues(|queues| queues.leave_first(name)) {
            self.answer(host, name, waiter, Answer::Refused(error));
        }
    }

    /// Sends everybody away: this server no longer decides.
    pub fn send_all_away<H: Host<Client = C>>(&self, host: &H, error: Error) {
        for Left { name, waiter } in self.with_queues(|queues| queues.leave_all()) {
            self.answer(host, name.as_name(), waiter, Answer::Refused(error));
        }
    }

    /// Tells of a hold that is over, and that nobody released while somebody waited for it.
    fn report_lost(&self, site: &impl Site, lost: Option<Lost>, now: Moment) {
        let Some(lost) = lost else { return };
        let noted = self.with_observer(|observer| observer.note_lost(site.name(), &lost, now));
        if let Some(event) = noted {
            site.hear_of_loss(&lost);
            site.publish(event);
        }
    }
}
