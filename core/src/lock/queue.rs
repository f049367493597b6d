//! Who waits for what: a queue for every contended lock.
//!
//! ```text
//!   names     (db 0, "orders:42") ─► queue 3      looks     12:00:02.001  queue 3: the lease may be over
//!                                      │            patience  in 1.5 s      waiter 7
//!   waiters   ┌──────┐  behind  ┌──────┴┐
//!             │  7   │◄─────────│ head  │           marks     queue 3, queue 8, …   to be looked at now:
//!             │ "a"  │─────────►│  9    │                     these locks may have become free
//!             └──────┘  before  │ "b"   │
//!                ▲              └───────┘
//!              tail
//! ```
//!
//! Waiters and queues live in slabs and point at each other by index, so that joining, leaving from the
//! middle and handing on take the same time with ten waiters and with ten thousand.
//!
//! **One mechanism decides who is next:** [`Queues::settle`]. Whatever may have freed a lock (a
//! release, a deletion, an expiry, a flush, a timer) only marks its queue; the caller then looks at the key of
//! each marked queue ([`Queues::look`]) and, if there is something to do, settles the queue against what the key
//! holds at that moment. So no event needs to be understood, a superfluous mark costs one look, and there is
//! one place in which a lock can be given away.
//!
//! A queue exists only while somebody waits in it. It remembers what its key held when last seen, to
//! tell how a hold has ended, and for servers that tell of an eviction only when the value is gone:
//! see [`Evicted`](super::Evicted).
//!
//! Time is an argument, and the waiting connections are the caller's: `C` is whatever it needs to
//! find one again.

mod contended;
mod leaving;
mod looks;
mod marking;
mod names;
mod outcome;
mod owners;
mod room;
mod turn;

use super::decision::Wanted;
use super::ephemeral::Ephemeral;
use super::fence::FenceClock;
use super::hold::Stored;
use super::holders::Holders;
use super::lease::{Deadline, Moment, Monotonic, Now, Ttl};
use super::limits::Limits;
use super::name::{KeptName, Name};
use super::owner::KeptOwner;
use super::share::Share;
use super::wait::{TicketRequest, Told};
use contended::Queue;
use looks::Looks;
use marking::Marks;
use names::Names;
use slab::Slab;
use std::collections::BTreeSet;
use std::rc::Rc;
use turn::Turn;

pub use marking::{Cause, Marked, Ownership, Suspicion};
pub use outcome::{Departed, Joined, Look, Lost, LostBy, Next, Renewed, Seen, Settled};
pub use room::Room;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueId(usize);

/// One who waits.
#[derive(Debug)]
pub struct Waiter<C> {
    pub owner: KeptOwner,
    pub ttl: Ttl,
    pub share: Share,
    pub since: Monotonic,
    /// When its patience ends; `None` for one that waits without limit.
    pub gives_up: Option<Monotonic>,
    /// To what its hold is to be bound, if to anything.
    pub ephemeral: Option<Ephemeral>,
    pub told: Told<C>,
}

#[derive(Debug)]
struct Place<C> {
    waiter: Waiter<C>,
    queue: QueueId,
    /// Towards the head.
    before: Option<WaiterId>,
    /// Towards the tail.
    behind: Option<WaiterId>,
    /// When to see whether its patience has ended; also in `patience`. It may be earlier than that: who asks again all
    /// the time only puts it off.
    asked_at: Option<Monotonic>,
}

#[derive(Debug)]
pub struct Queues<C> {
    queues: Slab<Queue>,
    waiters: Slab<Place<C>>,
    names: Names,
    tickets: usize,
    /// Whose patience may end when.
    patience: BTreeSet<(Monotonic, WaiterId)>,
    looks: Looks,
    marks: Marks,
    /// Where the next round goes on, see [`Queues::doubt_next_slots`].
    next: usize,
    /// The latest time from which a look was counted since time last passed.
    latest: Moment,
}

/// How many locks are looked at for each cause in one turn. Nearly all of them are held as before, and a look costs a tenth of
/// a hand-off.
pub const LOOKS_IN_A_TURN: usize = 5_000;

/// The longest until a contended lock is looked at again: no lost event can cost more than this (L5).
const RECHECK_MILLIS: u64 = 1_000;

impl<C> Queues<C> {
    pub fn new() -> Self {
        Self {
            queues: Slab::new(),
            waiters: Slab::new(),
            tickets: 0,
            names: Names::default(),
            patience: BTreeSet::new(),
            looks: Looks::default(),
            marks: Marks::default(),
            next: 0,
            latest: Moment::from_micros(0),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub fn has(&self, id: WaiterId) -> bool {
        self.waiters.contains(id.0)
    }

    /// How many wait for this lock.
    pub fn waiters_for(&self, name: Name<'_>) -> usize {
        self.queue_named(name).map_or(0, |(_, queue)| queue.length)
    }

    /// Those who wait for this lock, oldest first.
    pub fn queue(&self, name: Name<'_>) -> impl Iterator<Item = &Waiter<C>> {
        let queue = self.queue_named(name).map(|(_, queue)| queue);
        queue.into_iter().flat_map(|queue| self.along(queue)).map(|(_, place)| &place.waiter)
    }

    /// Queues a waiter.
    ///
    /// An owner waits once: a second request takes over the place of the first. Whoever lost its connection
    /// and asks again must neither queue up behind its own former self nor be granted the lock twice.
    pub fn join(&mut self, name: Name<'_>, waiter: Waiter<C>) -> Joined<C> {
        let id = self.id_of(name).unwrap_or_else(|| self.open(name));
        if let Some(former) = self.waiting_as(id, waiter.owner.as_owner().as_bytes())
            && let Some(place) = self.waiters.get_mut(former.0)
        {
            let since = place.waiter.since;
            let kind = waiter.told.kind();
            let left = std::mem::replace(&mut place.waiter, Waiter { since, ..waiter });
            let share = place.waiter.share;
            self.expect_patience(former);
            self.count(id, left.told.kind(), usize::saturating_sub);
            self.count(id, kind, usize::saturating_add);
            if share != left.share {
                // It may be admitted with the share that it asks for now.
                self.mark_queue(id, Cause::Due);
            }
            return Joined::InPlaceOf(former, left.told);
        }
        Joined::Queued(self.append(id, waiter))
    }

    /// Keeps the place of an owner that asks again for its ticket, and for the same share, until the ticket would end. So it
    /// is with nearly every request for a ticket, and nothing but the place changes.
    pub fn renew(
        &mut self,
        name: Name<'_>,
        wanted: &Wanted<'_>,
        request: &TicketRequest<'_>,
        now: Monotonic,
    ) -> Renewed {
        let id = self.id_of(name).and_then(|id| self.waiting_as(id, wanted.owner.as_bytes()));
        let Some((id, place)) = id.and_then(|id| Some((id, self.waiters.get_mut(id.0)?))) else {
            return Renewed::No;
        };
        match &mut place.waiter {
            waiter @ Waiter { told: Told::Ticket(_), .. } if waiter.share == wanted.share => {
                waiter.ttl = wanted.ttl;
                waiter.gives_up = Some(request.ticket.ends(now));
                waiter.ephemeral = request.ephemeral;
                if let Told::Ticket(kept) = &mut waiter.told {
                    kept.renew(request.ticket, request.client);
                }
            }
            _ => return Renewed::No,
        }
        let asked_at = place.asked_at;
        self.expect_patience(id);
        let is_as_before = self.waiters.get(id.0).is_some_and(|place| place.asked_at == asked_at);
        if is_as_before { Renewed::Yes } else { Renewed::Sooner }
    }

    /// Since when the one has waited that has waited longest.
    pub fn longest_since(&self) -> Option<Monotonic> {
        let heads = self.queues.iter().filter_map(|(_, queue)| queue.head);
        heads.filter_map(|head| self.waiters.get(head.0)).map(|place| place.waiter.since).min()
    }

    /// The module itself has freed the lock or given it another fence: it was not taken from its holder.
    pub fn forget_seen(&mut self, name: Name<'_>) {
        if let Some(id) = self.id_of(name) {
            self.with_queue(id, |queue| queue.seen = None);
        }
    }

    /// This is what the key holds, although the next waiter may be admitted: others have their turn first.
    pub fn remember(&mut self, name: Name<'_>, stored: Stored<'_>, now: Moment) {
        if let Some(id) = self.id_of(name) {
            self.with_queue(id, |queue| queue.remember(stored.seen(), now));
        }
    }

    /// What the key of a lock that somebody waits for held when it was last looked at.
    pub fn seen(&self, name: Name<'_>) -> Option<&Seen> {
        self.queue_named(name)?.1.seen.as_ref()
    }

    /// How many wait for the lock. `None` if it is to be settled before anybody looks at it. That is so when it is marked, and
    /// while a command that touched it may still be queued in the transaction that is being executed.
    pub fn waiters_if_settled(&self, name: Name<'_>) -> Option<usize> {
        let Some((_, queue)) = self.queue_named(name) else { return Some(0) };
        (queue.mark.is_none() && queue.touched.is_none()).then_some(queue.length)
    }

    /// When [`Queues::wake`] next has something to do, as the wall clock will tell it.
    pub fn next_due(&self, now: Now) -> Option<Moment> {
        let patience = self.patience.first().map(|&(end, _)| now.wall_at(end));
        [self.looks.first(), patience].into_iter().flatten().min()
    }

    /// Lets time pass: marks the locks that are due for a look, and takes out those whose patience has ended.
    /// So many locks are marked at most, and `at_most` of those who wait are asked whether it has. Call again while
    /// [`Queues::next_due`] is not in the future.
    pub fn wake(&mut self, now: Now, at_most: usize) -> Vec<Departed<C>> {
        if now.wall < self.latest {
            // The clock was set back, and a look that was a second away may now be an hour away.
            self.mark_all(None);
        }
        self.latest = now.wall;
        for _ in 0..LOOKS_IN_A_TURN {
            let Some(id) = self.looks.take_due(now.wall) else { break };
            self.with_queue(id, |queue| queue.look = None);
            self.mark_queue(id, Cause::Due);
        }
        let mut ended = Vec::new();
        for _ in 0..at_most {
            let Some((asked_at, id)) = self.take_impatient(now.monotonic) else { break };
            let gives_up = self.waiters.get_mut(id.0).and_then(|place| {
                place.asked_at = None;
                place.waiter.gives_up
            });
            if gives_up == Some(asked_at) {
                ended.extend(self.leave(id));
            } else {
                self.expect_patience(id);
            }
        }
        ended
    }

    /// Looks at the lock again after so long, and not before: it cannot be settled now. What keeps it from being settled
    /// may also hold back the command that touched it, so the touch counts from now on.
    pub fn postpone(&mut self, name: Name<'_>, now: Moment, millis: u64) {
        if let Some(id) = self.id_of(name) {
            self.unmark(id);
            self.count_from(now);
            self.look_at(id, Some(now.plus_millis(millis)));
            self.with_queue(id, |queue| queue.touch_again(now));
        }
    }

    /// Whether there is anything to do about the lock, from what the key holds now. Most locks that are marked
    /// are held as before, and then nobody needs to be asked whether the module may write.
    pub fn look(
        &mut self,
        name: Name<'_>,
        stored: Stored<'_>,
        now: Now,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Look {
        let Some(id) = self.id_of(name) else { return Look::Held { lost: Vec::new() } };
        let turn = self.turn(id, stored, now.wall, limits, fences);
        if let Turn::Of { .. } = turn {
            self.mark_queue(id, Cause::Due); // until it is settled, whatever goes wrong on the way
            return Look::ToSettle;
        }
        let lost = self.lost(id, stored, now.wall);
        self.wait_on(id, &turn, stored, now.wall);
        Look::Held { lost }
    }

    /// Decides who is next, from what the key holds now. The caller carries the answer out and asks again,
    /// until the lock is held or nobody waits. The limits may have been lowered while the waiter waited.
    pub fn settle<'v>(
        &mut self,
        name: Name<'_>,
        stored: Stored<'v>,
        now: Now,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Settled<'v, C> {
        let Some(id) = self.id_of(name) else {
            return Settled { lost: Vec::new(), holders: Holders::NOBODY, next: Next::Nobody };
        };
        self.mark_queue(id, Cause::Due); // until it is found to be held, whatever goes wrong on the way
        let turn = self.turn(id, stored, now.wall, limits, fences);
        let lost = self.lost(id, stored, now.wall);
        let Turn::Of { waiter, holders } = turn else {
            self.wait_on(id, &turn, stored, now.wall);
            return Settled { lost, holders: Holders::NOBODY, next: Next::Held };
        };
        let next = match self.leave(waiter) {
            Some(Departed { waiter, .. }) => self.serve(id, waiter, &holders, now, limits, fences),
            None => Next::Nobody,
        };
        Settled { lost, holders, next }
    }

    fn lost(&mut self, id: QueueId, stored: Stored<'_>, now: Moment) -> Vec<Lost> {
        self.queues.get_mut(id.0).map_or_else(Vec::new, |queue| queue.lost(stored, now))
    }

    /// Nobody is served now. The lock is looked at again when that may change.
    fn wait_on(&mut self, id: QueueId, turn: &Turn<'_>, stored: Stored<'_>, now: Moment) {
        match turn {
            Turn::OfNobody { end } => self.wait_out_quarantine(id, now, *end),
            Turn::OfHolders { may_change } => {
                self.keep_waiting(id, stored.seen(), *may_change, now);
            }
            // Not a lock at all: nobody can be granted it, and it may be gone again soon.
            Turn::NotALock | Turn::Of { .. } => self.keep_waiting(id, None, None, now),
        }
    }

    /// The lock is free, but nothing is granted before this moment.
    fn wait_out_quarantine(&mut self, id: QueueId, now: Moment, end: Moment) {
        self.unmark(id);
        self.count_from(now);
        self.with_queue(id, |queue| queue.touch_again(now));
        self.look_at(id, Some(end.min(now.plus_millis(RECHECK_MILLIS))));
    }

    fn keep_waiting(
        &mut self,
        id: QueueId,
        seen: Option<(&[u8], Option<Deadline>)>,
        may_change: Option<Moment>,
        now: Moment,
    ) {
        let recheck = now.plus_millis(RECHECK_MILLIS);
        let look = may_change.map_or(recheck, |moment| recheck.min(moment));
        self.unmark(id);
        self.count_from(now);
        if let Some(queue) = self.queues.get_mut(id.0) {
            let next = queue.next_after_touch(now);
            let look = next.map_or(look, |next| look.min(next));
            self.looks.set(id, &mut queue.look, Some(look));
            if queue.touched.is_some() {
                queue.looked = Some(now);
            }
            queue.remember(seen, now);
        }
    }

    fn append(&mut self, id: QueueId, waiter: Waiter<C>) -> WaiterId {
        let tail = self.queues.get(id.0).and_then(|queue| queue.tail);
        let (owner, kind) = (waiter.owner.clone(), waiter.told.kind());
        let place = Place { waiter, queue: id, before: tail, behind: None, asked_at: None };
        let waiter = WaiterId(self.waiters.insert(place));
        match tail.and_then(|tail| self.waiters.get_mut(tail.0)) {
            Some(last) => last.behind = Some(waiter),
            None => self.with_queue(id, |queue| queue.head = Some(waiter)),
        }
        self.with_queue(id, |queue| queue.tail = Some(waiter));
        self.index(id, waiter, owner);
        self.count(id, kind, usize::saturating_add);
        self.expect_patience(waiter);
        waiter
    }

    /// A new queue is marked: nobody has looked at the key on its behalf yet.
    fn open(&mut self, name: Name<'_>) -> QueueId {
        let name = KeptName::from(name);
        let (db, key) = (name.db, Rc::clone(&name.key));
        let id = QueueId(self.queues.insert(Queue::new(name)));
        self.names.insert(db, key, id);
        self.mark_queue(id, Cause::Due);
        id
    }

    fn close(&mut self, id: QueueId) {
        self.look_at(id, None);
        self.unmark(id);
        let Some(queue) = self.queues.try_remove(id.0) else { return };
        self.names.remove(queue.name.as_name());
        if self.queues.is_empty() {
            self.queues.shrink_to_fit();
            self.waiters.shrink_to_fit();
        }
    }

    /// A look is about to be counted from this time. If the clock is set back before it comes, all locks
    /// are looked at anew: see [`Queues::wake`].
    fn count_from(&mut self, now: Moment) {
        self.latest = self.latest.max(now);
    }

    fn look_at(&mut self, id: QueueId, moment: Option<Moment>) {
        if let Some(queue) = self.queues.get_mut(id.0) {
            self.looks.set(id, &mut queue.look, moment);
        }
    }

    fn unmark(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(id.0) {
            self.marks.remove(id, queue.mark.take());
        }
    }

    /// The first whose patience may have ended by now.
    fn take_impatient(&mut self, now: Monotonic) -> Option<(Monotonic, WaiterId)> {
        self.patience.first().filter(|(end, _)| *end <= now)?;
        self.patience.pop_first()
    }

    /// Sees to it that somebody asks whether the patience of this one has ended, no later than it ends.
    fn expect_patience(&mut self, id: WaiterId) {
        let Some(place) = self.waiters.get_mut(id.0) else { return };
        let end = place.waiter.gives_up;
        if let (Some(asked_at), Some(end)) = (place.asked_at, end)
            && asked_at <= end
        {
            return;
        }
        if let Some(former) = std::mem::replace(&mut place.asked_at, end) {
            self.patience.remove(&(former, id));
        }
        self.patience.extend(end.map(|end| (end, id)));
    }

    fn id_of(&self, name: Name<'_>) -> Option<QueueId> {
        self.names.get(name)
    }

    fn queue_named(&self, name: Name<'_>) -> Option<(QueueId, &Queue)> {
        let id = self.id_of(name)?;
        Some((id, self.queues.get(id.0)?))
    }

    fn with_queue(&mut self, id: QueueId, change: impl FnOnce(&mut Queue)) {
        if let Some(queue) = self.queues.get_mut(id.0) {
            change(queue);
        }
    }
}

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
