//! How many may wait. Waiters on connections and waiters by ticket have limits of their own.

use super::Queues;
use crate::lock::name::{Name, Names};
use crate::lock::owner::Owner;
use crate::lock::wait::WaitKind;

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

#[cfg(test)]
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
            self.waiter(former).is_some_and(|waiter| waiter.told.kind() == kind)
                && self.is_for(former, names)
        };
        let has_connection = kind == WaitKind::Ticket || self.blocked < room.connections;
        former.is_some_and(has_places)
            || has_connection
                && self.places(kind).saturating_add(names.count()) <= room.for_all
                && names.iter().all(|name| self.waiting_for(name, kind) < room.per_lock)
    }
}
