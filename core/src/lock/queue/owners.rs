//! The waiters of a lock by their owners: each owner waits once.
//!
//! Most locks have a few waiters or none, and a waiter among a few is found by walking along the queue. A crowd has an
//! index, which takes memory for each waiter.

use super::contended::Queue;
use super::{PlaceId, QueueId, Queues, WaiterId, Waiting};
use crate::lock::owner::KeptOwner;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// A queue with more waiters than this has an index.
const FEW: usize = 4;

pub(super) type Index = HashMap<KeptOwner, PlaceId, RandomState>;

impl<C> Queues<C> {
    pub(super) fn waiting_as(&self, id: QueueId, owner: &[u8]) -> Option<WaiterId> {
        let place = self.place_of(id, owner)?;
        self.places.get(place.0).map(|place| place.waiter)
    }

    /// The place of this owner in the queue.
    pub(super) fn place_of(&self, id: QueueId, owner: &[u8]) -> Option<PlaceId> {
        let queue = self.queues.get(id.0)?;
        match &queue.owners {
            Some(index) => index.get(owner).copied(),
            None => {
                let is_it = |(_, waiting): &(_, &Waiting<C>)| {
                    waiting.waiter.owner.as_owner().as_bytes() == owner
                };
                self.along(queue).find(is_it).map(|(place, _)| place)
            }
        }
    }

    /// The places in a queue, from head to tail, and the waiter of each.
    pub(super) fn along(&self, queue: &Queue) -> impl Iterator<Item = (PlaceId, &Waiting<C>)> {
        let behind = |id: &PlaceId| self.places.get(id.0)?.behind;
        let places = std::iter::successors(queue.head, behind);
        places.filter_map(|place| Some((place, self.waiting_at(place)?.1)))
    }

    /// Counts and indexes a waiter whose place is the last in the queue.
    pub(super) fn index(&mut self, id: QueueId, place: PlaceId) {
        let Some(queue) = self.queues.get_mut(id.0) else { return };
        queue.length = queue.length.saturating_add(1);
        if queue.owners.is_none() && queue.length <= FEW {
            return;
        }
        let Some(owner) = self.waiting_at(place).map(|(_, at)| at.waiter.owner.clone()) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(id.0) else { return };
        if let Some(index) = &mut queue.owners {
            index.insert(owner, place);
            return;
        }
        let Some(queue) = self.queues.get(id.0) else { return };
        let named = self.along(queue).map(|(place, at)| (at.waiter.owner.clone(), place));
        let index: Index = named.collect();
        self.with_queue(id, |queue| queue.owners = Some(Box::new(index)));
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
