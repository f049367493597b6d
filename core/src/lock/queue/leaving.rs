//! The ways out of a queue. A waiter that leaves waits no more; the caller must tell it.

use super::{Cause, Departed, Place, PlaceId, Queues, WaiterId, Waiting};
use crate::lock::name::Name;
use crate::lock::owner::{KeptOwner, Owner};
use crate::lock::wait::WaitKind;

impl<C> Queues<C> {
    /// Takes a waiter out, wherever it stands. `None` if it has left already.
    pub fn leave(&mut self, id: WaiterId) -> Option<Departed<C>> {
        let Waiting { waiter, places, asked_at, earlier, later } = self.waiters.try_remove(id.0)?;
        match earlier.and_then(|earlier| self.waiters.get_mut(earlier.0)) {
            Some(neighbour) => neighbour.later = later,
            None => self.oldest = later,
        }
        match later.and_then(|later| self.waiters.get_mut(later.0)) {
            Some(neighbour) => neighbour.earlier = earlier,
            None => self.newest = earlier,
        }
        if let Some(asked_at) = asked_at {
            self.patience.remove(&(waiter.told.kind(), asked_at, id));
        }
        self.channels.remove(id, &waiter.told);
        let name = self.name_at(places.first()?)?.clone();
        let kind = waiter.told.kind();
        if kind == WaitKind::Blocked {
            self.blocked = self.blocked.saturating_sub(1);
            self.blocked_places = self.blocked_places.saturating_sub(places.count());
        }
        for &place in places.all() {
            self.give_up_place(place, &waiter.owner, kind);
        }
        Some(Departed { name, waiter })
    }

    fn give_up_place(&mut self, id: PlaceId, owner: &KeptOwner, kind: WaitKind) {
        let Some(Place { queue: queue_id, before, behind, .. }) = self.places.try_remove(id.0)
        else {
            return;
        };
        match before.and_then(|before| self.places.get_mut(before.0)) {
            Some(neighbour) => neighbour.behind = behind,
            None => self.with_queue(queue_id, |queue| queue.head = behind),
        }
        match behind.and_then(|behind| self.places.get_mut(behind.0)) {
            Some(neighbour) => neighbour.before = before,
            None => self.with_queue(queue_id, |queue| queue.tail = before),
        }
        if kind == WaitKind::Ticket {
            self.tickets = self.tickets.saturating_sub(1);
        }
        let Some(queue) = self.queues.get_mut(queue_id.0) else { return };
        if kind == WaitKind::Ticket {
            queue.tickets = queue.tickets.saturating_sub(1);
        }
        queue.unindex(owner);
        if queue.head.is_none() {
            self.close(queue_id);
        } else if before.is_none() {
            // Another waiter is the head now, and may be admitted although the former head was not.
            self.mark_queue(queue_id, Cause::Due);
        }
    }

    /// Takes out the owner of a ticket that does not want the lock any more.
    pub fn leave_by_ticket(&mut self, name: Name<'_>, owner: Owner<'_>) -> Option<Departed<C>> {
        let waiter = self.waiting_as(self.id_of(name)?, owner.as_bytes())?;
        if self.waiter(waiter)?.told.kind() != WaitKind::Ticket {
            return None;
        }
        self.leave(waiter)
    }

    /// Takes every waiter out.
    pub fn leave_all(&mut self) -> Vec<Departed<C>> {
        let all =
            std::mem::replace(self, Self { latest: self.latest, told: self.told, ..Self::new() });
        let name_at = |id: PlaceId| {
            let place = all.places.get(id.0)?;
            Some(all.queues.get(place.queue.0)?.name.clone())
        };
        let left = |Waiting { waiter, places, .. }: Waiting<C>| {
            let name = places.first().and_then(name_at)?;
            Some(Departed { name, waiter })
        };
        all.waiters.into_iter().filter_map(|(_, waiting)| left(waiting)).collect()
    }

    /// Takes out the waiter at the head of this queue.
    pub fn leave_first(&mut self, name: Name<'_>) -> Option<Departed<C>> {
        let (_, queue) = self.queue_named(name)?;
        let (first, _) = self.waiting_at(queue.head?)?;
        self.leave(first)
    }
}
