//! Who waits for what: a queue for every contended lock.
//!
//! ```text
//!   names     (db 0, "orders:42") ─► queue 3      dues, soonest first
//!                                      │            12:00:01.500  patience of waiter 7
//!   waiters   ┌──────┐  behind  ┌──────┴┐           12:00:02.001  look at queue 3: the lease may be over
//!             │  7   │◄─────────│ head  │           …
//!             │ "a"  │─────────►│  9    │
//!             └──────┘  before  │ "b"   │         dirty   queues of locks that may have become free
//!                ▲              └───────┘
//!              tail
//! ```
//!
//! Waiters and queues live in slabs and point at each other by index, so that joining, leaving from the
//! middle and handing on take the same time with ten waiters and with ten thousand.
//!
//! **One mechanism decides who is next:** [`Queues::settle`]. Whatever may have freed a lock (a
//! release, a deletion, an expiry, a flush, a timer) only marks its queue as dirty; the caller then settles
//! each dirty queue against what the key holds at that moment. So no event needs to be understood, a
//! superfluous mark does no harm, and there is one place in which a lock can be given away.
//!
//! A queue exists only while somebody waits in it. It remembers what its key held when last seen, to
//! tell how a hold has ended, and for servers that tell of an eviction only when the value is gone:
//! see [`Evicted`](super::Evicted).
//!
//! Time is an argument, and the waiting connections are the caller's: `P` is whatever it needs to
//! find one again.

mod contended;
mod leaving;
mod marking;
mod names;
mod outcome;

use super::decision::{self, Acquired};
use super::fence::FenceClock;
use super::hold::{Hold, Stored};
use super::lease::{Deadline, Moment, Ttl};
use super::owner::{KeptOwner, Owner};
use crate::plant::{Bug, planted, planted_once_in};
use contended::Queue;
use names::Names;
use slab::Slab;
use std::collections::BTreeSet;
use std::rc::Rc;

pub(crate) use outcome::{Joined, Left, Lost, LostBy, Next, Seen, Settled};

/// A lock's key, and the database it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) db: i32,
    pub(crate) key: Rc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueId(usize);

/// One who waits.
#[derive(Debug)]
pub(crate) struct Waiter<P> {
    pub(crate) owner: KeptOwner,
    pub(crate) ttl: Ttl,
    pub(crate) since: Moment,
    /// When its patience ends; `None` for one that waits without limit.
    pub(crate) gives_up: Option<Moment>,
    pub(crate) parked: P,
}

#[derive(Debug)]
struct Place<P> {
    waiter: Waiter<P>,
    queue: QueueId,
    /// Towards the head.
    before: Option<WaiterId>,
    /// Towards the tail.
    behind: Option<WaiterId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Patience(WaiterId),
    Look(QueueId),
}

/// How many may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) for_all: usize,
    pub(crate) per_lock: usize,
}

#[derive(Debug)]
pub(crate) struct Queues<P> {
    queues: Slab<Queue>,
    waiters: Slab<Place<P>>,
    names: Names,
    dues: BTreeSet<(Moment, Due)>,
    dirty: BTreeSet<QueueId>,
    /// Where the next round of looks goes on, see [`Queues::mark_next`].
    next: usize,
    /// When time last passed.
    woken: Moment,
}

/// The longest until a contended lock is looked at again: no lost event can cost more than this (L5).
const RECHECK_MILLIS: u64 = 1_000;

impl<P> Queues<P> {
    pub(crate) fn new() -> Self {
        Self {
            queues: Slab::new(),
            waiters: Slab::new(),
            names: Names::default(),
            dues: BTreeSet::new(),
            dirty: BTreeSet::new(),
            next: 0,
            woken: Moment::from_micros(0),
        }
    }

    /// How many wait, for whatever lock.
    pub(crate) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait for this lock.
    pub(crate) fn waiters_for(&self, db: i32, key: &[u8]) -> usize {
        self.queue_named(db, key).map_or(0, |(_, queue)| queue.owners.len())
    }

    /// Those who wait for this lock, oldest first.
    pub(crate) fn queue(&self, db: i32, key: &[u8]) -> impl Iterator<Item = &Waiter<P>> {
        let head = self.queue_named(db, key).and_then(|(_, queue)| queue.head);
        let place = |id: Option<WaiterId>| id.and_then(|WaiterId(index)| self.waiters.get(index));
        std::iter::successors(place(head), move |last| place(last.behind))
            .map(|place| &place.waiter)
    }

    /// Whether `owner` may join without exceeding a limit. One that waits already takes its own place.
    pub(crate) fn has_room(&self, db: i32, key: &[u8], owner: Owner<'_>, room: Room) -> bool {
        match self.queue_named(db, key) {
            _ if planted(Bug::LimitsIgnored) => true,
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
    pub(crate) fn join(&mut self, db: i32, key: &[u8], waiter: Waiter<P>) -> Joined<P> {
        let id = self.id_of(db, key).unwrap_or_else(|| self.open(db, key));
        if let Some(former) = self.waiting_as(id, waiter.owner.as_owner().as_bytes())
            && !planted(Bug::OwnerWaitsTwice)
            && let Some(place) = self.waiters.get_mut(former.0)
        {
            let since = place.waiter.since;
            let left = std::mem::replace(&mut place.waiter, Waiter { since, ..waiter });
            let gives_up = place.waiter.gives_up;
            self.forget_due(left.gives_up, Due::Patience(former));
            self.add_due(gives_up, Due::Patience(former));
            return Joined::InPlaceOf(former, left.parked);
        }
        Joined::Queued(self.append(id, waiter))
    }

    /// Since when the one has waited that has waited longest.
    pub(crate) fn longest_since(&self) -> Option<Moment> {
        let heads = self.queues.iter().filter_map(|(_, queue)| queue.head);
        heads.filter_map(|head| self.waiters.get(head.0)).map(|place| place.waiter.since).min()
    }

    /// The module itself has freed the lock or given it another fence: it was not taken from its holder.
    pub(crate) fn changed(&mut self, db: i32, key: &[u8]) {
        if let Some(id) = self.id_of(db, key) {
            self.with_queue(id, |queue| queue.seen = None);
        }
    }

    /// What the key of a lock that somebody waits for held when it was last looked at.
    pub(crate) fn seen(&self, db: i32, key: &[u8]) -> Option<&Seen> {
        self.queue_named(db, key)?.1.seen.as_ref()
    }

    /// A lock to settle, no longer dirty.
    pub(crate) fn take_dirty(&mut self) -> Option<Name> {
        let id = self.dirty.pop_first()?;
        self.queues.get(id.0).map(|queue| queue.name.clone())
    }

    /// Whether the lock is to be settled before anybody looks at it. That is so when it is dirty, and while a command
    /// that touched it may still be queued in the transaction that is being executed.
    pub(crate) fn may_have_changed(&self, db: i32, key: &[u8]) -> bool {
        self.is_dirty(db, key)
            || self.queue_named(db, key).is_some_and(|(_, queue)| queue.touched.is_some())
    }

    pub(super) fn is_dirty(&self, db: i32, key: &[u8]) -> bool {
        self.id_of(db, key).is_some_and(|id| self.dirty.contains(&id))
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// When [`Queues::wake`] next has something to do.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.dues.first().map(|&(moment, _)| moment)
    }

    /// Lets time pass: marks the locks that are due for a look, and takes out those whose patience has ended,
    /// `at_most` of them. Call again while [`Queues::next_due`] is not in the future.
    pub(crate) fn wake(&mut self, now: Moment, at_most: usize) -> Vec<Left<P>> {
        if now < self.woken && !planted(Bug::StepBackUnnoticed) {
            // The clock was set back, and a look that was a second away may now be an hour away.
            self.dirty.extend(self.queues.iter().map(|(index, _)| QueueId(index)));
        }
        self.woken = now;
        let mut ended = Vec::new();
        while ended.len() < at_most
            && let Some(&(moment, due)) = self.dues.first()
            && moment <= now
        {
            self.dues.pop_first();
            match due {
                Due::Look(id) => {
                    self.look_at(id, None);
                    self.dirty.insert(id);
                }
                Due::Patience(id) => ended.extend(self.leave(id)),
            }
        }
        ended
    }

    /// Looks at the lock again after so long, and not before: it cannot be settled now.
    pub(crate) fn postpone(&mut self, db: i32, key: &[u8], until: Moment) {
        if let Some(id) = self.id_of(db, key) {
            self.dirty.remove(&id);
            self.look_at(id, Some(until));
        }
    }

    /// Decides who is next, from what the key holds now. The caller carries the answer out and asks again,
    /// until the lock is held or nobody waits.
    pub(crate) fn settle(
        &mut self,
        db: i32,
        key: &[u8],
        stored: Stored<'_>,
        now: Moment,
        fences: &mut FenceClock,
    ) -> Settled<P> {
        let Some(id) = self.id_of(db, key) else {
            return Settled { lost: None, next: Next::Nobody };
        };
        self.dirty.insert(id); // until it is found to be held, whatever goes wrong on the way
        let hold = stored.hold(now, fences);
        let lost = self.queues.get_mut(id.0).and_then(|queue| queue.lost(stored, now));
        let next = match hold {
            // Not a lock at all: nobody can be granted it, and it may be gone again soon.
            Err(_) => self.held(id, None, now),
            Ok(Some(hold)) => match self.waiting_as(id, hold.owner) {
                Some(waiter) => self.again(waiter, &hold, now, fences),
                None => self.held(id, stored.seen(), now),
            },
            Ok(None) if planted_once_in(10_000, Bug::WakeUpLost) => self.held(id, None, now),
            Ok(None) => match fences.rests(now) {
                Some(end) => self.rest(id, now, end),
                None => self.grant_first(id, now, fences),
            },
        };
        Settled { lost, next }
    }

    fn grant_first(&mut self, id: QueueId, now: Moment, fences: &mut FenceClock) -> Next<P> {
        let head = self.queues.get(id.0).and_then(Queue::next);
        let Some(Left { waiter, .. }) = head.and_then(|head| self.leave(head)) else {
            return Next::Nobody;
        };
        if waiter.gives_up.is_some_and(|end| end <= now) {
            return Next::GaveUp(waiter);
        }
        let since = if planted(Bug::LeaseFromRequest) { waiter.since } else { now };
        match decision::acquire(None, 0, waiter.owner.as_owner(), waiter.ttl, since, fences) {
            Acquired::Granted(grant) => {
                let (fence, deadline) = (grant.fence, grant.deadline);
                Next::Grant { waiter, fence, deadline }
            }
            Acquired::Again { .. } | Acquired::Busy | Acquired::NoFenceLeft => {
                Next::NoFenceLeft(waiter)
            }
        }
    }

    fn again(
        &mut self,
        id: WaiterId,
        hold: &Hold<'_>,
        now: Moment,
        fences: &mut FenceClock,
    ) -> Next<P> {
        let Some(Left { waiter, .. }) = self.leave(id) else { return Next::Nobody };
        match decision::acquire(Some(hold), 0, waiter.owner.as_owner(), waiter.ttl, now, fences) {
            Acquired::Again { fence_number, longer } => {
                Next::Again { waiter, fence_number, longer }
            }
            Acquired::Granted(_) | Acquired::Busy | Acquired::NoFenceLeft => Next::GaveUp(waiter),
        }
    }

    /// Free, but not to be had before this moment.
    fn rest(&mut self, id: QueueId, now: Moment, end: Moment) -> Next<P> {
        self.dirty.remove(&id);
        self.look_at(id, Some(end.min(now.plus_millis(RECHECK_MILLIS))));
        Next::Held
    }

    fn held(
        &mut self,
        id: QueueId,
        seen: Option<(&[u8], Option<Deadline>)>,
        now: Moment,
    ) -> Next<P> {
        let recheck = now.plus_millis(RECHECK_MILLIS);
        let look = match seen.and_then(|(_, deadline)| deadline) {
            Some(deadline) => recheck.min(deadline.first_moment_after()),
            None => recheck,
        };
        let next = self.queues.get_mut(id.0).and_then(|queue| queue.next_after_touch(now));
        self.dirty.remove(&id);
        self.look_at(id, Some(next.map_or(look, |next| look.min(next))));
        self.with_queue(id, |queue| queue.remember(seen));
        Next::Held
    }

    fn waiting_as(&self, id: QueueId, owner: &[u8]) -> Option<WaiterId> {
        self.queues.get(id.0)?.owners.get(owner).copied()
    }

    fn append(&mut self, id: QueueId, waiter: Waiter<P>) -> WaiterId {
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
        self.add_due(gives_up, Due::Patience(waiter));
        waiter
    }

    /// A new queue is dirty: nobody has looked at the key on its behalf yet.
    fn open(&mut self, db: i32, key: &[u8]) -> QueueId {
        let key: Rc<[u8]> = key.into();
        let id = QueueId(self.queues.insert(Queue::new(Name { db, key: Rc::clone(&key) })));
        self.names.insert(db, key, id);
        self.dirty.insert(id);
        id
    }

    fn close(&mut self, id: QueueId) {
        self.look_at(id, None);
        self.dirty.remove(&id);
        let Some(queue) = self.queues.try_remove(id.0) else { return };
        self.names.remove(queue.name.db, &queue.name.key);
        if self.queues.is_empty() {
            self.queues.shrink_to_fit();
            self.waiters.shrink_to_fit();
        }
    }

    fn look_at(&mut self, id: QueueId, moment: Option<Moment>) {
        let before =
            self.queues.get_mut(id.0).and_then(|queue| std::mem::replace(&mut queue.look, moment));
        self.forget_due(before, Due::Look(id));
        self.add_due(moment, Due::Look(id));
    }

    fn add_due(&mut self, moment: Option<Moment>, due: Due) {
        self.dues.extend(moment.map(|moment| (moment, due)));
    }

    fn forget_due(&mut self, moment: Option<Moment>, due: Due) {
        if let Some(moment) = moment {
            self.dues.remove(&(moment, due));
        }
    }

    fn id_of(&self, db: i32, key: &[u8]) -> Option<QueueId> {
        self.names.get(db, key)
    }

    fn queue_named(&self, db: i32, key: &[u8]) -> Option<(QueueId, &Queue)> {
        let id = self.id_of(db, key)?;
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
