//! Which locks to look at: something has happened to them, or may have.
//!
//! ```text
//!   cause       marked by                                        served
//!   Due         the end of a lease, a grant taken back, a        first
//!               first waiter, a pause that ended
//!   Suspected   commands of others that name the lock            in what is left of the turn
//!   Doubted     flushes, swaps, slots that move: all locks       a few in each turn
//!               at once, and most are held as before
//!   Routine     nothing: the lock was last looked at a           a few in each tick
//!               second ago
//! ```
//!
//! Doubts and the routine are for all locks at once, and have an order of their own: see [`rechecks`](super::rechecks).
//!
//! Within a cause, locks are served in the order in which they were marked, and a second mark keeps the place of the
//! first. So a lock waits for at most one round of the others, however often they are marked again meanwhile (L5).
//!
//! Any client can name a lock, even a client that the server is about to refuse. So a suspicion costs one look at the
//! key, and there is a least time between two looks at one lock: see [`Suspicion`].

use super::super::lease::Moment;
use super::super::name::{KeptName, Name};
use super::schedule::Schedule;
use super::{QueueId, Queues, SlabIndex};

/// How many locks the routine looks at in each of its ticks, of 10 ms.
pub(super) const IN_A_TICK: usize = 100;

/// What a command that names a lock may do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// It may free the lock.
    Freed,
    /// It may replace the lock's value. The key stays, without an expiry.
    Rewritten,
}

impl Suspicion {
    /// The least time between two looks at one lock for this suspicion.
    pub(crate) const fn gap_millis(self) -> u64 {
        match self {
            Self::Freed => 2,
            Self::Rewritten => 100,
        }
    }
}

/// Why to look at a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Due,
    Suspected,
    Doubted,
    Routine,
}

impl Cause {
    /// How many locks are looked at for this cause in one turn. Nearly all of them are still held, and a look costs a
    /// tenth of a hand-off. Any client may cause doubts about all locks again and again; in a cluster, even a client
    /// that has not logged in.
    pub const fn looks_in_a_turn(self) -> usize {
        match self {
            Self::Due | Self::Suspected => 5_000,
            Self::Doubted => 500,
            Self::Routine => IN_A_TICK,
        }
    }
}

/// Where a lock stands among the locks to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    cause: Cause,
    turn: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Marked {
    pub name: KeptName,
    pub ownership: Ownership,
}

/// Which node has the slot of a lock. Outside of a cluster it never matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    #[default]
    Ours,
    /// The slot may have gone to another node, and the key may still be here.
    InDoubt,
}

/// The marks of all locks, in the order in which they are served.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) order: Schedule<Mark, QueueId>,
    turn: u64,
}

impl Marks {
    pub(super) const fn new() -> Self {
        Self { order: Schedule::new(), turn: 0 }
    }

    /// Marks a lock. `mark` is the mark that it has, and from now on the mark that counts.
    fn add(&mut self, id: QueueId, mark: &mut Option<Mark>, cause: Cause) {
        if mark.is_none_or(|mark| cause < mark.cause) {
            self.order.set(id, mark, Some(Mark { cause, turn: self.turn }));
            self.turn = self.turn.saturating_add(1);
        }
    }

    fn first(&self, cause: Cause) -> Option<QueueId> {
        let (mark, id) =
            self.order.first_from((Mark { cause, turn: 0 }, QueueId(SlabIndex::FIRST)))?;
        (mark.cause == cause).then_some(id)
    }
}

impl<C> Queues<C> {
    /// A client's command has these words. It may name locks, and free them: at once or, if it is queued in a
    /// transaction, after a while. No event says when. So the locks are suspected now. As long as they are found held,
    /// each look comes after as much time as has passed since the touch: whatever the delay is, its end is noticed
    /// within twice the delay. Nearly every word is not a name, so `ask` is called only at the first word that is a
    /// name, and `clock` only when the time matters. Returns true if any lock is looked at sooner than before.
    pub fn suspect<'w>(
        &mut self,
        mut words: impl Iterator<Item = &'w [u8]>,
        ask: impl FnOnce() -> Option<Suspicion>,
        clock: impl Fn() -> Moment,
    ) -> bool {
        let Some(first) = words.find(|word| self.names.in_any_db(word).next().is_some()) else {
            return false;
        };
        let Some(suspicion) = ask() else { return false };
        let mut is_sooner = false;
        for word in std::iter::once(first).chain(words) {
            for id in self.names.in_any_db(word) {
                let Some(queue) = self.queues.get_mut(id.0.get()) else { continue };
                if queue.is_repeated_by(suspicion) {
                    continue;
                }
                match queue.touch(suspicion, clock()) {
                    None if queue.mark.is_none_or(|mark| mark.cause == Cause::Doubted) => {
                        self.marks.add(id, &mut queue.mark, Cause::Suspected);
                    }
                    Some(next) if queue.follow_up.is_none_or(|look| next < look) => {
                        self.follow_ups.set(id, &mut queue.follow_up, Some(next));
                    }
                    None | Some(_) => continue,
                }
                is_sooner = true;
            }
        }
        is_sooner
    }

    pub(super) fn mark_queue(&mut self, id: QueueId, cause: Cause) {
        if let Some(queue) = self.queues.get_mut(id.0.get()) {
            self.marks.add(id, &mut queue.mark, cause);
        }
    }

    /// The lock may have become free. True if anyone waits for it.
    pub fn mark(&mut self, name: Name<'_>) -> bool {
        self.id_of(name).is_some_and(|id| {
            self.mark_queue(id, Cause::Due);
            true
        })
    }

    /// The slot of the lock may have gone.
    pub fn mark_in_doubt(&mut self, name: Name<'_>) {
        if let Some(id) = self.id_of(name) {
            self.with_queue(id, |queue| queue.ownership = Ownership::InDoubt);
            self.mark_queue(id, Cause::Due);
        }
    }

    /// Any lock of this database (`None`: of all) may have become free.
    pub fn mark_all(&mut self, db: Option<i32>) {
        self.rechecks.doubt(db);
    }

    /// All slots of a cluster may have gone.
    pub fn doubt_all_slots(&mut self) {
        self.rechecks.doubt_slots();
    }

    /// The slots of the next `count` locks may have gone. Each call continues where the last one ended, so that each
    /// lock has its turn. Gaps that a crowd has left in the slab do not count: otherwise a lock behind them would wait
    /// for its turn as long as if the crowd were still there.
    pub fn doubt_next_slots(&mut self, count: usize) {
        let mut left = count;
        for _ in 0..self.queues.capacity() {
            if left == 0 {
                return;
            }
            self.next = if self.next < self.queues.capacity() { self.next } else { 0 };
            if let Some(queue) = self.queues.get_mut(self.next) {
                queue.ownership = Ownership::InDoubt;
                self.marks.add(QueueId(self.next.into()), &mut queue.mark, Cause::Doubted);
                left = left.saturating_sub(1);
            }
            self.next = self.next.saturating_add(1);
        }
    }

    /// Takes the lock that has waited longest to be looked at for this cause. The caller looks at it now.
    pub fn take_marked(&mut self, cause: Cause) -> Option<Marked> {
        let id = self.marks.first(cause).or_else(|| match cause {
            Cause::Due | Cause::Suspected => None,
            Cause::Doubted => self.rechecks.next_in_doubt(&self.queues),
            Cause::Routine => self.rechecks.next_by_routine(&self.queues, self.latest_monotonic),
        })?;
        let queue = self.queues.get_mut(id.0.get())?;
        let ownership = self.rechecks.ownership(queue);
        queue.ownership = Ownership::Ours;
        let name = queue.name.clone();
        self.unmark(id);
        Some(Marked { name, ownership })
    }

    /// The looks of this turn took longer than routine looks may take: no more of them for a while.
    pub fn rest(&mut self) {
        self.rechecks.rest();
    }

    /// Whether any lock must be looked at because of something that has happened.
    pub fn has_marks(&self) -> bool {
        self.marks.order.first().is_some() || self.rechecks.has_doubts(&self.queues)
    }
}
