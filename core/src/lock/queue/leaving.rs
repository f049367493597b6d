//! The ways out of a queue. Whoever takes one waits no more, and is the caller's to tell.

use super::{Cause, Departed, Place, Queues, WaiterId};
use crate::lock::name::Name;
use crate::lock::owner::Owner;
use crate::lock::wait::WaitKind;

impl<C> Queues<C> {
    /// Takes a waiter out, wherever it stands. `None` if it is not there any more.
    pub fn leave(&mut self, id: WaiterId) -> Option<Departed<C>> {
        let Place { waiter, queue: queue_id, before, behind, asked_at } =
            self.waiters.try_remove(id.0)?;
        if let Some(asked_at) = asked_at {
            self.patience.remove(&(asked_at, id));
        }
        self.count(queue_id, waiter.told.kind(), usize::saturating_sub);
        match before.and_then(|before| self.waiters.get_mut(before.0)) {
            Some(neighbour) => neighbour.behind = behind,
            None => self.with_queue(queue_id, |queue| queue.head = behind),
        }
        match behind.and_then(|behind| self.waiters.get_mut(behind.0)) {
            Some(neighbour) => neighbour.before = before,
            None => self.with_queue(queue_id, |queue| queue.tail = before),
        }
        let queue = self.queues.get_mut(queue_id.0)?;
        queue.unindex(&waiter.owner);
        let (name, was_the_last) = (queue.name.clone(), queue.head.is_none());
        if was_the_last {
            self.close(queue_id);
        } else if before.is_none() {
            // Another one is the head now, and may be admitted although the former one was not.
            self.mark_queue(queue_id, Cause::Due);
        }
        Some(Departed { name, waiter })
    }

    /// Takes out the owner of a ticket, who does not want the lock any more.
    pub fn leave_by_ticket(&mut self, name: Name<'_>, owner: Owner<'_>) -> Option<Departed<C>> {
        let waiter = self.waiting_as(self.id_of(name)?, owner.as_bytes())?;
        let place = self.waiters.get(waiter.0)?;
        if place.waiter.told.kind() != WaitKind::Ticket {
            return None;
        }
        self.leave(waiter)
    }

    /// Takes everybody out.
    pub fn leave_all(&mut self) -> Vec<Departed<C>> {
        let all = std::mem::replace(self, Self { latest: self.latest, ..Self::new() });
        let left = |place: Place<C>| {
            let name = all.queues.get(place.queue.0)?.name.clone();
            Some(Departed { name, waiter: place.waiter })
        };
        all.waiters.into_iter().filter_map(|(_, place)| left(place)).collect()
    }

    /// Takes the one at the head of this queue out.
    pub fn leave_first(&mut self, name: Name<'_>) -> Option<Departed<C>> {
        let (_, queue) = self.queue_named(name)?;
        self.leave(queue.head?)
    }
}
