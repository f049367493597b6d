//! The hand-off: a lock passes to the oldest waiter in one step.

use super::change::{Order, Written, all};
use super::effort::{Budget, Effort};
use super::{
    Answer, Authority, Engine, Host, Initiator, Key, Lock, Mode, PAUSE_MILLIS, REFUSAL_MILLIS,
};
use crate::command::Error;
use crate::lock::{
    self, Cause, Deadline, Decision, Departed, Ephemeral, Grant, KeptName, KeptNames, Limits, Look,
    Lost, Marked, Moment, Name, Now, Ownership, Queues, Settled, Standing, Turn, WaitKind, Waiter,
    WaiterId, Wanted, Write,
};
use crate::observe::Given;
use std::iter;

/// Time in each tick for routine looks, at locks to which nothing is known to have happened.
const ROUTINE_MICROS: u64 = 300;

/// How many waiters are told that their patience has ended between two readings of the clock.
const TOLD_AT_ONCE: usize = 20;

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Round {
    /// One waiter has had its turn. The next waiter's turn may come.
    Next,
    /// It is the turn of this waiter, which waits for other locks, too. Those must be looked at first.
    Several(WaiterId),
    /// The lock is held, or nobody waits.
    Over,
}

/// The other locks that a waiter for several waits for, beside the one that is handed on. All of them can be granted.
struct Others<L> {
    /// The waiter. `None` for a waiter for one lock.
    of: Option<WaiterId>,
    locks: Vec<L>,
    standings: Vec<Standing>,
    /// Holds of these locks that are over and have not been reported.
    lost: Vec<(KeptName, Vec<Lost>)>,
}

impl<L> Others<L> {
    const NONE: Self =
        Self { of: None, locks: Vec::new(), standings: Vec::new(), lost: Vec::new() };
}

/// Why a waiter that is first in all its queues is not given its locks now.
enum Refusal {
    /// One of the locks is taken. It may be free from `may_change` on.
    Held { may_change: Option<Moment> },
    /// Nothing can be written for this many milliseconds.
    NotNow(u64),
    /// Another server decides.
    GrantedElsewhere,
}

impl<'e, H: Host> Engine<'e, H> {
    /// Does what is due, in a timer rather than in a client's command.
    pub fn work(self) {
        let now = self.host.clocks();
        self.end_patience(now);
        self.give_up_unheard();
        self.take_back_due();
        self.serve_bindings();
        self.put_back_due();
        // Each cause has its own share of the turn, so that none keeps the others waiting.
        self.serve(Cause::Due);
        self.serve(Cause::Suspected);
        self.serve(Cause::Doubted);
        self.serve(Cause::Routine);
    }

    /// Tells the waiters whose patience has ended, and marks the locks that are due for a look.
    fn end_patience(self, now: Now) {
        let (budget, mut effort) = (Budget::of(self.host, self.host.batch()), Effort::default());
        loop {
            let at_most = self.host.batch().min(TOLD_AT_ONCE);
            let ended = self.with_queues(|queues| queues.wake(now, at_most));
            for Departed { name, waiter } in ended {
                effort.add(self.answer(name.as_name(), waiter, Answer::GaveUp));
                effort.add(Effort::ROUND);
            }
            let is_done = self.with_queues(|queues| !queues.is_patience_due(now.monotonic));
            if is_done || budget.is_used_up(self.host, effort) {
                return;
            }
        }
    }

    /// Looks at the locks that are marked for this cause, and settles those that need it.
    fn serve(self, cause: Cause) {
        let micros = if cause == Cause::Routine { ROUTINE_MICROS } else { Budget::MICROS };
        let budget = Budget::new(self.host, self.host.batch(), micros);
        let mut effort = Effort::default();
        for _ in 0..cause.looks_in_a_turn() {
            let Some(marked) = self.with_queues(|queues| queues.take_marked(cause)) else { return };
            let Marked { name, ownership } = marked;
            if let Some(lock) = self.host.lock(name.as_name()) {
                effort.add(self.settle(&lock, Initiator::Module, ownership));
            }
            if budget.is_used_up(self.host, effort) {
                break;
            }
        }
        if cause == Cause::Routine {
            self.with_queues(Queues::rest);
        }
    }

    /// Gives the lock to the next waiter, until the lock is held or nobody waits. If more readers can be let in than
    /// one turn allows, the lock stays marked behind the others, and its next turn continues. The key is looked at
    /// first: the server is asked whether the module may write only if there is something to write.
    pub(super) fn settle(
        self,
        lock: &H::Lock<'_>,
        initiator: Initiator,
        ownership: Ownership,
    ) -> Effort {
        self.changes_due();
        let authority = match (self.host.authority(), ownership) {
            (Authority::Yes, Ownership::Ours) => Authority::Yes,
            (Authority::Yes, Ownership::InDoubt) => lock.may_read(),
            _ => lock.may_write(initiator),
        };
        let authority = match authority {
            Authority::Yes => match self.find_held(lock) {
                Some(effort) => return effort,
                None => lock.may_write(initiator),
            },
            refusal => refusal,
        };
        match authority {
            Authority::Yes => return self.hand_on(lock),
            Authority::NotNow => self.postpone(lock, PAUSE_MILLIS),
            Authority::Refused => self.postpone(lock, REFUSAL_MILLIS),
            Authority::Replica => return self.send_away(lock, self.host.demoted()),
            Authority::NotOurs => {
                self.host.slot_has_gone();
                return self.send_away(lock, Error::GrantedElsewhere);
            }
            Authority::ClusterDown => self.send_all_away(Error::GrantedElsewhere),
        }
        Effort::ROUND
    }

    /// Looks whether the lock is held, so that there is nothing to do, and returns the effort of the look. Nearly every
    /// lock that a command names is held. `None` if there may be something to do. If the key cannot be opened now,
    /// nobody knows, and the lock is looked at later.
    fn find_held(self, lock: &H::Lock<'_>) -> Option<Effort> {
        let Ok(key) = lock.open(Mode::Look) else {
            self.postpone(lock, PAUSE_MILLIS);
            return Some(Effort::ROUND);
        };
        let effort = Effort::of_look(key.stored());
        let now = self.host.clocks();
        let look = self.with_fences(
            || now.monotonic,
            |fences| {
                self.with_queues(|queues| {
                    queues.look(lock.name(), key.stored(), now, self.host.limits(), fences)
                })
            },
        );
        drop(key);
        let Look::Held { lost } = look else { return None };
        self.report_lost(lock, &lost, now.wall);
        Some(effort)
    }

    /// Gives the lock to the waiters whose turn it is, one in each round.
    fn hand_on(self, lock: &H::Lock<'_>) -> Effort {
        let (budget, mut effort) = (Budget::of(self.host, self.host.slice()), Effort::default());
        // If this cannot open the key, the round cannot either.
        let _in_use = self.open_and_put_back(lock);
        loop {
            let round = match self.round(lock, Others::NONE, self.host.clocks(), &mut effort) {
                Round::Several(id) => self.round_for_several(lock, id, &mut effort),
                round => round,
            };
            match round {
                Round::Over => return effort,
                Round::Several(_) => {
                    // Another waiter became the first meanwhile.
                    self.with_queues(|queues| queues.mark(lock.name()));
                    return effort;
                }
                Round::Next if budget.is_used_up(self.host, effort) => {
                    // Some servers announce an eviction only when the value is gone. If this lock is evicted before its
                    // next turn, this value is put back.
                    if let Ok(key) = lock.open(Mode::Write) {
                        let now = self.host.now();
                        self.with_queues(|queues| queues.remember(lock.name(), key.stored(), now));
                    }
                    return effort;
                }
                Round::Next => {}
            }
        }
    }

    /// Takes the waiter whose turn it is out of the queue, decides about its request, carries the decision out and
    /// tells the waiter. If it waits for several locks, the others have been looked at before.
    #[inline]
    fn round<'n>(
        self,
        lock: &H::Lock<'n>,
        others: Others<H::Lock<'n>>,
        now: Now,
        effort: &mut Effort,
    ) -> Round
    where
        H: 'n,
    {
        let name = lock.name();
        let Ok(mut key) = lock.open(Mode::Write) else {
            self.postpone(lock, PAUSE_MILLIS);
            self.report_lost_of_others(&others.lost, now.wall);
            return Round::Over;
        };
        let limits = self.host.limits();
        let stored = key.stored();
        effort.add(Effort::of_round(stored));
        let Settled { lost, turn } = self.with_fences(
            || now.monotonic,
            |fences| self.with_queues(|queues| queues.settle(name, stored, now, limits, fences)),
        );
        let Others { of, locks, mut standings, lost: others_lost } = others;
        let (id, holders) = match turn {
            Some(Turn { waiter, holders, is_for_several })
                if of == is_for_several.then_some(waiter) =>
            {
                (waiter, holders)
            }
            turn => {
                let round = turn.map_or(Round::Over, |turn| Round::Several(turn.waiter));
                drop(key);
                self.report_lost(lock, &lost, now.wall);
                self.report_lost_of_others(&others_lost, now.wall);
                return round;
            }
        };
        let Some(Departed { name: first, waiter }) = self.with_queues(|queues| queues.leave(id))
        else {
            return Round::Over;
        };
        let standing = Standing::new(&holders, 0, waiter.share, limits.max_holders);
        let decided = self.decide_for(&waiter, all(&mut standings, &standing), now, limits);
        let outcome = decided.as_ref().ok();
        let outcome = outcome.and_then(|decided| decided.outcome(locks.len(), &holders, now.wall));
        let write = outcome.map_or(Write::Keep, |outcome| outcome.write(&holders));
        let written = Written::new(lock, outcome, &write, 0);
        let mut others_written = key.write(&write).map(|()| Vec::new());
        drop(key);
        if let (Ok(decision), Ok(_)) = (&decided, &others_written)
            && !locks.is_empty()
        {
            self.with_queues(|queues| queues.forget_seen(name));
            others_written =
                self.write_others(name, &locks, &order_of(&waiter, decision, now.wall));
        }
        self.report_lost(lock, &lost, now.wall);
        self.report_lost_of_others(&others_lost, now.wall);
        let answer = match (decided, others_written) {
            (Err(answer), _) => answer,
            (Ok(_), Err(error)) => Answer::Refused(error),
            (Ok(decision), Ok(others_written)) => {
                let order = order_of(&waiter, &decision, now.wall);
                self.tell(&order, &others_written, &written);
                if let Some(&Ephemeral { connection, .. }) = waiter.ephemeral.as_deref()
                    && !self.host.is_connected(connection)
                {
                    // The connection ended while the owner waited by a ticket, and the end of a connection removes no
                    // ticket.
                    let _has_work = self.connection_ended(connection, now.monotonic);
                }
                let also = locks.iter().map(Lock::name).chain(iter::once(name));
                let also = also.filter(|also| *also != first.as_name()).map(KeptName::from);
                let names = KeptNames { also: also.collect(), first: first.clone() };
                match decision {
                    Decision::Granted(Grant { fence, deadline, .. }) => {
                        Answer::Granted { names, fence, deadline }
                    }
                    Decision::Again { wanted, fence_number } => {
                        let deadline = Deadline::after(now.wall, wanted.ttl);
                        Answer::Again { names, fence_number, deadline }
                    }
                    _ => Answer::GaveUp,
                }
            }
        };
        effort.add(self.answer(first.as_name(), waiter, answer));
        Round::Next
    }

    /// The decision about the request of a waiter whose turn it is, from its standing with its locks; or the answer
    /// that refuses it.
    fn decide_for<'w>(
        self,
        waiter: &'w Waiter<H::Client>,
        standings: &[Standing],
        now: Now,
        limits: Limits,
    ) -> Result<Decision<'w>, Answer> {
        let is_out_of_patience = waiter.gives_up.is_some_and(|end| end <= now.monotonic);
        if is_out_of_patience && !standings.iter().any(Standing::is_own) {
            return Err(Answer::GaveUp);
        }
        // The limits may have been lowered while the owner waited.
        let ttl = waiter.wait.lease(waiter.ttl).min(limits.max_ttl);
        let wanted = Wanted { owner: waiter.owner.as_owner(), ttl, share: waiter.share };
        let decide = |fences: &mut _| lock::acquire(standings, &wanted, now.wall, fences);
        match self.with_fences(|| now.monotonic, decide) {
            Decision::NoFenceLeft => Err(Answer::Refused(Error::NoFenceLeft)),
            Decision::Busy { .. } | Decision::NotUpgraded { .. } => Err(Answer::GaveUp),
            decision => Ok(decision),
        }
    }

    /// The round of a waiter that is first in the queues of several locks, where this lock can be granted. If one of
    /// the other locks cannot be granted, nothing changes, and the waiter goes on waiting.
    #[inline(never)]
    fn round_for_several(self, lock: &H::Lock<'_>, id: WaiterId, effort: &mut Effort) -> Round {
        // One moment for all looks: a lease must not end between two of them.
        let (names, now) = (self.with_queues(|queues| queues.names_of(id)), self.host.clocks());
        let mut others = Others { of: Some(id), ..Others::NONE };
        let refused = self.stand_for(lock.name(), &names, now.wall, &mut others, effort);
        let Some(refused) = refused else {
            let lock = self.host.beside(lock.name());
            return self.round(&lock, others, now, effort);
        };
        self.report_lost_of_others(&others.lost, now.wall);
        let (name, refusal) = refused;
        self.with_queues(|queues| {
            queues.refused(id, name, matches!(refusal, Refusal::Held { .. }));
            // The lock may have been free when its own queue last looked, and a client that does not wait may have
            // taken it since.
            if let Refusal::Held { may_change: Some(moment) } = refusal {
                queues.look_no_later(name, moment);
            }
        });
        match refusal {
            Refusal::Held { .. } => Round::Over,
            Refusal::NotNow(millis) => {
                self.postpone(lock, millis);
                Round::Over
            }
            Refusal::GrantedElsewhere => {
                let answer = Answer::Refused(Error::GrantedElsewhere);
                if let Some(Departed { name, waiter }) = self.with_queues(|queues| queues.leave(id))
                {
                    effort.add(self.answer(name.as_name(), waiter, answer));
                }
                Round::Next
            }
        }
    }

    /// Fills `others` with the owner's standing with each of its other locks, or returns the first lock that it cannot
    /// have. It stops there, so the locks behind a lock that stays held cost nothing. Losses are only collected, and
    /// reported later: another module may react to the report, and change a key that was looked at.
    fn stand_for<'n>(
        self,
        settled: Name<'_>,
        names: &'n [KeptName],
        now: Moment,
        others: &mut Others<H::Lock<'n>>,
        effort: &mut Effort,
    ) -> Option<(Name<'n>, Refusal)>
    where
        'e: 'n,
    {
        let (owner, share) = self.with_queues(|queues| {
            let waiter = queues.waiter(others.of?)?;
            Some((waiter.owner.clone(), waiter.share))
        })?;
        let most = self.host.limits().max_holders;
        for name in names.iter().map(KeptName::as_name).filter(|name| *name != settled) {
            let lock = self.host.beside(name);
            let refusal = match lock.may_write(Initiator::Client) {
                Authority::Yes => None,
                Authority::NotNow => Some(Refusal::NotNow(PAUSE_MILLIS)),
                Authority::Refused => Some(Refusal::NotNow(REFUSAL_MILLIS)),
                Authority::Replica | Authority::NotOurs | Authority::ClusterDown => {
                    Some(Refusal::GrantedElsewhere)
                }
            };
            if let Some(refusal) = refusal {
                return Some((name, refusal));
            }
            let not_now = Some((name, Refusal::NotNow(PAUSE_MILLIS)));
            let Ok(()) = self.open_and_put_back(&lock) else { return not_now };
            let Ok(key) = lock.open(Mode::Write) else { return not_now };
            let stored = key.stored();
            effort.add(Effort::of_round(stored));
            let holders = self.consult(|fences| stored.holders(owner.as_owner(), now, fences));
            let standing = holders.map(|holders| Standing::new(&holders, 0, share, most));
            let may_change = holders.ok().and_then(|holders| holders.next_end());
            let lost = self.with_queues(|queues| queues.see(name, stored, now));
            drop(key);
            if !lost.is_empty() {
                others.lost.push((name.into(), lost));
            }
            match standing {
                Ok(standing) if standing.may_be_had() => {
                    others.standings.push(standing);
                    others.locks.push(lock);
                }
                _ => {
                    let may_change = may_change.map(Deadline::first_moment_after);
                    return Some((name, Refusal::Held { may_change }));
                }
            }
        }
        None
    }

    fn report_lost_of_others(self, lost: &[(KeptName, Vec<Lost>)], now: Moment) {
        for (name, lost) in lost {
            self.report_lost(&self.host.beside(name.as_name()), lost, now);
        }
    }

    pub(super) fn postpone(self, lock: &H::Lock<'_>, millis: u64) {
        let now = self.host.now();
        self.with_queues(|queues| queues.postpone(lock.name(), now, millis));
    }

    /// Sends the waiters of a lock away. If they are more than fit in one turn, the lock stays marked behind the others,
    /// and its next turn continues. To send a ticket away takes next to nothing.
    fn send_away(self, lock: &H::Lock<'_>, error: Error) -> Effort {
        let (budget, mut effort) = (Budget::of(self.host, self.host.batch()), Effort::ROUND);
        let name = lock.name();
        while let Some(Departed { waiter, .. }) =
            self.with_queues(|queues| queues.leave_first(name))
        {
            if waiter.wait.kind() == WaitKind::Blocked {
                effort.add(Effort::ROUND);
            }
            self.answer(name, waiter, Answer::Refused(error));
            if budget.is_used_up(self.host, effort) {
                self.with_queues(|queues| queues.mark_in_doubt(name));
                break;
            }
        }
        effort
    }

    /// Sends every waiter away: this server no longer decides.
    pub fn send_all_away(self, error: Error) {
        self.changes_due();
        for Departed { name, waiter } in self.with_queues(|queues| queues.leave_all()) {
            self.answer(name.as_name(), waiter, Answer::Refused(error));
        }
    }

    /// Reports holds that ended without a release while somebody waited for the lock. No key is open.
    pub(super) fn report_lost(self, lock: &impl Lock, lost: &[Lost], now: Moment) {
        for lost in lost {
            let event = self.with_observer(|observer| observer.note_lost(lock.name(), lost, now));
            if let Some(event) = event {
                lock.publish(event);
            }
        }
    }
}

/// What to carry out for a waiter whose turn it is.
fn order_of<'a, 'r, C>(
    waiter: &'a Waiter<C>,
    decision: &'a Decision<'r>,
    now: Moment,
) -> Order<'a, 'r> {
    let (owner, ephemeral) = (waiter.owner.as_owner(), waiter.ephemeral.as_deref().copied());
    Order { owner, decision, ephemeral, given: Given::HandedOff, now }
}
