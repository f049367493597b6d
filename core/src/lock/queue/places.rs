//! The places of one who waits: one in the queue of each lock that it asked for.

use super::{PlaceId, QueueId, Queues, Waiter, WaiterId, Waiting};
use crate::lock::name::{KeptName, Name, Names};
use std::slice;

#[derive(Debug)]
pub(super) enum Places {
    One(PlaceId),
    Several(Box<Several>),
}

#[derive(Debug)]
pub(super) struct Several {
    places: Box<[PlaceId]>,
    /// The lock at this one was not to be had when it was last looked at, and is looked at first the next time. So one
    /// that is held does not make others be looked at in vain.
    refused: usize,
    /// Whether that was because somebody holds it.
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
        self.waiters.get(id.0).map(|waiting| &waiting.waiter)
    }

    /// The locks that it waits for, the one first that was last found not to be had.
    pub fn names_of(&self, id: WaiterId) -> Vec<KeptName> {
        let Some(waiting) = self.waiters.get(id.0) else { return Vec::new() };
        let places = waiting.places.all();
        let (earlier, later) = match &waiting.places {
            Places::Several(several) => places.split_at(several.refused.min(places.len())),
            Places::One(_) => (&[][..], places),
        };
        let in_turn = later.iter().chain(earlier);
        in_turn.filter_map(|&place| self.name_at(place)).cloned().collect()
    }

    /// This one of the locks that it waits for is not to be had now, while it is first in all its queues.
    pub fn refused(&mut self, id: WaiterId, name: Name<'_>, is_held: bool) {
        let Some(waiting) = self.waiters.get(id.0) else { return };
        let is_it =
            |&place: &PlaceId| self.name_at(place).is_some_and(|known| known.as_name() == name);
        let at = waiting.places.all().iter().position(is_it);
        if let (Some(at), Some(Waiting { places: Places::Several(several), .. })) =
            (at, self.waiters.get_mut(id.0))
        {
            (several.refused, several.is_held) = (at, is_held);
        }
    }

    /// Whether another of its locks was found to be held, and nobody has touched that since. Then nothing needs to be
    /// done for this one: that lock is looked at in time, as every contended lock is, and from there all are granted. Without
    /// this, each look at a free lock would become a look at all of them, although nothing has happened.
    pub(super) fn waits_for_another(&self, waiter: WaiterId, id: QueueId) -> bool {
        let Some(waiting) = self.waiters.get(waiter.0) else { return false };
        let Places::Several(several) = &waiting.places else { return false };
        let refused = several.places.get(several.refused).filter(|_| several.is_held);
        let place = refused.and_then(|refused| self.places.get(refused.0));
        let other = place.map(|place| place.queue).filter(|other| *other != id);
        other
            .and_then(|other| self.queues.get(other.0))
            .is_some_and(|other| other.touched.is_none())
    }

    /// Whether nobody stands before it in any of its queues.
    pub(super) fn is_first_everywhere(&self, waiting: &Waiting<C>) -> bool {
        let places = waiting.places.all().iter();
        places.filter_map(|place| self.places.get(place.0)).all(|place| place.before.is_none())
    }

    /// Whether one who waits for any of these locks waits for all of them, in whatever order, and for no others.
    pub(super) fn is_for(&self, id: WaiterId, names: Names<'_>) -> bool {
        let Some(waiting) = self.waiters.get(id.0) else { return false };
        let owner = waiting.waiter.owner.as_owner().as_bytes();
        let is_at = |name| self.id_of(name).and_then(|at| self.waiting_as(at, owner)) == Some(id);
        waiting.places.count() == names.count()
            && (names.also.is_empty() || names.iter().all(is_at))
    }

    /// The queues that it stands in.
    pub(super) fn queues_of(&self, id: WaiterId) -> Vec<QueueId> {
        let Some(waiting) = self.waiters.get(id.0) else { return Vec::new() };
        let places = waiting.places.all().iter();
        places.filter_map(|place| self.places.get(place.0)).map(|place| place.queue).collect()
    }

    pub(super) fn name_at(&self, id: PlaceId) -> Option<&KeptName> {
        let place = self.places.get(id.0)?;
        Some(&self.queues.get(place.queue.0)?.name)
    }
}
