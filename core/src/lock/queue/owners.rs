//! The waiters of a lock by their owners: each owner waits once.
//!
//! Most locks have a few waiters or none, and one of a few is found by walking along the queue. A crowd has an
//! index, which takes memory for each of them.

use super::contended::Queue;
use super::{Place, QueueId, Queues, WaiterId};
use crate::lock::owner::KeptOwner;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// More than this have an index.
const FEW: usize = 4;

pub(super) type Index = HashMap<KeptOwner, WaiterId, RandomState>;

impl<C> Queues<C> {
    pub(super) fn waiting_as(&self, id: QueueId, owner: &[u8]) -> Option<WaiterId> {
        let queue = self.queues.get(id.0)?;
        match &queue.owners {
            Some(index) => index.get(owner).copied(),
            None => {
                let mut places = self.along(queue);
                let is_it =
                    |(_, place): &(_, &Place<C>)| place.waiter.owner.as_owner().as_bytes() == owner;
                places.find(is_it).map(|(id, _)| id)
            }
        }
    }

    /// The places in a queue, from head to tail.
    pub(super) fn along(&self, queue: &Queue) -> impl Iterator<Item = (WaiterId, &Place<C>)> {
        let place = |id: Option<WaiterId>| id.and_then(|id| Some((id, self.waiters.get(id.0)?)));
        std::iter::successors(place(queue.head), move |(_, last)| place(last.behind))
    }

    /// This one has joined the queue.
    pub(super) fn index(&mut self, id: QueueId, waiter: WaiterId, owner: KeptOwner) {
        let Some(queue) = self.queues.get_mut(id.0) else { return };
        queue.length = queue.length.saturating_add(1);
        if let Some(index) = &mut queue.owners {
            index.insert(owner, waiter);
        } else if queue.length > FEW {
            let Some(queue) = self.queues.get(id.0) else { return };
            let named = self.along(queue).map(|(id, place)| (place.waiter.owner.clone(), id));
            let index: Index = named.collect();
            self.with_queue(id, |queue| queue.owners = Some(Box::new(index)));
        }
    }
}

impl Queue {
    /// This one has left the queue.
    pub(super) fn unindex(&mut self, owner: &KeptOwner) {
        self.length = self.length.saturating_sub(1);
        if let Some(index) = &mut self.owners {
            index.remove(owner);
        }
        // Not when there are just as few: the next one may be about to come.
        if self.length < FEW / 2 {
            self.owners = None;
        }
    }
}
