//! Finds the waiter whose turn it is.

use super::{QueueId, Queues, Turn, Waiter};
use crate::lock::fence::FenceClock;
use crate::lock::hold::Stored;
use crate::lock::lease::{Deadline, Moment};
use crate::lock::limits::Limits;

/// The result of looking for the waiter whose turn it is.
pub(super) enum Found<'v> {
    TurnOf(Turn<'v>),
    /// The holders keep the lock, at least until `may_change`. Or the first waiter waits for other locks, too, and is
    /// not first in their queues.
    Held {
        may_change: Option<Moment>,
    },
    /// Nothing is granted before this moment.
    Quarantined {
        end: Moment,
    },
    NotALock,
}

impl<C> Queues<C> {
    /// Finds the waiter whose turn it is. That is the head, if it is admitted. Or it is a waiter that holds the lock
    /// already, as when the value was written by hand: the head, or a waiter in any place that holds the lock alone.
    pub(super) fn turn<'v>(
        &self,
        id: QueueId,
        stored: Stored<'v>,
        now: Moment,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Found<'v> {
        let head = self.queues.get(id.0).and_then(|queue| queue.head);
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
            && let Some(waiting) = self.waiters.get(waiter.0)
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
