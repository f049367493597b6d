//! Who waits for which lock: a queue for every contended lock.
//!
//! ```text
//!   names     (db 0, "orders:42") ─► queue 3      ends      12:00:02.001  queue 3: the lease may be over
//!                                      │            patience  in 1.5 s      waiter 7
//!   places    ┌──────┐  behind  ┌──────┴┐
//!             │      │◄─────────│ head  │           marks     queue 3, queue 8, …   to be looked at now:
//!             │      │─────────►│       │                     these locks may have become free
//!             └──┬───┘  before  └───┬───┘
//!                │ tail             │
//!   waiters   7, "a"             9, "b" ─► its place in queue 8
//! ```
//!
//! Waiters, their places and the queues live in slabs and point at each other by index. So joining, leaving from the
//! middle and handing on take the same time with ten waiters and with ten thousand.
//!
//! **A waiter for several locks has a place in the queue of each**, and it takes all places at once. It is granted all
//! the locks when it is first in every queue, and holds none until then. Of any two waiters that meet in several
//! queues, the same one is ahead in all of them, so waiters never wait in a circle.
//!
//! **One mechanism decides who is next:** [`Queues::settle`]. Whatever may have freed a lock (a release, a deletion, an
//! expiry, a flush, a timer) only marks its queue. The caller then looks at the key of each marked queue
//! ([`Queues::look`]). If there is something to do, it settles the queue against what the key holds at that moment. So
//! no event needs to be understood, a superfluous mark costs one look, and a lock can be given away in only one place.
//!
//! A queue exists only while somebody waits in it. It remembers what its key held when it was last looked at: to tell
//! how a hold has ended, and for servers that announce an eviction only when the value is gone (see
//! [`Evicted`](super::Evicted)).
//!
//! Time is an argument. The waiting connections belong to the caller: `C` is whatever it needs to find a connection
//! again.

mod channels;
mod contended;
mod marking;
mod names;
mod outcome;
mod places;
mod rechecks;
mod schedule;
mod slab_index;
mod waiters;

use super::ephemeral::Ephemeral;
use super::fence::FenceClock;
use super::hold::{Seen, Stored};
use super::lease::{Deadline, Limits, Moment, Monotonic, Now, Ttl};
use super::name::{Name, Names};
use super::owner::{KeptOwner, Owner};
use super::share::Share;
use super::wait::{KeptWait, WaitKind};
use channels::Channels;
use contended::Queue;
use marking::Marks;
use names::QueueNames;
use places::Places;
use rechecks::Rechecks;
use schedule::Schedule;
use slab::Slab;
use slab_index::SlabIndex;

pub use marking::{Cause, Marked, Ownership, Suspicion};
pub(crate) use waiters::from_index;

pub use outcome::{Departed, Joined, Look, Lost, LostBy, Renewed, Settled, Turn};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId(SlabIndex);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlaceId(SlabIndex);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueId(SlabIndex);

#[derive(Debug)]
pub struct Waiter<C> {
    pub owner: KeptOwner,
    pub ttl: Ttl,
    pub share: Share,
    pub since: Monotonic,
    /// When its patience ends; `None` if it waits without limit.
    pub gives_up: Option<Monotonic>,
    /// The connection that its hold will be bound to, if to any.
    pub ephemeral: Option<Box<Ephemeral>>,
    pub wait: KeptWait<C>,
}

#[derive(Debug)]
struct Waiting<C> {
    waiter: Waiter<C>,
    places: Places,
    /// When to check whether its patience has ended; also in `patience`. It may be earlier than `gives_up`: an owner
    /// that keeps asking only moves `gives_up`.
    asked_at: Option<(WaitKind, Monotonic)>,
    /// The waiters that joined right before and right after this waiter, for whatever locks.
    earlier: Option<WaiterId>,
    later: Option<WaiterId>,
}

#[derive(Debug)]
struct Place {
    waiter: WaiterId,
    queue: QueueId,
    /// Towards the head.
    before: Option<PlaceId>,
    /// Towards the tail.
    behind: Option<PlaceId>,
}

#[derive(Debug)]
pub struct Queues<C> {
    queues: Slab<Queue>,
    waiters: Slab<Waiting<C>>,
    places: Slab<Place>,
    names: QueueNames,
    /// The waiter that has waited longest, and the newest.
    oldest: Option<WaiterId>,
    newest: Option<WaiterId>,
    /// How many waiters are on a connection, and how many places they have.
    blocked: usize,
    blocked_places: usize,
    /// How many places belong to tickets.
    tickets: usize,
    /// When to check each waiter's patience, soonest first for each kind.
    patience: Schedule<(WaitKind, Monotonic), WaiterId>,
    /// When a lock may change by itself, such as at the end of a lease.
    ends: Schedule<Moment, QueueId>,
    /// When to look again at a lock that was named, or whose queue is new: the command that changes the lock may be
    /// executed after the look.
    follow_ups: Schedule<Moment, QueueId>,
    rechecks: Rechecks,
    marks: Marks,
    channels: Channels,
    /// Where the next round continues, see [`Queues::doubt_next_slots`].
    next: usize,
    /// Latest wall time seen; an earlier `now` means the clock was set back.
    latest: Moment,
    latest_monotonic: Monotonic,
}

/// How long until a contended lock is looked at again, unless very many locks are contended: see [`rechecks`].
const RECHECK_MILLIS: u64 = 1_000;

/// Recheck budget for new queues, per millisecond: many queues may begin at once.
const NEW_IN_A_MILLI: usize = 50;

impl<C> Queues<C> {
    pub fn new() -> Self {
        Self {
            queues: Slab::new(),
            waiters: Slab::new(),
            places: Slab::new(),
            names: QueueNames::default(),
            oldest: None,
            newest: None,
            blocked: 0,
            blocked_places: 0,
            tickets: 0,
            patience: Schedule::new(),
            ends: Schedule::new(),
            follow_ups: Schedule::new(),
            rechecks: Rechecks::default(),
            marks: Marks::new(),
            channels: Channels::default(),
            next: 0,
            latest: Moment::from_micros(0),
            latest_monotonic: Monotonic::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub fn waiters_for(&self, name: Name<'_>) -> usize {
        self.queue_named(name).map_or(0, |(_, queue)| queue.length)
    }

    /// The waiters for this lock, oldest first, and for how many locks each waits.
    pub fn queue(&self, name: Name<'_>) -> impl Iterator<Item = (&Waiter<C>, usize)> {
        let queue = self.queue_named(name).map(|(_, queue)| queue);
        let waiting = self.along(queue.and_then(|queue| queue.head)).map(|(_, at)| at);
        waiting.map(|waiting| (&waiting.waiter, waiting.places.count()))
    }

    pub fn longest_since(&self) -> Option<Monotonic> {
        self.waiter(self.oldest?).map(|waiter| waiter.since)
    }

    /// Forgets what the key held: the module itself has freed the lock or changed its fence, so no holder lost it.
    pub fn forget_seen(&mut self, name: Name<'_>) {
        if let Some(id) = self.id_of(name) {
            self.with_queue(id, |queue| queue.seen = None);
        }
    }

    /// Notes what the key of a lock holds, when it is looked at for a waiter for several locks. Returns the holds that
    /// were last seen and are over.
    pub fn see(&mut self, name: Name<'_>, stored: Stored<'_>, now: Moment) -> Vec<Lost> {
        let Some(id) = self.id_of(name) else { return Vec::new() };
        let lost = self.lost(id, stored, now);
        self.with_queue(id, |queue| queue.remember(stored.seen(), now));
        lost
    }

    /// Notes what the key holds, although the next waiter may be admitted: other locks have their turn first.
    pub fn remember(&mut self, name: Name<'_>, stored: Stored<'_>, now: Moment) {
        if let Some(id) = self.id_of(name) {
            self.with_queue(id, |queue| queue.remember(stored.seen(), now));
        }
    }

    /// Looks at this lock no later than `moment`. It was found held when it was looked at for a waiter for several
    /// locks.
    pub fn look_no_later(&mut self, name: Name<'_>, moment: Moment) {
        if let Some(id) = self.id_of(name)
            && let Some(queue) = self.queues.get_mut(id.0.get())
            && queue.end.is_none_or(|end| moment < end)
        {
            self.ends.set(id, &mut queue.end, Some(moment));
        }
    }

    /// What the key of a contended lock held when it was last looked at.
    pub fn seen(&self, name: Name<'_>) -> Option<&Seen> {
        self.queue_named(name)?.1.seen.as_ref()
    }

    /// How many wait for the lock. `None` if the lock must be settled before a command looks at it: when it is marked
    /// or in doubt, and while a command that touched it may still be queued in the running transaction.
    pub fn waiters_if_settled(&self, name: Name<'_>) -> Option<usize> {
        let Some((_, queue)) = self.queue_named(name) else { return Some(0) };
        let is_settled =
            queue.mark.is_none() && queue.touched.is_none() && !self.rechecks.is_in_doubt(queue);
        is_settled.then_some(queue.length)
    }

    /// When [`Queues::wake`] next has something to do, in wall time.
    pub fn next_due(&self, now: Now) -> Option<Moment> {
        let end = |kind| self.first_patience(kind).map(|(end, _)| end);
        let by_routine = self.rechecks.next_due(&self.queues);
        let unset = [end(WaitKind::Blocked), end(WaitKind::Ticket), by_routine];
        let unset = unset.into_iter().flatten().min().map(|due| now.wall_at(due));
        [self.ends.first(), self.follow_ups.first(), unset].into_iter().flatten().min()
    }

    /// Lets time pass: marks the locks that are due for a look, and takes out the waiters whose patience has ended. It
    /// marks a limited number of locks for each cause, and checks the patience of `at_most` waiters. Call it again
    /// while [`Queues::next_due`] is not in the future.
    pub fn wake(&mut self, now: Now, at_most: usize) -> Vec<Departed<C>> {
        if now.wall < self.latest {
            // The clock was set back, and a look that was a second away may now be an hour away.
            self.mark_all(None);
        }
        (self.latest, self.latest_monotonic) = (now.wall, now.monotonic);
        for _ in 0..Cause::Due.looks_in_a_turn() {
            let Some(id) = self.ends.take_due(now.wall) else { break };
            self.with_queue(id, |queue| queue.end = None);
            self.mark_queue(id, Cause::Due);
        }
        for _ in 0..Cause::Suspected.looks_in_a_turn() {
            let Some(id) = self.follow_ups.take_due(now.wall) else { break };
            self.with_queue(id, |queue| queue.follow_up = None);
            self.mark_queue(id, Cause::Suspected);
        }
        let mut ended = Vec::new();
        for _ in 0..at_most {
            let Some((asked_at, id)) = self.take_impatient(now.monotonic) else { break };
            if self.waiter(id).is_some_and(|waiter| waiter.gives_up == Some(asked_at)) {
                ended.extend(self.leave(id));
            } else {
                self.expect_patience(id);
            }
        }
        ended
    }

    /// The lock cannot be settled now: looks at it again after `millis`, and not before. Whatever keeps it from being
    /// settled may also delay the command that touched it, so the touch counts from now on.
    pub fn postpone(&mut self, name: Name<'_>, now: Moment, millis: u64) {
        if let Some(id) = self.id_of(name) {
            self.put_off(id, now, now.plus_millis(millis));
        }
    }

    /// Whether there is anything to do about the lock, judged by what the key holds now. Most marked locks are still
    /// held, and then the server is not asked whether the module may write.
    pub fn look(
        &mut self,
        name: Name<'_>,
        stored: Stored<'_>,
        now: Now,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Look {
        let Some(id) = self.id_of(name) else { return Look::Held { lost: Vec::new() } };
        self.latest_monotonic = self.latest_monotonic.max(now.monotonic);
        let found = self.turn(id, stored, now.wall, limits, fences);
        if let Found::TurnOf(turn) = &found
            && !(turn.is_for_several && self.waits_for_another(turn.waiter, id))
        {
            self.mark_queue(id, Cause::Due); // until it is settled, whatever goes wrong on the way
            return Look::ToSettle;
        }
        let lost = self.lost(id, stored, now.wall);
        self.wait_on(id, &found, stored, now.wall);
        Look::Held { lost }
    }

    /// Decides who is next, from what the key holds now. The caller takes that waiter out, carries out the decision
    /// about its request, and calls again until it is nobody's turn.
    pub fn settle<'v>(
        &mut self,
        name: Name<'_>,
        stored: Stored<'v>,
        now: Now,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Settled<'v> {
        let Some(id) = self.id_of(name) else { return Settled { lost: Vec::new(), turn: None } };
        self.mark_queue(id, Cause::Due); // until it is found held, whatever goes wrong on the way
        self.latest_monotonic = self.latest_monotonic.max(now.monotonic);
        let found = self.turn(id, stored, now.wall, limits, fences);
        let lost = self.lost(id, stored, now.wall);
        match found {
            Found::TurnOf(turn) if !turn.is_for_several => {
                self.with_queue(id, |queue| queue.seen = None);
                Settled { lost, turn: Some(turn) }
            }
            found => {
                self.wait_on(id, &found, stored, now.wall);
                let turn = if let Found::TurnOf(turn) = found { Some(turn) } else { None };
                Settled { lost, turn }
            }
        }
    }

    fn lost(&mut self, id: QueueId, stored: Stored<'_>, now: Moment) -> Vec<Lost> {
        self.queues.get_mut(id.0.get()).map_or_else(Vec::new, |queue| queue.lost(stored, now))
    }

    /// Nobody gets the lock now. It is looked at again when that may change.
    fn wait_on(&mut self, id: QueueId, found: &Found<'_>, stored: Stored<'_>, now: Moment) {
        match found {
            // The lock is free.
            Found::Quarantined { end } => self.put_off(id, now, *end),
            Found::Held { may_change } => self.keep_waiting(id, stored.seen(), *may_change, now),
            // The first waiter waits for other locks, too.
            Found::TurnOf(_) => self.keep_waiting(id, stored.seen(), None, now),
            // The key is not a lock: nobody can be granted it, and it may soon be gone.
            Found::NotALock => self.keep_waiting(id, None, None, now),
        }
    }

    fn put_off(&mut self, id: QueueId, now: Moment, until: Moment) {
        self.unmark(id);
        self.count_from(now);
        self.look_at(id, Some(until), None);
        self.with_queue(id, |queue| queue.touch_again(now));
    }

    fn keep_waiting(
        &mut self,
        id: QueueId,
        seen: Option<(&[u8], Option<Deadline>)>,
        may_change: Option<Moment>,
        now: Moment,
    ) {
        self.unmark(id);
        self.count_from(now);
        let routine = Rechecks::millis_between(self.queues.len());
        let crowd = self.follow_ups.len().div_euclid(NEW_IN_A_MILLI);
        let least = Suspicion::Freed.gap_millis().saturating_add(u64::try_from(crowd).unwrap_or(0));
        if let Some(queue) = self.queues.get_mut(id.0.get()) {
            let touched = queue.next_after_touch(now, routine);
            let new = queue.next_while_new(now, least);
            let follow_up = [touched, new].into_iter().flatten().min();
            self.ends.set(id, &mut queue.end, may_change);
            self.follow_ups.set(id, &mut queue.follow_up, follow_up);
            if queue.touched.is_some() {
                queue.looked = Some(now);
            }
            queue.remember(seen, now);
        }
    }

    fn close(&mut self, id: QueueId) {
        self.look_at(id, None, None);
        self.unmark(id);
        self.rechecks.remove(&mut self.queues, id);
        let Some(queue) = self.queues.try_remove(id.0.get()) else { return };
        self.names.remove(queue.name.as_name());
        if self.queues.is_empty() {
            self.queues.shrink_to_fit();
            self.waiters.shrink_to_fit();
            self.places.shrink_to_fit();
        }
    }

    /// Remembers that a look is counted from this time. If the clock is set back before the look is due, all locks are
    /// looked at anew: see [`Queues::wake`].
    fn count_from(&mut self, now: Moment) {
        self.latest = self.latest.max(now);
    }

    fn look_at(&mut self, id: QueueId, end: Option<Moment>, follow_up: Option<Moment>) {
        if let Some(queue) = self.queues.get_mut(id.0.get()) {
            self.ends.set(id, &mut queue.end, end);
            self.follow_ups.set(id, &mut queue.follow_up, follow_up);
        }
    }

    /// Somebody looks at the lock, or has just done so.
    fn unmark(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(id.0.get()) {
            self.marks.order.set(id, &mut queue.mark, None);
        }
        self.rechecks.looked(&mut self.queues, id, self.latest_monotonic);
    }

    fn waiting_at(&self, id: PlaceId) -> Option<(WaiterId, &Waiting<C>)> {
        let waiter = self.places.get(id.0.get())?.waiter;
        Some((waiter, self.waiters.get(waiter.0.get())?))
    }

    fn id_of(&self, name: Name<'_>) -> Option<QueueId> {
        self.names.get(name)
    }

    fn queue_named(&self, name: Name<'_>) -> Option<(QueueId, &Queue)> {
        let id = self.id_of(name)?;
        Some((id, self.queues.get(id.0.get())?))
    }

    fn with_queue(&mut self, id: QueueId, change: impl FnOnce(&mut Queue)) {
        if let Some(queue) = self.queues.get_mut(id.0.get()) {
            change(queue);
        }
    }
}

/// The result of looking for the waiter whose turn it is.
enum Found<'v> {
    /// It may be granted the lock, or holds it already.
    TurnOf(Turn<'v>),
    /// The holders keep the lock, at least until `may_change`. Or the first waiter waits for other locks, too, and is
    /// not first in their queues.
    Held { may_change: Option<Moment> },
    /// Nothing is granted before this moment.
    Quarantined { end: Moment },
    /// The key cannot be granted to anybody.
    NotALock,
}

impl<C> Queues<C> {
    /// Finds the waiter whose turn it is. That is the head, if it is admitted. Or it is a waiter that holds the lock
    /// already, as when the value was written by hand: the head, or a waiter in any place that holds the lock alone.
    fn turn<'v>(
        &self,
        id: QueueId,
        stored: Stored<'v>,
        now: Moment,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Found<'v> {
        let head = self.queues.get(id.0.get()).and_then(|queue| queue.head);
        let Some((waiter, waiting)) = head.and_then(|head| self.waiting_at(head)) else {
            return Found::NotALock;
        };
        let holders_for = |waiter: &Waiter<C>, fences: &mut FenceClock| {
            stored.holders(waiter.owner.as_owner(), now, fences)
        };
        let Ok(holders) = holders_for(&waiting.waiter, fences) else { return Found::NotALock };
        let is_for_one = waiting.places.is_one();
        if is_for_one && holders.own().is_some() {
            return Found::TurnOf(Turn { waiter, holders, is_for_several: false });
        }
        if let Some(waiter) = holders.sole().and_then(|hold| self.waiting_as(id, hold.owner))
            && let Some(waiting) = self.waiters.get(waiter.0.get())
            && waiting.places.is_one()
            && let Ok(holders) = holders_for(&waiting.waiter, fences)
        {
            return Found::TurnOf(Turn { waiter, holders, is_for_several: false });
        }
        let may_change = holders.next_end().map(Deadline::first_moment_after);
        if !holders.admit(waiting.waiter.share, limits.max_holders) {
            return Found::Held { may_change };
        }
        if !is_for_one && !self.is_first_everywhere(waiting) {
            return Found::Held { may_change };
        }
        match fences.quarantine_ends(now) {
            None => Found::TurnOf(Turn { waiter, holders, is_for_several: !is_for_one }),
            Some(end) if holders.is_free() => Found::Quarantined { end },
            Some(end) => Found::Held { may_change: may_change.into_iter().chain([end]).min() },
        }
    }
}

/// The limits for one kind of waiter.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The most clients that wait on a connection.
    pub connections: usize,
    /// `connections` is a share of the connections that the server accepts.
    pub is_share_of_all: bool,
    /// The most places, for all locks together and for each.
    pub for_all: usize,
    pub per_lock: usize,
}

impl Room {
    pub const UNLIMITED: Self = Self {
        connections: usize::MAX,
        is_share_of_all: false,
        for_all: usize::MAX,
        per_lock: usize::MAX,
    };
}

impl<C> Queues<C> {
    /// How many clients wait on a connection, for whatever locks.
    pub const fn blocked(&self) -> usize {
        self.blocked
    }

    /// How many places the waiters of this kind have: one for each lock that each waits for. A place takes memory, and
    /// makes a lock contended.
    pub const fn places(&self, kind: WaitKind) -> usize {
        match kind {
            WaitKind::Ticket => self.tickets,
            WaitKind::Blocked => self.blocked_places,
        }
    }

    /// How many waiters of this kind wait for this lock.
    pub fn waiting_for(&self, name: Name<'_>, kind: WaitKind) -> usize {
        self.queue_named(name).map_or(0, |(_, queue)| match kind {
            WaitKind::Ticket => queue.tickets,
            WaitKind::Blocked => queue.length.saturating_sub(queue.tickets),
        })
    }

    /// Whether `owner` may wait for these locks without exceeding a limit. An owner that waits for the same locks
    /// already, in the same way, takes its own places.
    pub fn has_room<'n>(
        &self,
        names: impl Into<Names<'n>>,
        owner: Owner<'_>,
        kind: WaitKind,
        room: Room,
    ) -> bool {
        let names = names.into();
        let former = self.id_of(names.first).and_then(|id| self.waiting_as(id, owner.as_bytes()));
        let has_places = |former| {
            self.waiter(former).is_some_and(|waiter| waiter.wait.kind() == kind)
                && self.is_for(former, names)
        };
        let has_connection = kind == WaitKind::Ticket || self.blocked < room.connections;
        former.is_some_and(has_places)
            || has_connection
                && self.places(kind).saturating_add(names.count()) <= room.for_all
                && names.iter().all(|name| self.waiting_for(name, kind) < room.per_lock)
    }
}

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
