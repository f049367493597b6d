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
mod turn;

use super::ephemeral::Ephemeral;
use super::fence::FenceClock;
use super::hold::Stored;
use super::holders::Holders;
use super::lease::{Deadline, Moment, Monotonic, Now, Ttl};
use super::limits::Limits;
use super::name::{KeptName, Name};
use super::owner::{KeptOwner, Owner};
use super::share::Share;
use contended::Queue;
use looks::Looks;
use marking::Marks;
use names::Names;
use slab::Slab;
use std::collections::BTreeSet;
use std::rc::Rc;
use turn::Turn;

pub use marking::{Cause, Marked, Ownership, Suspicion};
pub use outcome::{Departed, Joined, Look, Lost, LostBy, Next, Seen, Settled};

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
    /// The connection, as the caller knows it.
    pub client: C,
}

#[derive(Debug)]
struct Place<C> {
    waiter: Waiter<C>,
    queue: QueueId,
    /// Towards the head.
    before: Option<WaiterId>,
    /// Towards the tail.
    behind: Option<WaiterId>,
}

/// How many may wait.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub for_all: usize,
    pub per_lock: usize,
}

#[derive(Debug)]
pub struct Queues<C> {
    queues: Slab<Queue>,
    waiters: Slab<Place<C>>,
    names: Names,
    /// Whose patience ends when.
    patience: BTreeSet<(Monotonic, WaiterId)>,
    looks: Looks,
    marks: Marks,
    /// Where the next round goes on, see [`Queues::doubt_next_slots`].
    next: usize,
    /// The latest time from which a look was counted since time last passed.
    latest: Moment,
}

/// The longest until a contended lock is looked at again: no lost event can cost more than this (L5).
const RECHECK_MILLIS: u64 = 1_000;

impl<C> Queues<C> {
    pub fn new() -> Self {
        Self {
            queues: Slab::new(),
            waiters: Slab::new(),
            names: Names::default(),
            patience: BTreeSet::new(),
            looks: Looks::default(),
            marks: Marks::default(),
            next: 0,
            latest: Moment::from_micros(0),
        }
    }

    /// How many wait, for whatever lock.
    pub fn waiters(&self) -> usize {
        self.waiters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait for this lock.
    pub fn waiters_for(&self, name: Name<'_>) -> usize {
        self.queue_named(name).map_or(0, |(_, queue)| queue.owners.len())
    }

    /// Those who wait for this lock, oldest first.
    pub fn queue(&self, name: Name<'_>) -> impl Iterator<Item = &Waiter<C>> {
        let head = self.queue_named(name).and_then(|(_, queue)| queue.head);
        let place = |id: Option<WaiterId>| id.and_then(|WaiterId(index)| self.waiters.get(index));
        std::iter::successors(place(head), move |last| place(last.behind))
            .map(|place| &place.waiter)
    }

    /// Whether `owner` may join without exceeding a limit. One that waits already takes its own place.
    pub fn has_room(&self, name: Name<'_>, owner: Owner<'_>, room: Room) -> bool {
        match self.queue_named(name) {
            Some((_, queue)) if queue.owners.contains_key(owner.as_bytes()) => true,
            Some((_, queue)) => {
                queue.owners.len() < room.per_lock && self.waiters.len() < room.for_all
            }
            None => room.per_lock > 0 && self.waiters.len() < room.for_all,
        }
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
            let left = std::mem::replace(&mut place.waiter, Waiter { since, ..waiter });
            let gives_up = place.waiter.gives_up;
            self.forget_patience(left.gives_up, former);
            self.patience.extend(gives_up.map(|end| (end, former)));
            // It may be admitted with the share that it asks for now.
            self.mark_queue(id, Cause::Due);
            return Joined::InPlaceOf(former, left.client);
        }
        Joined::Queued(self.append(id, waiter))
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

    /// Whether the lock is to be settled before anybody looks at it. That is so when it is marked, and while a command
    /// that touched it may still be queued in the transaction that is being executed.
    pub fn may_have_changed(&self, name: Name<'_>) -> bool {
        self.is_marked(name)
            || self.queue_named(name).is_some_and(|(_, queue)| queue.touched.is_some())
    }

    pub(crate) fn is_marked(&self, name: Name<'_>) -> bool {
        self.queue_named(name).is_some_and(|(_, queue)| queue.mark.is_some())
    }

    /// When [`Queues::wake`] next has something to do, as the wall clock will tell it.
    pub fn next_due(&self, now: Now) -> Option<Moment> {
        let patience = self.patience.first().map(|&(end, _)| now.wall_at(end));
        [self.looks.first(), patience].into_iter().flatten().min()
    }

    /// Lets time pass: marks the locks that are due for a look, and takes out those whose patience has ended,
    /// `at_most` of them. Call again while [`Queues::next_due`] is not in the future.
    pub fn wake(&mut self, now: Now, at_most: usize) -> Vec<Departed<C>> {
        if now.wall < self.latest {
            // The clock was set back, and a look that was a second away may now be an hour away.
            self.mark_all(None);
        }
        self.latest = now.wall;
        while let Some(id) = self.looks.take_due(now.wall) {
            self.with_queue(id, |queue| queue.look = None);
            self.mark_queue(id, Cause::Due);
        }
        let mut ended = Vec::new();
        while ended.len() < at_most
            && let Some(&(end, id)) = self.patience.first()
            && end <= now.monotonic
        {
            self.patience.pop_first();
            ended.extend(self.leave(id));
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

    fn waiting_as(&self, id: QueueId, owner: &[u8]) -> Option<WaiterId> {
        self.queues.get(id.0)?.owners.get(owner).copied()
    }

    fn append(&mut self, id: QueueId, waiter: Waiter<C>) -> WaiterId {
        let tail = self.queues.get(id.0).and_then(|queue| queue.tail);
        let (owner, gives_up) = (waiter.owner.clone(), waiter.gives_up);
        let place = Place { waiter, queue: id, before: tail, behind: None };
        let waiter = WaiterId(self.waiters.insert(place));
        match tail.and_then(|tail| self.waiters.get_mut(tail.0)) {
            Some(last) => last.behind = Some(waiter),
            None => self.with_queue(id, |queue| queue.head = Some(waiter)),
        }
        self.with_queue(id, |queue| {
            queue.tail = Some(waiter);
            queue.owners.insert(owner, waiter);
        });
        self.patience.extend(gives_up.map(|end| (end, waiter)));
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

    fn forget_patience(&mut self, end: Option<Monotonic>, id: WaiterId) {
        if let Some(end) = end {
            self.patience.remove(&(end, id));
        }
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
