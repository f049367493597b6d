//! The invariants of the queues, for tests to check after every step.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::{PlaceId, QueueId, Queues, WaiterId};
use crate::lock::name::Name;
use crate::lock::wait::WaitKind;

impl<C> Queues<C> {
    /// How many wait, for any lock.
    pub(crate) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_marked(&self, name: Name<'_>) -> bool {
        let is_marked = |queue| self.rechecks.is_in_doubt(queue) || queue.mark.is_some();
        self.queue_named(name).is_some_and(|(_, queue)| is_marked(queue))
    }

    /// Whether everything points at what it should.
    #[track_caller]
    pub(crate) fn check(&self) {
        let (mut waiters, mut blocked, mut blocked_places) = (0, 0, 0);
        let (mut ends, mut follow_ups, mut marks) = (0, 0, 0);
        let (mut patience, mut tickets, mut listening) = (0, 0, 0);
        for (index, waiting) in &self.waiters {
            let (places, kind) = (waiting.places.all(), waiting.waiter.wait.kind());
            assert!(!places.is_empty(), "whoever waits has a place");
            let is_its_own =
                |place: &PlaceId| self.places[place.0.get()].waiter == WaiterId(index.into());
            assert!(places.iter().all(is_its_own), "its places are its own");
            waiters += places.len();
            if kind == WaitKind::Blocked {
                (blocked, blocked_places) = (blocked + 1, blocked_places + places.len());
            }
            listening += usize::from(waiting.waiter.wait.channel().is_some());
            let (gives_up, asked_at) = (waiting.waiter.gives_up, waiting.asked_at);
            patience += asked_at.into_iter().count();
            assert!(asked_at.is_none_or(|at| self.patience.contains(WaiterId(index.into()), at)));
            let is_asked = |end| asked_at.is_some_and(|at| at.0 == kind && at.1 <= end);
            assert!(gives_up.is_none_or(is_asked), "somebody asks in time");
        }
        let later = |id: &WaiterId| self.waiters[id.0.get()].later;
        let arrivals: Vec<_> = std::iter::successors(self.oldest, later).collect();
        assert_eq!(arrivals.len(), self.waiters.len(), "all have come one after the other");
        assert_eq!(arrivals.last(), self.newest.as_ref());
        let since = |id: &WaiterId| self.waiters[id.0.get()].waiter.since;
        assert!(arrivals.iter().is_sorted_by_key(since), "in the order in which they wait");
        assert_eq!(self.places.len(), waiters, "every place is somebody's");
        assert_eq!(self.blocked, blocked, "those who are blocked are counted");
        assert_eq!(self.blocked_places, blocked_places, "and so are their places");
        let mut places = 0;
        for (index, queue) in &self.queues {
            let id = QueueId(index.into());
            assert_eq!(self.id_of(queue.name.as_name()), Some(id), "found by its name");
            ends += queue.end.into_iter().count();
            assert!(queue.end.is_none_or(|end| self.ends.contains(id, end)));
            follow_ups += queue.follow_up.into_iter().count();
            assert!(queue.follow_up.is_none_or(|look| self.follow_ups.contains(id, look)));
            marks += queue.mark.into_iter().count();
            assert!(queue.mark.is_none_or(|mark| self.marks.order.contains(id, mark)));
            let (mut before, mut next) = (None, queue.head);
            let (mut length, mut of_queue) = (0, 0);
            while let Some(at) = next {
                let place = &self.places[at.0.get()];
                assert_eq!((place.queue, place.before), (id, before), "linked both ways");
                let waiting = &self.waiters[place.waiter.0.get()];
                assert!(waiting.places.all().contains(&at), "known to the one whose it is");
                let owner = waiting.waiter.owner.as_owner().as_bytes();
                assert_eq!(self.place_of(id, owner), Some(at), "found by its owner");
                of_queue += usize::from(waiting.waiter.wait.kind() == WaitKind::Ticket);
                length += 1;
                before = next;
                next = place.behind;
            }
            assert!(length > 0, "no queue is empty");
            assert_eq!(queue.tail, before);
            assert_eq!(queue.length, length, "the length is known");
            let indexed = queue.owners.as_ref().map(|index| index.len());
            assert!(indexed.is_none_or(|indexed| indexed == length), "every owner waits once");
            places += length;
            assert_eq!(queue.tickets, of_queue, "tickets are counted");
            tickets += of_queue;
        }
        assert_eq!(places, waiters, "every place is in a queue");
        assert_eq!(self.tickets, tickets, "tickets are counted");
        assert_eq!(self.channels.len(), listening, "each is known by its channel");
        assert_eq!(self.patience.len(), patience, "everybody's patience ends once");
        assert_eq!(self.ends.len(), ends, "every look is at a queue that there is");
        assert_eq!(self.follow_ups.len(), follow_ups, "every look is at a queue that there is");
        assert_eq!(self.rechecks.len(&self.queues), self.queues.len(), "no queue is forgotten");
        assert_eq!(self.marks.order.len(), marks, "every mark is of a queue that there is");
        assert_eq!(self.names.count(), self.queues.len());
    }
}
