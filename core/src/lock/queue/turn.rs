//! Whose turn it is, and what becomes of it.

use super::{Next, QueueId, Queues, Waiter, WaiterId};
use crate::lock::decision::{self, Acquired, Wanted};
use crate::lock::fence::FenceClock;
use crate::lock::hold::Stored;
use crate::lock::holders::Holders;
use crate::lock::lease::{Deadline, Moment, Now};
use crate::lock::limits::Limits;

/// Whose turn it is with a lock.
pub(super) enum Turn<'v> {
    /// It is the turn of this one, who sees the lock so.
    Of {
        waiter: WaiterId,
        holders: Holders<'v>,
    },
    /// It is the turn of this one, who waits for several locks and is first in the queues of all. This lock can be had.
    OfSeveral(WaiterId),
    /// It is the turn of those who hold the lock, at least until then; or of nobody, while the first waits for other
    /// locks, too.
    OfHolders {
        may_change: Option<Moment>,
    },
    /// It is nobody's turn before this moment.
    OfNobody {
        end: Moment,
    },
    NotALock,
}

impl<C> Queues<C> {
    /// What becomes of the one whose turn it is.
    pub(super) fn serve(
        &mut self,
        id: QueueId,
        waiter: Waiter<C>,
        holders: &Holders<'_>,
        now: Now,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Next<C> {
        let is_out_of_patience = waiter.gives_up.is_some_and(|end| end <= now.monotonic);
        if is_out_of_patience && holders.own().is_none() {
            return Next::GaveUp(waiter);
        }
        let owner = waiter.owner.as_owner();
        let ttl = waiter.told.lease(waiter.ttl).min(limits.max_ttl);
        let wanted = Wanted { owner, ttl, share: waiter.share };
        match decision::acquire(holders, 0, &wanted, limits.max_holders, now.wall, fences) {
            Acquired::Granted { grant, former, .. } => {
                let (fence, deadline) = (grant.fence, grant.deadline);
                self.with_queue(id, |queue| queue.seen = None);
                Next::Grant { waiter, fence, deadline, former }
            }
            Acquired::Again { fence_number, longer, .. } => {
                self.with_queue(id, |queue| queue.seen = None);
                Next::Again { waiter, fence_number, longer }
            }
            Acquired::Busy(_) | Acquired::NotUpgraded(_) => Next::GaveUp(waiter),
            Acquired::NoFenceLeft => Next::NoFenceLeft(waiter),
        }
    }

    /// Whose turn it is. That is the head's if it is admitted. Or it holds the lock already, as when it was written by
    /// hand; one that holds it alone is told so wherever it stands.
    pub(super) fn turn<'v>(
        &self,
        id: QueueId,
        stored: Stored<'v>,
        now: Moment,
        limits: Limits,
        fences: &mut FenceClock,
    ) -> Turn<'v> {
        let head = self.queues.get(id.0).and_then(|queue| queue.head);
        let Some((waiter, waiting)) = head.and_then(|head| self.waiting_at(head)) else {
            return Turn::NotALock;
        };
        let holders_for = |waiter: &Waiter<C>, fences: &mut FenceClock| {
            stored.holders(waiter.owner.as_owner(), now, fences)
        };
        let Ok(holders) = holders_for(&waiting.waiter, fences) else { return Turn::NotALock };
        let is_for_one = waiting.places.is_one();
        if is_for_one && holders.own().is_some() {
            return Turn::Of { waiter, holders };
        }
        if let Some(waiter) = holders.sole().and_then(|hold| self.waiting_as(id, hold.owner))
            && let Some(waiting) = self.waiters.get(waiter.0)
            && waiting.places.is_one()
            && let Ok(holders) = holders_for(&waiting.waiter, fences)
        {
            return Turn::Of { waiter, holders };
        }
        let may_change = holders.next_end().map(Deadline::first_moment_after);
        if !holders.admit(waiting.waiter.share, limits.max_holders) {
            return Turn::OfHolders { may_change };
        }
        if !is_for_one && !self.is_first_everywhere(waiting) {
            return Turn::OfHolders { may_change };
        }
        match fences.quarantine_ends(now) {
            None if is_for_one => Turn::Of { waiter, holders },
            None => Turn::OfSeveral(waiter),
            Some(end) if holders.is_free() => Turn::OfNobody { end },
            Some(end) => Turn::OfHolders { may_change: may_change.into_iter().chain([end]).min() },
        }
    }
}
