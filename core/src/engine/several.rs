//! Several locks at once: all or none, asked for by a client or waited for.
//!
//! One key at a time is open, and each twice: see [`lock::several`](crate::lock::Standing). Nobody is told of anything before
//! all is written.

use super::disconnecting::Parted;
use super::effort::{Budget, Effort};
use super::pending::PendingRelease;
use super::{
    Answer, Authority, Engine, Host, Initiator, Key, Lock, Mode, PAUSE_MILLIS, REFUSAL_MILLIS,
};
use crate::command::{DecideAll, Error};
use crate::lock::{
    self, Acquired, Changed, Deadline, Departed, Ephemeral, Grant, Joint, KeptName, KeptNames,
    KeptOwner, Lost, Moment, Name, NotALock, Outcome, Owner, Ownership, Released, Share, Standing,
    Ttl, WaiterId, Wanted,
};
use crate::observe::Given;
use std::ops::ControlFlow;

/// What a request for several locks came to.
#[derive(Debug)]
pub struct Done<'r> {
    pub joint: Joint<'r>,
    /// How many locks were released.
    pub released: usize,
}

/// One of the locks, after it was written.
struct Written<'l, 'r, L> {
    lock: &'l L,
    outcome: Outcome<'r>,
    changed: Changed,
}

/// What is to be done with all of them, and for whom.
#[derive(Clone, Copy)]
struct Order<'a, 'r> {
    owner: Owner<'a>,
    joint: &'a Joint<'r>,
    ephemeral: Option<Ephemeral>,
    given: Given,
    now: Moment,
}

/// What one who waits for several locks asked for.
struct Asked {
    owner: KeptOwner,
    ttl: Ttl,
    share: Share,
    is_out_of_patience: bool,
    ephemeral: Option<Ephemeral>,
    /// The one first that was last found not to be had.
    names: Vec<KeptName>,
}

/// The locks that can all be had, and how it stands with each.
struct ToBeHad<L> {
    locks: Vec<L>,
    standings: Vec<Standing>,
}

/// A lock that cannot be had now.
struct NotToBeHad<'n> {
    name: Name<'n>,
    refusal: Refusal,
}

/// Holds of a lock that are over, and that nobody has been told of.
type Untold = Vec<(KeptName, Vec<Lost>)>;

/// What the locks are looked at for.
struct Look<'a> {
    /// The module may write this one.
    settled: Name<'a>,
    wanted: &'a Wanted<'a>,
    now: Moment,
}

/// Why one who is first in all its queues is not given its locks now.
enum Refusal {
    /// One of them is not to be had, at least until then: it goes on waiting.
    Held { may_change: Option<Moment> },
    /// Nothing can be written for so many milliseconds.
    NotNow(u64),
    /// It does not wait any more, for this reason.
    Over(Answer),
}

impl<C> Engine<C> {
    /// Lets a request decide what becomes of several locks, and carries that out. The locks are different ones, of one
    /// database.
    pub fn change_all<'r, H: Host<Client = C>>(
        &self,
        host: &H,
        locks: &[H::Lock<'_>],
        request: &'r impl DecideAll,
    ) -> Result<Done<'r>, Error> {
        let ephemeral = self.ephemeral(host, request)?;
        let owner = request.owner()?;
        self.settle_suspects(host, locks, owner);
        if let Some(lock) = locks.first() {
            lock.prepare();
        }
        let now = host.now();
        let standings: Result<Vec<_>, Error> = locks
            .iter()
            .map(|lock| {
                let others = self.waiters_for(lock.name());
                let mut key = lock.open(Mode::Write);
                self.put_back(&mut key, lock.name(), now)?;
                let stored = key.stored();
                if stored.may_be_granted(now) {
                    lock.about_to_grant();
                }
                self.consult(host, |fences| {
                    let holders = stored.holders(owner, now, fences)?;
                    Ok(request.stand(&holders, others))
                })
            })
            .collect();
        let standings = standings?;
        let joint = self.consult(host, |fences| request.decide_all(&standings, now, fences))?;
        let order = Order { owner, joint: &joint, ephemeral, given: Given::Asked, now };
        let written = self.carry_out(host, locks, &order)?;
        self.tell_all(host, &order, &written);
        if request.gives_up_ticket() {
            for lock in locks {
                self.give_up_ticket(host, lock.name(), owner);
            }
        }
        // All of them before any is settled: who waits for one may wait for others, which are looked at then.
        for Written { lock, changed, .. } in &written {
            if *changed == Changed::Value {
                self.with_queues(|queues| queues.forget_seen(lock.name()));
            }
        }
        let (budget, mut effort) = (Budget::of(host, host.slice()), Effort::default());
        for Written { lock, changed, .. } in &written {
            if *changed == Changed::Nothing || self.waiters_for(lock.name()) == 0 {
                continue;
            }
            if budget.is_used_up(host, effort) {
                self.with_queues(|queues| queues.mark(lock.name()));
                self.changes_due();
            } else {
                effort.add(self.settle(host, lock, Initiator::Client, Ownership::Ours));
            }
        }
        let outcomes = written.iter().map(|written| written.outcome);
        let is_release =
            |outcome: &_| matches!(outcome, Outcome::Release(Released::Released { .. }));
        let released = outcomes.filter(is_release).count();
        Ok(Done { joint, released })
    }

    /// Makes the keys say what is true of the locks, before anybody looks at them. Together the locks get no more time than one
    /// does. What is left to be done is for the timer: a lock that somebody waits for is not to be had.
    fn settle_suspects<H: Host<Client = C>>(
        &self,
        host: &H,
        locks: &[H::Lock<'_>],
        owner: Owner<'_>,
    ) {
        let share = host.batch().checked_div(locks.len()).unwrap_or(0).max(1);
        let (budget, mut effort) = (Budget::of(host, host.slice()), Effort::default());
        for lock in locks {
            self.take_back_pending(host, lock);
            self.part_pending(host, lock, Some(owner), share);
            let is_settled = {
                let queues = self.queues.borrow();
                queues.is_empty() || queues.waiters_if_settled(lock.name()).is_some()
            };
            if !is_settled && !budget.is_used_up(host, effort) {
                effort.add(self.settle(host, lock, Initiator::Client, Ownership::Ours));
                if self.part_own(host, lock, Some(owner)) == Parted::Own {
                    self.changes_due();
                }
            }
        }
    }

    /// Writes what is to become of each lock. If one cannot be written, those are taken back that were granted.
    fn carry_out<'l, 'r, 'n, H: Host<Client = C>>(
        &self,
        host: &H,
        locks: &'l [H::Lock<'n>],
        order: &Order<'_, 'r>,
    ) -> Result<Vec<Written<'l, 'r, H::Lock<'n>>>, Error> {
        let Order { owner, joint, now, given, .. } = *order;
        let mut all = Vec::with_capacity(locks.len());
        for (at, lock) in locks.iter().enumerate() {
            let mut key = lock.open(Mode::Write);
            let holders = self.with_fences(
                || host.monotonic(),
                |fences| key.stored().holders(owner, now, fences),
            )?;
            let Some(outcome) = joint.outcome(at, &holders, now) else { continue };
            let write = outcome.write(&holders);
            let changed = write.changes();
            if let Err(error) = key.write(write) {
                drop(key);
                self.undo(host, locks.get(..at).unwrap_or_default(), owner, joint);
                return Err(error);
            }
            if given == Given::HandedOff {
                // Others may wait for it still, and have not been told how it is held now.
                self.with_queues(|queues| queues.remember(lock.name(), key.stored(), now));
            }
            all.push(Written { lock, outcome, changed });
        }
        Ok(all)
    }

    /// These were granted, and others that belong to the same grant cannot be.
    fn undo<H: Host<Client = C>>(
        &self,
        host: &H,
        locks: &[H::Lock<'_>],
        owner: Owner<'_>,
        joint: &Joint<'_>,
    ) {
        let Joint::Granted(Grant { fence, .. }) = *joint else { return };
        let due = host.monotonic();
        for lock in locks {
            let (name, owner) = (KeptName::from(lock.name()), KeptOwner::from(owner));
            let pending = PendingRelease { name, owner, fence };
            self.pending_releases.borrow_mut().add(pending, due);
        }
        self.changes_due();
    }

    /// What follows when all are written.
    fn tell_all<H: Host<Client = C>>(
        &self,
        host: &H,
        order: &Order<'_, '_>,
        written: &[Written<'_, '_, H::Lock<'_>>],
    ) {
        let Order { owner, ephemeral, given, now, .. } = *order;
        for Written { lock, outcome, .. } in written {
            if let Some(fence_number) = outcome.confirmed() {
                self.mark_delivered(fence_number);
            }
            self.rebind(lock.name(), owner, outcome);
            if let Some(ephemeral) = ephemeral {
                self.bind(host, lock.name(), outcome, ephemeral, now);
            }
        }
        for Written { lock, outcome, .. } in written {
            self.report(*lock, outcome, given, now);
        }
    }

    /// Gives all the locks that it waits for to one who is first in the queues of all, if all can be had. `Break` if they
    /// cannot: then nothing changes, and it goes on waiting.
    pub(super) fn hand_on_all<H: Host<Client = C>>(
        &self,
        host: &H,
        lock: &H::Lock<'_>,
        id: WaiterId,
    ) -> (Effort, ControlFlow<()>) {
        let mut effort = Effort::ROUND;
        let Some(asked) = self.asked_by(host, id) else {
            return (effort, ControlFlow::Continue(()));
        };
        let wanted = Wanted { owner: asked.owner.as_owner(), ttl: asked.ttl, share: asked.share };
        let now = host.now();
        let names = &asked.names;
        let mut lost = Untold::new();
        let look = Look { settled: lock.name(), wanted: &wanted, now };
        let stood = self.stand_all(host, &look, names, &mut effort, &mut lost);
        let refusal = match stood {
            Ok(_) if asked.is_out_of_patience => Refusal::Over(Answer::GaveUp),
            Ok(ToBeHad { locks, standings }) => {
                let joint = self
                    .consult(host, |fences| lock::acquire_all(&standings, &wanted, now, fences));
                let ephemeral = asked.ephemeral;
                let (owner, given) = (wanted.owner, Given::HandedOff);
                let order = Order { owner, joint: &joint, ephemeral, given, now };
                match joint {
                    Joint::Refused { acquired: Acquired::NoFenceLeft, .. } => {
                        Refusal::Over(Answer::Refused(Error::NoFenceLeft))
                    }
                    Joint::Refused { .. } => Refusal::Over(Answer::GaveUp),
                    _ => {
                        effort.add(self.give_all(host, &locks, id, &order, &lost));
                        return (effort, ControlFlow::Continue(()));
                    }
                }
            }
            Err(NotToBeHad { name, refusal }) => {
                self.with_queues(|queues| {
                    queues.refused(id, name, matches!(refusal, Refusal::Held { .. }));
                    // It may have been free when it was last looked at for its own sake, and taken by an older client since.
                    if let Refusal::Held { may_change: Some(moment) } = refusal {
                        queues.look_no_later(name, moment);
                    }
                });
                refusal
            }
        };
        self.report_untold(host, &lost, now);
        match refusal {
            Refusal::Held { .. } => (effort, ControlFlow::Break(())),
            Refusal::NotNow(millis) => {
                self.postpone(host, lock, millis);
                (effort, ControlFlow::Break(()))
            }
            Refusal::Over(answer) => {
                if let Some(Departed { name, waiter }) = self.with_queues(|queues| queues.leave(id))
                {
                    effort.add(self.answer(host, name.as_name(), waiter, answer));
                }
                (effort, ControlFlow::Continue(()))
            }
        }
    }

    fn asked_by<H: Host<Client = C>>(&self, host: &H, id: WaiterId) -> Option<Asked> {
        let (now, limits) = (host.monotonic(), host.limits());
        self.with_queues(|queues| {
            let names = queues.names_of(id);
            let waiter = queues.waiter(id)?;
            Some(Asked {
                owner: waiter.owner.clone(),
                ttl: waiter.told.lease(waiter.ttl).min(limits.max_ttl),
                share: waiter.share,
                is_out_of_patience: waiter.gives_up.is_some_and(|end| end <= now),
                ephemeral: waiter.ephemeral,
                names,
            })
        })
    }

    /// The locks of these names, and how it stands with each; or the first that cannot be had. So where one stays held, none of
    /// the others is asked for. What was lost is told later: another module may react to that, and change a key that was looked
    /// at.
    fn stand_all<'n, H: Host<Client = C>>(
        &self,
        host: &'n H,
        look: &Look<'_>,
        names: &'n [KeptName],
        effort: &mut Effort,
        untold: &mut Untold,
    ) -> Result<ToBeHad<H::Lock<'n>>, NotToBeHad<'n>> {
        let Look { settled, wanted, now } = *look;
        let mut all = ToBeHad { locks: Vec::new(), standings: Vec::new() };
        for name in names.iter().map(KeptName::as_name) {
            let lock = host.beside(name);
            if name != settled {
                let refusal = match lock.may_write(Initiator::Client) {
                    Authority::Yes => None,
                    Authority::NotNow => Some(Refusal::NotNow(PAUSE_MILLIS)),
                    Authority::Refused => Some(Refusal::NotNow(REFUSAL_MILLIS)),
                    Authority::Replica | Authority::NotOurs | Authority::ClusterDown => {
                        Some(Refusal::Over(Answer::Refused(Error::GrantedElsewhere)))
                    }
                };
                if let Some(refusal) = refusal {
                    return Err(NotToBeHad { name, refusal });
                }
                self.open_and_put_back(host, &lock);
            }
            let key = lock.open(Mode::Write);
            let stored = key.stored();
            effort.add(Effort::of_round(stored));
            if stored.may_be_granted(now) {
                lock.about_to_grant();
            }
            let most = host.limits().max_holders;
            let standing = self.consult(host, |fences| {
                let holders = stored.holders(wanted.owner, now, fences)?;
                let may_change = holders.next_end().map(Deadline::first_moment_after);
                Ok::<_, NotALock>((Standing::new(&holders, 0, wanted.share, most), may_change))
            });
            let lost = self.with_queues(|queues| queues.see(name, stored, now));
            drop(key);
            if !lost.is_empty() {
                untold.push((name.into(), lost));
            }
            let may_change = match standing {
                Ok((standing, _)) if standing.may_be_had() => {
                    all.standings.push(standing);
                    all.locks.push(lock);
                    continue;
                }
                Ok((_, may_change)) => may_change,
                Err(NotALock) => None,
            };
            return Err(NotToBeHad { name, refusal: Refusal::Held { may_change } });
        }
        Ok(all)
    }

    fn report_untold<H: Host<Client = C>>(&self, host: &H, untold: &Untold, now: Moment) {
        for (name, lost) in untold {
            self.report_lost(&host.beside(name.as_name()), lost, now);
        }
    }

    /// Carries out what was decided for one who waits for several locks, and tells it.
    fn give_all<H: Host<Client = C>>(
        &self,
        host: &H,
        locks: &[H::Lock<'_>],
        id: WaiterId,
        order: &Order<'_, '_>,
        lost: &Untold,
    ) -> Effort {
        let Some(Departed { name, waiter }) = self.with_queues(|queues| queues.leave(id)) else {
            return Effort::default();
        };
        let also = locks.iter().map(Lock::name).filter(|also| *also != name.as_name());
        let names = KeptNames { also: also.map(KeptName::from).collect(), first: name.clone() };
        let written = self.carry_out(host, locks, order);
        self.report_untold(host, lost, order.now);
        let answer = match (written, *order.joint) {
            (Err(error), _) => Answer::Refused(error),
            (Ok(written), joint) => {
                self.tell_all(host, order, &written);
                if let Some(Ephemeral { connection, .. }) = order.ephemeral
                    && !host.is_connected(connection)
                {
                    // Nobody takes a ticket out of the queue when its connection ends.
                    let _has_work = self.connection_ended(connection, host.monotonic());
                }
                match joint {
                    Joint::Granted(Grant { fence, deadline, .. }) => {
                        Answer::Granted { names, fence, deadline }
                    }
                    Joint::Again { wanted, fence } => {
                        let deadline = Some(Deadline::after(order.now, wanted.ttl));
                        Answer::Again { names, fence_number: fence.number(), deadline }
                    }
                    _ => Answer::GaveUp,
                }
            }
        };
        self.answer(host, name.as_name(), waiter, answer)
    }
}
