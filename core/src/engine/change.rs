//! A client's request for one lock, or for several locks: either all of them change or none does.
//!
//! ```text
//!   for each lock:   settle, if suspected
//!   for each lock:   open ── put back ── how does it stand? ── close      the last one stays open
//!                    decide about all of them
//!   for each lock:   open ── write ── close                               the last one first: it is open
//!   for each lock:   report; settle, if somebody waits
//! ```
//!
//! A request for one lock takes the same path with no other locks: its key is opened once, and nothing is allocated.
//! Only one key is open at a time. Nobody is told anything before every key is written.

use super::bindings::Disconnected;
use super::effort::{Budget, Effort};
use super::{Answer, Authority, Engine, Host, Initiator, Key, Lock, Mode, WaiterGrant, Warning};
use crate::command::{Decide, Error, MayWait};
use crate::lock::{
    self, Changed, Checked, Decision, Departed, Ephemeral, FenceClock, Grant, Hold, Joined,
    KeptNames, KeptOwner, KeptTicket, KeptWait, Moment, Monotonic, Name, Names, Outcome, Owner,
    Ownership, Proof, Queues, Renewed, Seen, Standing, Wait, WaitKind, Waiter, WaiterId, Wanted,
    Write,
};
use crate::observe::{Given, WaitEnd};
use std::slice;

#[derive(Debug)]
pub struct Done<'r> {
    pub decision: Decision<'r>,
    pub released: usize,
}

/// One of the locks, after it was written.
pub(super) struct Written<'l, 'r, L> {
    lock: &'l L,
    /// What the request did to this lock. `None` if the lock stays as it was, and there is nothing to report.
    outcome: Option<Outcome<'r>>,
    changed: Changed,
    waiters: usize,
}

impl<'l, 'r, L> Written<'l, 'r, L> {
    pub(super) const fn new(
        lock: &'l L,
        outcome: Option<Outcome<'r>>,
        write: &Write<'_>,
        waiters: usize,
    ) -> Self {
        Self { lock, outcome, changed: write.changes(), waiters }
    }

    const fn is_released(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Released { .. }))
    }
}

/// What to carry out for all the locks, and for which owner.
#[derive(Clone, Copy)]
pub(super) struct Order<'a, 'r> {
    pub(super) owner: Owner<'a>,
    pub(super) decision: &'a Decision<'r>,
    pub(super) ephemeral: Option<Ephemeral>,
    pub(super) given: Given,
    pub(super) now: Moment,
}

impl<H: Host> Engine<'_, H> {
    /// Lets a request decide about its locks, which differ from each other and are in one database, and carries the
    /// decision out. If somebody waits for a lock, the lock changes hands here: it is settled before the request if it
    /// is suspected, and after the request if the request changed it.
    pub fn change<'r>(
        self,
        locks: &[H::Lock<'_>],
        request: &'r impl Decide,
    ) -> Result<Done<'r>, Error> {
        let ephemeral = self.ephemeral(request)?;
        let owner = request.owner()?;
        let [others @ .., lock] = locks else { return Err(Error::WrongArity) };
        let waiters = self.settle_if_suspect(locks, Some(owner));
        // One moment for all looks: a lease must not end between two of them.
        let now = self.host.now();
        let mut standings = Vec::new();
        if !others.is_empty() {
            standings = self.stand_with_others(others, request, now)?;
        }
        let mut key = lock.open(Mode::Write)?;
        self.put_back(&mut key, lock.name(), now)?;
        let stored = key.stored();
        let mut written = Written { lock, outcome: None, changed: Changed::Nothing, waiters };
        let mut write = Write::Keep;
        // The closure sets the variables instead of returning them: a return by value is a copy, and most commands pass
        // here.
        let mut decision = Decision::NoFenceLeft;
        self.consult(|fences| {
            let holders = stored.holders(owner, now, fences)?;
            let standing = request.stand(&holders, waiters);
            decision = request.decide(all(&mut standings, &standing), now, fences)?;
            written.outcome = decision.outcome(others.len(), &holders, now);
            if let Some(outcome) = &written.outcome {
                write = outcome.write(&holders);
            }
            Ok::<_, Error>(())
        })?;
        written.changed = write.changes();
        let is_kept = written.changed == Changed::Nothing;
        let is_overlooked = waiters > 0 && is_kept && stored.is_free(now);
        key.write(&write)?;
        drop(key);
        // Somebody waits for a lock that nobody holds, and no event announced that the lock became free.
        if is_overlooked && !self.fences.get().is_quarantined() {
            self.with_queues(|queues| queues.mark(lock.name()));
            self.changes_due();
        }
        let order = || Order { owner, decision: &decision, ephemeral, given: Given::Asked, now };
        let mut also = Vec::new();
        if !others.is_empty() {
            also = self.write_others(lock.name(), others, &order())?;
        }
        self.tell(&order(), &also, &written);
        if written.waiters > 0 || also.iter().any(|written| written.waiters > 0) {
            let gives_up = request.gives_up_ticket().then_some(owner);
            self.settle_changed(gives_up, &also, &written);
        }
        let released = also.iter().filter(|written| written.is_released()).count();
        Ok(Done { decision, released: released.saturating_add(written.is_released().into()) })
    }

    /// The standing of the owner with each lock but the last.
    #[inline(never)]
    fn stand_with_others(
        self,
        others: &[H::Lock<'_>],
        request: &impl Decide,
        now: Moment,
    ) -> Result<Vec<Standing>, Error> {
        let owner = request.owner()?;
        let stand = |lock: &H::Lock<'_>| {
            let waiters = self.waiters_for(lock.name());
            let mut key = lock.open(Mode::Write)?;
            self.put_back(&mut key, lock.name(), now)?;
            let stored = key.stored();
            let holders = self.consult(|fences| stored.holders(owner, now, fences))?;
            Ok(request.stand(&holders, waiters))
        };
        others.iter().map(stand).collect()
    }

    /// Writes each lock but the last, which has been written. If a write fails, the locks that were granted before it
    /// are taken back.
    #[inline(never)]
    pub(super) fn write_others<'l, 'r, L: Lock>(
        self,
        last: Name<'_>,
        others: &'l [L],
        order: &Order<'_, 'r>,
    ) -> Result<Vec<Written<'l, 'r, L>>, Error> {
        let Order { owner, decision, now, given, .. } = *order;
        let mut written = Vec::with_capacity(others.len());
        for (at, lock) in others.iter().enumerate() {
            let waiters = self.waiters_for(lock.name());
            let write = || {
                let mut key = lock.open(Mode::Write)?;
                let look = |fences: &mut _| {
                    // Another module may have put something else there since the first look, which is no lock.
                    let holders = key.stored().holders(owner, now, fences)?;
                    let outcome = decision.outcome(at, &holders, now);
                    let write = outcome.map_or(Write::Keep, |outcome| outcome.write(&holders));
                    Ok::<_, Error>((outcome, write))
                };
                let (outcome, write) = self.with_fences(|| self.host.monotonic(), look)?;
                key.write(&write)?;
                if given == Given::HandedOff {
                    // Others may still wait for the lock, and their queue does not know yet what the key holds now.
                    self.with_queues(|queues| queues.remember(lock.name(), key.stored(), now));
                }
                Ok(Written::new(lock, outcome, &write, waiters))
            };
            let undo = |_: &Error| self.undo(last, others.get(..at).unwrap_or_default(), order);
            written.push(write().inspect_err(undo)?);
        }
        Ok(written)
    }

    /// Takes these locks back: they were granted, but other locks of the same grant could not be.
    fn undo<L: Lock>(self, last: Name<'_>, others: &[L], order: &Order<'_, '_>) {
        let Decision::Granted(Grant { fence, .. }) = *order.decision else { return };
        let also = others.iter().map(|lock| lock.name().into()).collect();
        let names = KeptNames { first: last.into(), also };
        for name in names.iter() {
            self.with_queues(|queues| queues.forget_seen(name.as_name()));
        }
        let grant = WaiterGrant { names, owner: order.owner.into(), fence };
        self.queue_releases(&grant, self.host.monotonic());
    }

    /// Tells the results, after all keys are written. Not earlier: if a write is refused, the client gets an error and
    /// must not have learned of a grant.
    #[inline(always)]
    pub(super) fn tell<L: Lock>(
        self,
        order: &Order<'_, '_>,
        others: &[Written<'_, '_, L>],
        last: &Written<'_, '_, L>,
    ) {
        for other in others {
            self.follow(order, other);
        }
        self.follow(order, last);
        for Written { lock, outcome, .. } in others {
            self.report(*lock, outcome.as_ref(), order.given, order.now);
        }
        self.report(last.lock, last.outcome.as_ref(), order.given, order.now);
    }

    /// From now on the owner counts on its grant. The hold is bound to the connection anew.
    #[inline(always)]
    fn follow<L: Lock>(
        self,
        order: &Order<'_, '_>,
        Written { lock, outcome, .. }: &Written<'_, '_, L>,
    ) {
        let Some(outcome) = outcome else { return };
        if let Some(fence_number) = outcome.confirmed() {
            self.mark_delivered(fence_number);
        }
        self.rebind(lock.name(), order.owner, outcome);
        if let Some(ephemeral) = order.ephemeral {
            self.bind(lock.name(), outcome, ephemeral, order.now);
        }
    }

    /// Gives the locks that a request has changed to their waiters, and takes the tickets of the owner that gives them up out
    /// of their queues. All the locks together get as much time as one lock does.
    #[inline(never)]
    fn settle_changed<'n>(
        self,
        gives_up: Option<Owner<'_>>,
        others: &[Written<'_, '_, H::Lock<'n>>],
        last: &Written<'_, '_, H::Lock<'n>>,
    ) where
        H: 'n,
    {
        let all = || others.iter().chain([last]).filter(|written| written.waiters > 0);
        // First update every lock, then settle: a waiter for one lock may wait for the others, and settling looks at
        // those, too.
        for Written { lock, changed, .. } in all() {
            let name = lock.name();
            let leave = |owner| self.with_queues(|queues| queues.leave_by_ticket(name, owner));
            if let Some(left) = gives_up.and_then(leave) {
                self.abandon(name, left.waiter);
            }
            if *changed == Changed::Value {
                self.with_queues(|queues| queues.forget_seen(name));
            }
        }
        let budget = (!others.is_empty()).then(|| Budget::of(self.host, self.host.slice()));
        let mut effort = Effort::default();
        for Written { lock, .. } in all().filter(|written| written.changed != Changed::Nothing) {
            if budget.is_some_and(|budget| budget.is_used_up(self.host, effort)) {
                self.with_queues(|queues| queues.mark(lock.name()));
                self.changes_due();
            } else {
                effort.add(self.settle(*lock, Initiator::Client, Ownership::Ours));
            }
        }
    }

    /// As [`Engine::change`]. A request that is ready to wait, and cannot be granted now, is queued.
    pub fn change_or_wait<'r>(
        self,
        locks: &[H::Lock<'_>],
        request: &'r impl MayWait,
    ) -> Result<Done<'r>, Error> {
        let done = self.change(locks, request)?;
        match done.decision {
            Decision::Wait(wait) => self.begin_to_wait(locks, request, wait),
            _ => Ok(done),
        }
    }

    /// Queues an owner whose request cannot be granted now, or keeps the places that it has by its tickets. The
    /// decision is [`Decision::Busy`] where the client cannot be blocked: in a transaction the client gets nil, as if
    /// its patience had ended at once. If the client could expect to wait and cannot, the result is an error: after nil
    /// the client would ask again at once, forever.
    #[inline(never)]
    fn begin_to_wait<'r>(
        self,
        locks: &[H::Lock<'_>],
        request: &'r impl MayWait,
        wait: Wait<'r>,
    ) -> Result<Done<'r>, Error> {
        let done = |decision| Ok(Done { decision, released: 0 });
        let [first, also @ ..] = locks else { return Err(Error::WrongArity) };
        let Wanted { owner, ttl, share } = request.wanted()?;
        let ephemeral = self.ephemeral(request)?;
        let also: Vec<_> = also.iter().map(|lock| lock.name().key).collect();
        let names = Names { first: first.name(), also: &also };
        let now = self.host.monotonic();
        match wait {
            Wait::Block(_) if !self.host.may_block() => {
                self.cannot_wait(names.first);
                return done(Decision::Busy { at: 0, owner });
            }
            Wait::Block(_) => {}
            Wait::Ticket(ticket) => {
                let (wanted, client) = (Wanted { owner, ttl, share }, self.host.client_id());
                match self.with_queues(|queues| {
                    queues.renew(names, &wanted, ticket, client, ephemeral, now)
                }) {
                    Renewed::Yes => return done(Decision::Wait(wait)),
                    Renewed::Sooner => {
                        self.changes_due();
                        return done(Decision::Wait(wait));
                    }
                    Renewed::No => {}
                }
            }
        }
        if self.host.authority() == Authority::Replica {
            self.cannot_wait(names.first);
            return Err(Error::NobodyWaitsOnReplicas);
        }
        self.check_room(names, owner, wait.kind())?;
        let kept = match wait {
            Wait::Ticket(ticket) => {
                KeptWait::Ticket(KeptTicket::new(ticket, self.host.client_id()))
            }
            Wait::Block(_) => {
                let client = self.host.block(request.is_minted());
                KeptWait::Blocked(client.inspect_err(|_| self.cannot_wait(names.first))?)
            }
        };
        let (owner, gives_up) = (KeptOwner::from(owner), wait.gives_up(now));
        let ephemeral = ephemeral.map(Box::new);
        let waiter = Waiter { owner, ttl, share, since: now, gives_up, ephemeral, wait: kept };
        let id = self.join(names, waiter);
        // The locks may not have been looked at for their waiters yet.
        for lock in locks {
            self.settle_if_suspect(slice::from_ref(lock), None);
        }
        let is_queued = self.with_queues(|queues| queues.waiter(id).is_some());
        if is_queued {
            self.host.waits(id);
        }
        match wait {
            // The turn of the ticket has come already. The lease lasts as long as the ticket would have; the owner is
            // here, so it gets the lease that it asked for.
            Wait::Ticket(_) if !is_queued => self.change(locks, request),
            Wait::Ticket(_) | Wait::Block(_) => done(Decision::Wait(wait)),
        }
    }

    /// Whether this owner may wait for the locks in this way, without exceeding a limit.
    fn check_room(self, names: Names<'_>, owner: Owner<'_>, kind: WaitKind) -> Result<(), Error> {
        let room = self.host.room(kind);
        let is_full =
            |queues: &Queues<H::Client>, name| queues.waiting_for(name, kind) >= room.per_lock;
        let refused = self.with_queues(|queues| {
            if queues.has_room(names, owner, kind, room) {
                return None;
            }
            let full = names.iter().find(|name| is_full(queues, *name));
            let error = match kind {
                WaitKind::Ticket => Error::TicketsFull,
                WaitKind::Blocked if full.is_some() => Error::LockQueueFull,
                WaitKind::Blocked
                    if room.is_share_of_all && queues.blocked() >= room.connections =>
                {
                    Error::ShareFull
                }
                WaitKind::Blocked => Error::QueueFull,
            };
            Some((full.unwrap_or(names.first), error))
        });
        let Some((name, error)) = refused else { return Ok(()) };
        let now = self.host.now();
        self.with_observer(|observer| observer.queue_full(name, owner.as_bytes(), now));
        Err(error)
    }

    /// Queues a waiter. The queue of a lock that nobody waited for is marked, until somebody looks at the lock.
    fn join(self, names: Names<'_>, waiter: Waiter<H::Client>) -> WaiterId {
        self.changes_due();
        if self.has_bindings() {
            for name in names.iter().filter(|name| !self.is_contended(*name)) {
                self.bindings.borrow_mut().demand(name);
            }
        }
        let (name, owner) = (names.first, waiter.owner.clone());
        let (joined, waiters) =
            self.with_queues(|queues| (queues.join(names, waiter), queues.blocked()));
        let id = match joined {
            Joined::Queued(id) => id,
            Joined::Anew(id, given_up) => {
                for Departed { name, waiter } in given_up {
                    self.give_up_places(name.as_name(), waiter);
                }
                id
            }
            // The wait continues, perhaps on a connection now.
            Joined::InPlaceOf(id, Waiter { wait: KeptWait::Ticket(_), .. }) => {
                self.with_observer(|observer| observer.wait_on_connections(waiters));
                return id;
            }
            Joined::InPlaceOf(id, former) => {
                self.give_up_places(name, former);
                id
            }
        };
        let owner = owner.as_owner().as_bytes();
        self.with_observer(|observer| observer.wait_started(name, owner, waiters));
        id
    }

    /// Ends a former wait of an owner that waits anew.
    fn give_up_places(self, name: Name<'_>, former: Waiter<H::Client>) {
        if former.wait.kind() == WaitKind::Ticket {
            self.abandon(name, former);
        } else {
            self.answer(name, former, Answer::Refused(Error::Replaced));
        }
    }

    /// A waiter has left its queue, and gets no answer.
    fn abandon(self, name: Name<'_>, waiter: Waiter<H::Client>) -> KeptWait<H::Client> {
        self.changes_due();
        let Waiter { owner, since, wait, .. } = waiter;
        self.wait_ended(name, &owner, since, WaitEnd::Abandoned);
        wait
    }

    /// Takes a client that waits out of its queue, without an answer. `None` if it does not wait.
    #[must_use]
    pub fn leave(self, id: WaiterId) -> Option<H::Client> {
        let Departed { name, waiter } = self.with_queues(|queues| queues.leave(id))?;
        match self.abandon(name.as_name(), waiter) {
            KeptWait::Blocked(client) => Some(client),
            KeptWait::Ticket(_) => None,
        }
    }

    /// Notes that a request found the lock held and its client cannot wait.
    fn cannot_wait(self, name: Name<'_>) {
        self.with_observer(|observer| observer.refused(name));
    }

    pub(super) fn wait_ended(
        self,
        name: Name<'_>,
        owner: &KeptOwner,
        since: Monotonic,
        end: WaitEnd,
    ) {
        let now = self.host.clocks();
        let waited_us = now.monotonic.micros_since(since);
        let owner = owner.as_owner().as_bytes();
        self.with_observer(|observer| observer.wait_ended(name, owner, waited_us, end, now.wall));
    }

    /// Whether this proof is of the hold in force. The client counts on a positive reply.
    pub fn check(self, lock: &H::Lock<'_>, proof: &Proof<'_>) -> Result<Checked, Error> {
        let (name, evicted) = (lock.name(), self.evicted_value(lock));
        let key = lock.open(Mode::Read)?;
        let (stored, now) = (key.stored().or(evicted.as_ref()), self.host.now());
        let holders = self.consult(|fences| stored.holders(proof.owner, now, fences))?;
        let checked = lock::check(&holders, proof);
        let Checked::Holds { fence_number } = checked else { return Ok(checked) };
        if self.is_pending_release(name, fence_number)
            || self.over_with_connections(name).has(proof.owner.as_bytes(), fence_number)
        {
            return Ok(Checked::NotHolder);
        }
        self.mark_delivered(fence_number);
        Ok(checked)
    }

    /// Calls `look` with the holds in force, oldest first, the number of waiters and the time. It must not write, so it
    /// tells what the lock is about to become: an evicted lock counts as held, and a grant that is about to be taken
    /// back does not count.
    pub fn read<T>(
        self,
        lock: &H::Lock<'_>,
        look: impl FnOnce(&mut dyn Iterator<Item = Hold<'_>>, usize, Moment) -> T,
    ) -> Result<T, Error> {
        let (name, evicted) = (lock.name(), self.evicted_value(lock));
        let waiters = self.waiters_for(name);
        let key = lock.open(Mode::Read)?;
        let (stored, now) = (key.stored().or(evicted.as_ref()), self.host.now());
        let holds = self.consult(|fences| stored.holds(now, fences))?;
        let pending = self.pending_releases.borrow().fences_of(name);
        let over = self.over_with_connections(name);
        let is_in_force = |hold: &Hold<'_>| {
            pending.binary_search(&hold.fence_number()).is_err()
                && !over.has(hold.owner, hold.fence_number())
        };
        Ok(look(&mut holds.filter(is_in_force), waiters, now))
    }

    pub(super) fn evicted_value(self, lock: &impl Lock) -> Option<Seen> {
        self.evicted.borrow().get(lock.name()).cloned()
    }

    /// Brings the keys of the locks up to date before a command looks at them. Returns how many then wait for the last
    /// lock.
    #[inline(always)]
    pub(super) fn settle_if_suspect(
        self,
        locks: &[H::Lock<'_>],
        asker: Option<Owner<'_>>,
    ) -> usize {
        // Usually nobody waits for any lock, so a command pays three cheap checks here.
        let nobody_waits = self.queues.borrow().is_empty();
        if nobody_waits && !self.has_pending_releases() && !self.has_ended_connections() {
            return 0;
        }
        self.settle_suspected(locks, asker)
    }

    /// All the locks together get as much time as one lock does. The timer does the rest: until then, a lock that
    /// somebody waits for counts as taken.
    #[inline(never)]
    fn settle_suspected(self, locks: &[H::Lock<'_>], asker: Option<Owner<'_>>) -> usize {
        let share = self.host.batch().checked_div(locks.len()).unwrap_or(0).max(1);
        let budget = (locks.len() > 1).then(|| Budget::of(self.host, self.host.slice()));
        let (mut effort, mut waiters) = (Effort::default(), 0);
        for lock in locks {
            self.take_back_pending(lock, asker, share);
            self.disconnect_pending(lock, asker, share);
            let settled = self.queues.borrow().waiters_if_settled(lock.name());
            waiters = settled.unwrap_or_else(|| {
                let is_used_up =
                    || budget.is_some_and(|budget| budget.is_used_up(self.host, effort));
                if !is_used_up() {
                    effort.add(self.settle(lock, Initiator::Client, Ownership::Ours));
                    // The settling may have granted the lock to the asker for an earlier connection of its own, which
                    // has ended since.
                    if self.disconnect_own(lock, asker) == Disconnected::Own {
                        effort.add(self.settle(lock, Initiator::Client, Ownership::Ours));
                    }
                }
                self.waiters_for(lock.name())
            });
        }
        waiters
    }

    /// Lends the fence clock to a decision. Warns if the decision met a fence that the clock refuses to learn: somebody
    /// wrote that fence by hand, or a server's clock is wrong by more than a day.
    pub(super) fn consult<T>(self, decide: impl FnOnce(&mut FenceClock) -> T) -> T {
        let refused = self.fences.get().refused();
        let outcome = self.with_fences(|| self.host.monotonic(), decide);
        if self.fences.get().refused() != refused && self.may_complain(self.host.monotonic()) {
            self.host.warn(Warning::FenceNotCredible);
        }
        outcome
    }

    /// Reports an outcome to the observer and to subscribers of keyspace events. No key is open.
    #[inline(always)]
    pub(super) fn report(
        self,
        lock: &impl Lock,
        outcome: Option<&Outcome<'_>>,
        given: Given,
        now: Moment,
    ) {
        let Some(outcome) = outcome else { return };
        let events = self.with_observer(|observer| observer.note(lock.name(), outcome, given, now));
        events.into_iter().flatten().for_each(|event| lock.publish(event));
    }
}

/// The standings with all locks, the last one included.
#[inline(always)]
pub(super) fn all<'s>(others: &'s mut Vec<Standing>, last: &'s Standing) -> &'s [Standing] {
    if others.is_empty() {
        return slice::from_ref(last);
    }
    others.push(*last);
    others
}
