//! How many may wait. Those who wait on a connection and those who wait by a ticket have limits of their own.

use super::{QueueId, Queues};
use crate::lock::name::Name;
use crate::lock::owner::Owner;
use crate::lock::wait::WaitKind;

/// How many may wait in one way.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub for_all: usize,
    pub per_lock: usize,
}

impl<C> Queues<C> {
    /// How many wait in this way, for whatever lock.
    pub fn waiting(&self, kind: WaitKind) -> usize {
        match kind {
            WaitKind::Ticket => self.tickets,
            WaitKind::Blocked => self.waiters.len().saturating_sub(self.tickets),
        }
    }

    /// How many wait for this lock in this way.
    pub fn waiting_for(&self, name: Name<'_>, kind: WaitKind) -> usize {
        self.queue_named(name).map_or(0, |(_, queue)| match kind {
            WaitKind::Ticket => queue.tickets,
            WaitKind::Blocked => queue.length.saturating_sub(queue.tickets),
        })
    }

    /// Whether `owner` may join without exceeding a limit. One that waits already, and in the same way, takes its own
    /// place.
    pub fn has_room(&self, name: Name<'_>, owner: Owner<'_>, kind: WaitKind, room: Room) -> bool {
        let id = self.id_of(name).and_then(|id| self.waiting_as(id, owner.as_bytes()));
        let place = id.and_then(|id| self.waiters.get(id.0));
        place.is_some_and(|place| place.waiter.told.kind() == kind)
            || self.waiting_for(name, kind) < room.per_lock && self.waiting(kind) < room.for_all
    }

    /// Counts one more, or one fewer, who waits in this way.
    pub(super) fn count(
        &mut self,
        id: QueueId,
        kind: WaitKind,
        change: impl Fn(usize, usize) -> usize,
    ) {
        if kind == WaitKind::Ticket {
            self.tickets = change(self.tickets, 1);
            self.with_queue(id, |queue| queue.tickets = change(queue.tickets, 1));
        }
    }
}
