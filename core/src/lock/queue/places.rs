//! The places of a waiter: one in the queue of each lock that it asked for. And the waiters of a lock by their owners.

use super::contended::Queue;
use super::waiters::from_index;
use super::{PlaceId, QueueId, Queues, Waiter, WaiterId, Waiting};
use crate::lock::name::{KeptName, Name, Names};
use crate::lock::owner::{KeptOwner, Owner};
use std::slice;

/// A queue with more waiters than this has an index.
const FEW: usize = 4;

#[derive(Debug)]
pub(super) enum Places {
    One(PlaceId),
    Several(Box<Several>),
}

#[derive(Debug)]
pub(super) struct Several {
    places: Box<[PlaceId]>,
    /// The lock at this place could not be granted when it was last looked at, and is looked at first the next time. So
    /// a lock that stays held costs one look, and the others are not looked at in vain.
    refused: usize,
    /// Whether that was because somebody holds the lock.
    is_held: bool,
}

impl Places {
    pub(super) fn several(places: Box<[PlaceId]>) -> Self {
        Self::Several(Box::new(Several { places, refused: 0, is_held: false }))
    }

    pub(super) fn all(&self) -> &[PlaceId] {
        match self {
            Self::One(place) => slice::from_ref(place),
            Self::Several(several) => &several.places,
        }
    }

    pub(super) fn first(&self) -> Option<PlaceId> {
        self.all().first().copied()
    }

    pub(super) fn count(&self) -> usize {
        self.all().len()
    }

    pub(super) const fn is_one(&self) -> bool {
        matches!(self, Self::One(_))
    }
}

impl<C> Queues<C> {
    pub fn waiter(&self, id: WaiterId) -> Option<&Waiter<C>> {
        self.waiters.get(id.0.get()).map(|waiting| &waiting.waiter)
    }

    /// The first contended lock from this index on, and its index, which stays while anybody waits for the lock.
    pub fn lock_from(&self, index: usize) -> Option<(usize, Option<KeptName>)> {
        let (index, queue) = from_index(&self.queues, index)?;
        Some((index, queue.map(|queue| queue.name.clone())))
    }

    pub fn waiter_as(&self, name: Name<'_>, owner: Owner<'_>) -> Option<WaiterId> {
        self.waiting_as(self.id_of(name)?, owner.as_bytes())
    }

    /// The locks that this waiter waits for. The lock that could not be granted last time comes first.
    pub fn names_of(&self, id: WaiterId) -> Vec<KeptName> {
        let Some(waiting) = self.waiters.get(id.0.get()) else { return Vec::new() };
        let places = waiting.places.all();
        let (earlier, later) = match &waiting.places {
            Places::Several(several) => places.split_at(several.refused.min(places.len())),
            Places::One(_) => (&[][..], places),
        };
        let in_turn = later.iter().chain(earlier);
        in_turn.filter_map(|&place| self.name_at(place)).cloned().collect()
    }

    /// Notes that this lock cannot be granted now, while the waiter is first in all its queues.
    pub fn refused(&mut self, id: WaiterId, name: Name<'_>, is_held: bool) {
        let Some(waiting) = self.waiters.get(id.0.get()) else { return };
        let is_it =
            |&place: &PlaceId| self.name_at(place).is_some_and(|known| known.as_name() == name);
        let at = waiting.places.all().iter().position(is_it);
        if let (Some(at), Some(Waiting { places: Places::Several(several), .. })) =
            (at, self.waiters.get_mut(id.0.get()))
        {
            (several.refused, several.is_held) = (at, is_held);
        }
    }

    /// Whether another of the waiter's locks was found held, and nobody has touched that lock since. Then nothing needs
    /// to be done for this lock: the other lock is looked at in time, as every contended lock is, and that look grants
    /// all of them. Without this check, each look at a free lock would become a look at all the waiter's locks,
    /// although nothing has happened.
    pub(super) fn waits_for_another(&self, waiter: WaiterId, id: QueueId) -> bool {
        let Some(waiting) = self.waiters.get(waiter.0.get()) else { return false };
        let Places::Several(several) = &waiting.places else { return false };
        let refused = several.places.get(several.refused).filter(|_| several.is_held);
        let place = refused.and_then(|refused| self.places.get(refused.0.get()));
        let other = place.map(|place| place.queue).filter(|other| *other != id);
        other
            .and_then(|other| self.queues.get(other.0.get()))
            .is_some_and(|other| other.touched.is_none())
    }

    pub(super) fn is_first_everywhere(&self, waiting: &Waiting<C>) -> bool {
        let places = waiting.places.all().iter();
        places
            .filter_map(|place| self.places.get(place.0.get()))
            .all(|place| place.before.is_none())
    }

    /// Whether the waiter waits for exactly these locks, in any order.
    pub(super) fn is_for(&self, id: WaiterId, names: Names<'_>) -> bool {
        let Some(waiting) = self.waiters.get(id.0.get()) else { return false };
        let owner = waiting.waiter.owner.as_owner().as_bytes();
        let is_at = |name| self.id_of(name).and_then(|at| self.waiting_as(at, owner)) == Some(id);
        waiting.places.count() == names.count()
            && (names.also.is_empty() || names.iter().all(is_at))
    }

    pub(super) fn queues_of(&self, id: WaiterId) -> Vec<QueueId> {
        let Some(waiting) = self.waiters.get(id.0.get()) else { return Vec::new() };
        let places = waiting.places.all().iter();
        places.filter_map(|place| self.places.get(place.0.get())).map(|place| place.queue).collect()
    }

    pub(super) fn name_at(&self, id: PlaceId) -> Option<&KeptName> {
        let place = self.places.get(id.0.get())?;
        Some(&self.queues.get(place.queue.0.get())?.name)
    }
}

/// The waiters of a lock by their owners: each owner waits once. Most locks have a few waiters or none, and a waiter
/// among a few is found by walking along the queue. A crowd has an index, which takes memory for each waiter.
impl<C> Queues<C> {
    pub(super) fn waiting_as(&self, id: QueueId, owner: &[u8]) -> Option<WaiterId> {
        let place = self.place_of(id, owner)?;
        self.places.get(place.0.get()).map(|place| place.waiter)
    }

    pub(super) fn place_of(&self, id: QueueId, owner: &[u8]) -> Option<PlaceId> {
        let queue = self.queues.get(id.0.get())?;
        match &queue.owners {
            Some(index) => index.get(owner).copied(),
            None => {
                let is_it = |(_, waiting): &(_, &Waiting<C>)| {
                    waiting.waiter.owner.as_owner().as_bytes() == owner
                };
                self.along(queue.head).find(is_it).map(|(place, _)| place)
            }
        }
    }

    /// The places in a queue from this one to the tail, and the waiter of each.
    pub(super) fn along(
        &self,
        from: Option<PlaceId>,
    ) -> impl Iterator<Item = (PlaceId, &Waiting<C>)> {
        let behind = |id: &PlaceId| self.places.get(id.0.get())?.behind;
        let places = std::iter::successors(from, behind);
        places.filter_map(|place| Some((place, self.waiting_at(place)?.1)))
    }

    /// Counts and indexes a waiter whose place is the last in the queue.
    pub(super) fn index(&mut self, id: QueueId, place: PlaceId) {
        let Some(queue) = self.queues.get_mut(id.0.get()) else { return };
        queue.length = queue.length.saturating_add(1);
        if queue.owners.is_none() && queue.length <= FEW {
            return;
        }
        let (known, head) = (queue.owners.take(), queue.head);
        let from = if known.is_some() { Some(place) } else { head };
        let mut index = known.unwrap_or_default();
        index.extend(self.along(from).map(|(place, at)| (at.waiter.owner.clone(), place)));
        self.with_queue(id, |queue| queue.owners = Some(index));
    }
}

impl Queue {
    /// Removes a waiter that has left from the count and the index.
    pub(super) fn unindex(&mut self, owner: &KeptOwner) {
        self.length = self.length.saturating_sub(1);
        if let Some(index) = &mut self.owners {
            index.remove(owner);
        }
        // Only below half of the limit: the next waiter may be about to come.
        if self.length < FEW / 2 {
            self.owners = None;
        }
    }
}
