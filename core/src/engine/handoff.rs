//! The hand-off: a lock passes to the oldest waiter in one step.

use super::effort::{Budget, Effort};
use super::{
    Answer, Authority, Engine, Host, Initiator, Key, Lock, Mode, PAUSE_MILLIS, REFUSAL_MILLIS,
};
use crate::command::Error;
use crate::lock::{
    Cause, Departed, KeptNames, Look, Lost, Marked, Moment, Next, Now, Ownership, Queues, Settled,
    Write,
};
use crate::observe::Given;

/// How long locks may be looked at to which nothing is known to have happened, in each tick.
const ROUTINE_MICROS: u64 = 300;

/// How many are told that their patience has ended before anybody asks what time it is.
const TOLD_AT_ONCE: usize = 20;

impl<C> Engine<C> {
    /// Does what is due, in a call that no client has made.
    pub fn work<H: Host<Client = C>>(&self, host: &H) {
        let now = host.clocks();
        self.end_patience(host, now);
        self.give_up_unheard(host);
        self.take_back_due(host);
        self.serve_bindings(host);
        self.put_back_due(host);
        // Each cause has its own share of the turn, so that neither keeps the other waiting.
        self.serve(host, Cause::Due);
        self.serve(host, Cause::Suspected);
        self.serve(host, Cause::Doubted);
        self.serve(host, Cause::Routine);
    }

    /// Tells those whose patience has ended, and notes which locks are to be looked at by now.
    fn end_patience<H: Host<Client = C>>(&self, host: &H, now: Now) {
        let (budget, mut effort) = (Budget::of(host, host.batch()), Effort::default());
        loop {
            let at_most = host.batch().min(TOLD_AT_ONCE);
            let ended = self.with_queues(|queues| queues.wake(now, at_most));
            for Departed { name, waiter } in ended {
                effort.add(self.answer(host, name.as_name(), waiter, Answer::GaveUp));
                effort.add(Effort::ROUND);
            }
            let is_done = self.with_queues(|queues| !queues.is_patience_due(now.monotonic));
            if is_done || budget.is_used_up(host, effort) {
                return;
            }
        }
    }

    /// Looks at the locks that are marked for this cause, and settles those that need it.
    fn serve<H: Host<Client = C>>(&self, host: &H, cause: Cause) {
        let micros = if cause == Cause::Routine { ROUTINE_MICROS } else { Budget::MICROS };
        let budget = Budget::new(host, host.batch(), micros);
        let mut effort = Effort::default();
        for _ in 0..cause.looks_in_a_turn() {
            let Some(marked) = self.with_queues(|queues| queues.take_marked(cause)) else { return };
            let Marked { name, ownership } = marked;
            if let Some(lock) = host.lock(name.as_name()) {
                effort.add(self.settle(host, &lock, Initiator::Module, ownership));
            }
            if budget.is_used_up(host, effort) {
                break;
            }
        }
        if cause == Cause::Routine {
            self.with_queues(Queues::rest);
        }
    }

    /// Gives the lock to the next waiter, until it is held or nobody waits. Readers may be more than
    /// are let in at once: the lock stays marked then, behind the others, and its next turn goes on.
    ///
    /// The key is looked at first. The server is asked whether the module may write only if there is
    /// something to write.
    pub(super) fn settle<H: Host<Client = C>>(
        &self,
        host: &H,
        lock: &H::Lock<'_>,
        initiator: Initiator,
        ownership: Ownership,
    ) -> Effort {
        self.changes_due();
        let authority = match (host.authority(), ownership) {
            (Authority::Yes, Ownership::Ours) => Authority::Yes,
            (Authority::Yes, Ownership::InDoubt) => lock.may_read(),
            _ => lock.may_write(initiator),
        };
        if authority == Authority::Yes
            && let Some(effort) = self.find_held(host, lock)
        {
            return effort;
        }
        let authority = match authority {
            Authority::Yes => lock.may_write(initiator),
            refusal => refusal,
        };
        match authority {
            Authority::Yes => return self.hand_on(host, lock),
            Authority::NotNow => self.postpone(host, lock, PAUSE_MILLIS),
            Authority::Refused => self.postpone(host, lock, REFUSAL_MILLIS),
            Authority::Replica => self.send_away(host, lock, host.demoted()),
            Authority::NotOurs => {
                host.slot_has_gone();
                self.send_away(host, lock, Error::GrantedElsewhere);
            }
            Authority::ClusterDown => self.send_all_away(host, Error::GrantedElsewhere),
        }
        Effort::ROUND
    }

    /// What it took to see that the lock is held, and nothing is to be done. So it is with nearly every
    /// lock that a command names. `None` if there may be something to do.
    fn find_held<H: Host<Client = C>>(&self, host: &H, lock: &H::Lock<'_>) -> Option<Effort> {
        let key = lock.open(Mode::Look);
        let effort = Effort::of_look(key.stored());
        let now = host.clocks();
        let look = self.with_fences(
            || now.monotonic,
            |fences| {
                self.with_queues(|queues| {
                    queues.look(lock.name(), key.stored(), now, host.limits(), fences)
                })
            },
        );
        drop(key);
        match look {
            Look::ToSettle => None,
            Look::Held { lost } => {
                self.report_lost(lock, &lost, now.wall);
                Some(effort)
            }
        }
    }

    /// Carries out what the queue decides. Each round but the last takes one waiter out of the queue.
    fn hand_on<H: Host<Client = C>>(&self, host: &H, lock: &H::Lock<'_>) -> Effort {
        let name = lock.name();
        let (budget, mut effort) = (Budget::of(host, host.slice()), Effort::default());
        lock.prepare();
        self.open_and_put_back(host, lock);
        loop {
            let mut key = lock.open(Mode::Write);
            let now = host.clocks();
            let stored = key.stored();
            effort.add(Effort::of_round(stored));
            if stored.may_be_granted(now.wall) {
                lock.about_to_grant();
            }
            let Settled { lost, holders, next } = self.with_fences(
                || now.monotonic,
                |fences| {
                    self.with_queues(|queues| {
                        queues.settle(name, stored, now, host.limits(), fences)
                    })
                },
            );
            if let Next::Several(waiter) = next {
                drop(key);
                self.report_lost(lock, &lost, now.wall);
                let (done, flow) = self.hand_on_all(host, lock, waiter);
                effort.add(done);
                if flow.is_break() || budget.is_used_up(host, effort) {
                    return effort;
                }
                continue;
            }
            let held_until = holders.own().and_then(|own| own.deadline);
            let outcome = next.outcome(&holders);
            let write = outcome.map_or(Write::Keep, |outcome| outcome.write(&holders));
            let written = key.write(write);
            drop(key);
            self.report_lost(lock, &lost, now.wall);
            if let (Some(outcome), Ok(())) = (outcome, written) {
                if let Some(fence_number) = outcome.confirmed() {
                    self.mark_delivered(fence_number);
                }
                if let Some(waiter) = next.waiter() {
                    self.rebind(name, waiter.owner.as_owner(), &outcome);
                }
                if let Some(ephemeral) = next.waiter().and_then(|waiter| waiter.ephemeral) {
                    self.bind(host, name, &outcome, ephemeral, now.wall);
                    // Nobody takes a ticket out of the queue when its connection ends.
                    if !host.is_connected(ephemeral.connection) {
                        let _has_work = self.connection_ended(ephemeral.connection, now.monotonic);
                    }
                }
                self.report(lock, &outcome, Given::HandedOff, now.wall);
            }
            let (waiter, answer) = match (next, written) {
                (Next::Held | Next::Nobody | Next::Several(_), _) => return effort,
                (Next::GaveUp(waiter), _) => (waiter, Answer::GaveUp),
                (Next::NoFenceLeft(waiter), _) => (waiter, Answer::Refused(Error::NoFenceLeft)),
                (Next::Again { waiter, .. } | Next::Grant { waiter, .. }, Err(error)) => {
                    (waiter, Answer::Refused(error))
                }
                (Next::Again { waiter, fence_number, longer }, Ok(())) => {
                    let (names, deadline) = (KeptNames::from(name), longer.or(held_until));
                    (waiter, Answer::Again { names, fence_number, deadline })
                }
                (Next::Grant { waiter, fence, deadline, .. }, Ok(())) => {
                    (waiter, Answer::Granted { names: KeptNames::from(name), fence, deadline })
                }
            };
            effort.add(self.answer(host, name, waiter, answer));
            if budget.is_used_up(host, effort) {
                // Some servers tell of an eviction when the value is gone. If this lock is evicted before its next turn, it
                // is put back as it is now.
                let key = lock.open(Mode::Write);
                self.with_queues(|queues| queues.remember(name, key.stored(), now.wall));
                return effort;
            }
        }
    }

    pub(super) fn postpone<H: Host<Client = C>>(&self, host: &H, lock: &H::Lock<'_>, millis: u64) {
        let now = host.now();
        self.with_queues(|queues| queues.postpone(lock.name(), now, millis));
    }

    fn send_away<H: Host<Client = C>>(&self, host: &H, lock: &H::Lock<'_>, error: Error) {
        let name = lock.name();
        while let Some(first) = self.with_queues(|queues| queues.leave_first(name)) {
            self.answer(host, name, first.waiter, Answer::Refused(error));
        }
    }

    /// Sends every waiter away: this server no longer decides.
    pub fn send_all_away<H: Host<Client = C>>(&self, host: &H, error: Error) {
        self.changes_due();
        for Departed { name, waiter } in self.with_queues(|queues| queues.leave_all()) {
            self.answer(host, name.as_name(), waiter, Answer::Refused(error));
        }
    }

    /// Reports holds that ended without a release while somebody waited for the lock. No key is open.
    pub(super) fn report_lost(&self, lock: &impl Lock, lost: &[Lost], now: Moment) {
        for lost in lost {
            let event = self.with_observer(|observer| observer.note_lost(lock.name(), lost, now));
            if let Some(event) = event {
                lock.note_loss(lost);
                lock.publish(event);
            }
        }
    }
}
