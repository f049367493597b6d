//! The queue of one lock, and what it knows of the lock's key.

use super::marking::{Mark, Suspicion};
use super::{Lost, LostBy, Ownership, PlaceId, QueueId, RECHECK_MILLIS, Seen};
use crate::lock::hold::{Hold, Stored};
use crate::lock::holders::Holds;
use crate::lock::lease::{Deadline, Moment, Monotonic};
use crate::lock::name::KeptName;
use crate::lock::owner::KeptOwner;
use foldhash::fast::RandomState;
use std::collections::HashMap;

pub(super) type Index = HashMap<KeptOwner, PlaceId, RandomState>;

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) name: KeptName,
    pub(super) head: Option<PlaceId>,
    pub(super) tail: Option<PlaceId>,
    pub(super) length: usize,
    /// Every waiter by its owner, if there are many.
    pub(super) owners: Option<Box<Index>>,
    /// How many of the waiters wait by a ticket.
    pub(super) tickets: usize,
    /// When the lock may change by itself; also in `ends`.
    pub(super) end: Option<Moment>,
    /// When to look at the key again because of a touch, or because the queue is new; also in `follow_ups`.
    pub(super) follow_up: Option<Moment>,
    pub(super) recheck: Recheck,
    /// When the key was last looked at because of a touch, and the lock was found held.
    pub(super) looked: Option<Moment>,
    /// Whether to look at the lock now; also in `marks`.
    pub(super) mark: Option<Mark>,
    pub(super) ownership: Ownership,
    /// What the key held at the last look, and when that was.
    pub(super) seen: Option<Seen>,
    seen_at: Moment,
    /// What a client's command may do to the key, and when it named the key: see
    /// [`Queues::suspect`](super::Queues::suspect).
    pub(super) touched: Option<(Suspicion, Moment)>,
    repeats: Repeats,
    /// When the lock was first found held: see [`Queue::next_while_new`].
    pub(super) begun: Option<Moment>,
}

/// What another touch by a command that only rewrites the lock means to the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Repeats {
    /// The touch may bring the next look forward, so its time must be known.
    #[default]
    Matter,
    /// A look is due within the gap of a rewriting touch. So the time of the touch need not be known: the look counts
    /// as the time of all such touches before it.
    Wait { any: bool },
}

/// Where a queue stands among the queues of its database, ordered by the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recheck {
    pub(super) crowd: Crowd,
    pub(super) earlier: Option<QueueId>,
    pub(super) later: Option<QueueId>,
    /// The step of `Rechecks::steps` at the last look.
    pub(super) looked: u64,
    pub(super) looked_at: Monotonic,
}

/// Who waits in a queue, as known at the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Crowd {
    #[default]
    Connections,
    TicketsOnly,
}

impl Queue {
    pub(super) fn new(name: KeptName) -> Self {
        Self { name, ..Self::default() }
    }

    /// The holds that were last seen and have ended since, and how each ended. Each end is returned once.
    pub(super) fn lost(&mut self, stored: Stored<'_>, now: Moment) -> Vec<Lost> {
        let Some(seen) = self.seen.as_ref() else { return Vec::new() };
        let stands = stored.seen().filter(|(value, _)| **value == *seen.value);
        let holds = Holds::in_force(&seen.value, seen.deadline, self.seen_at);
        let lost: Vec<_> = if let Some((_, deadline)) = stands {
            let has_run_out =
                |hold: &Hold<'_>| hold.deadline.is_some_and(|deadline| deadline.has_passed(now));
            let ended = holds.until(deadline).filter(has_run_out);
            ended.map(|hold| Lost::new(&hold, LostBy::RunningOut)).collect()
        } else {
            let others = match stored {
                Stored::Text { value, deadline } => Holds::in_force(value, deadline, now),
                Stored::Nothing | Stored::OtherType => Holds::NONE,
            };
            let identity = |hold: &Hold<'_>| (hold.fence_number(), hold.owner.to_owned());
            let mut remaining: Vec<_> = others.map(|hold| identity(&hold)).collect();
            remaining.sort_unstable();
            let is_over = |hold: &Hold<'_>| remaining.binary_search(&identity(hold)).is_err();
            let by = |hold: &Hold<'_>| match stored {
                _ if hold.deadline.is_some_and(|deadline| deadline.may_have_passed(now)) => {
                    LostBy::RunningOut
                }
                Stored::Nothing => LostBy::Deletion,
                Stored::Text { .. } | Stored::OtherType => LostBy::Overwriting,
            };
            holds.filter(is_over).map(|hold| Lost::new(&hold, by(&hold))).collect()
        };
        if stands.is_none() || !lost.is_empty() {
            self.seen = None;
        }
        lost
    }

    /// Whether this touch only waits to be counted by the next look.
    pub(super) fn is_repeated_by(&mut self, suspicion: Suspicion) -> bool {
        match &mut self.repeats {
            Repeats::Wait { any } if suspicion == Suspicion::Rewritten => {
                *any = true;
                true
            }
            Repeats::Wait { .. } | Repeats::Matter => false,
        }
    }

    /// Notes that a client's command names the key. If the lock was looked at too recently to be looked at now, returns
    /// when it may be; the caller must schedule that look.
    pub(super) fn touch(&mut self, suspicion: Suspicion, now: Moment) -> Option<Moment> {
        // A touch that may free the lock outranks a touch that may only rewrite it.
        match self.touched {
            Some((Suspicion::Freed, _)) if suspicion == Suspicion::Rewritten => {}
            _ => self.touched = Some((suspicion, now)),
        }
        self.repeats = Repeats::Wait { any: false };
        let next = self.looked?.plus_millis(suspicion.gap_millis());
        // A longer wait than the gap means that the clock was set back.
        (now < next && next <= now.plus_millis(suspicion.gap_millis())).then_some(next)
    }

    /// Counts the last touch from now on: the command may not have been executed yet.
    pub(super) fn touch_again(&mut self, now: Moment) {
        self.repeats = Repeats::Matter;
        self.touched = self.touched.map(|(suspicion, _)| (suspicion, now));
    }

    /// When to look again because of a touch. `None` once the routine would come as soon.
    pub(super) fn next_after_touch(&mut self, now: Moment, routine_millis: u64) -> Option<Moment> {
        let passed = |&(_, touched): &(_, Moment)| now.millis_since(touched);
        // If the clock was set back since, the touch counts from now on.
        let touch = self.touched.map(|(suspicion, touched)| (suspicion, touched.min(now)));
        self.touched = touch.filter(|touch| passed(touch) < routine_millis);
        let is_repeated = self.repeats == Repeats::Wait { any: true };
        self.repeats = Repeats::Matter;
        if is_repeated && !matches!(self.touched, Some((Suspicion::Freed, _))) {
            self.touched = Some((Suspicion::Rewritten, now));
            self.repeats = Repeats::Wait { any: false };
        }
        let touch = self.touched?;
        Some(now.plus_millis(passed(&touch).max(touch.0.gap_millis())))
    }

    /// When to look again for commands that came before the queue, so that they touched nothing, and are executed only
    /// now: from a transaction, or after a pause. As after a touch, the wait is as long as the time that has passed,
    /// but at least `least` milliseconds.
    pub(super) fn next_while_new(&mut self, now: Moment, least: u64) -> Option<Moment> {
        // If the clock was set back since, the queue counts as new from now on.
        let begun = self.begun.map_or(now, |begun| begun.min(now));
        self.begun = Some(begun);
        let passed = now.millis_since(begun);
        let next = passed.max(least);
        (passed < RECHECK_MILLIS && least < RECHECK_MILLIS).then(|| now.plus_millis(next))
    }

    /// Notes what the key holds. Copies the value only if it differs: a queue is settled far more often than its lock
    /// changes hands.
    pub(super) fn remember(&mut self, seen: Option<(&[u8], Option<Deadline>)>, now: Moment) {
        self.seen_at = now;
        match (&mut self.seen, seen) {
            (Some(known), Some((value, deadline))) if *known.value == *value => {
                known.deadline = deadline;
            }
            (known, seen) => {
                *known = seen.map(|(value, deadline)| Seen { value: value.into(), deadline });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::name::Name;

    const NOW: Moment = Moment::from_millis(1_763_000_000_000);
    const HOUR_MILLIS: u64 = 3_600_000;

    fn queue() -> Queue {
        Queue::new(KeptName::from(Name::new(0, b"k")))
    }

    /// The times of the looks in milliseconds, if each look schedules the next.
    fn looks(mut next: impl FnMut(Moment) -> Option<Moment>, from: Moment) -> Vec<u64> {
        let moments = std::iter::successors(next(from), |&moment| next(moment));
        moments.map(|moment| moment.millis_since(from)).collect()
    }

    #[test]
    fn a_new_queue_is_looked_at_again_after_as_much_time_as_has_passed() {
        let (mut few, mut many) = (queue(), queue());
        let all = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
        assert_eq!(looks(|now| few.next_while_new(now, 2), NOW), all);
        assert_eq!(few.next_while_new(NOW.plus_millis(5_000), 2), None, "it is new once");
        assert_eq!(looks(|now| many.next_while_new(now, 200), NOW), [200, 400, 800, 1_600]);
    }

    #[test]
    fn a_new_queue_is_new_from_then_on_when_the_clock_is_set_back() {
        let mut queue = queue();
        let later = NOW.plus_millis(HOUR_MILLIS);
        assert_eq!(queue.next_while_new(later, 2), Some(later.plus_millis(2)));
        assert_eq!(looks(|now| queue.next_while_new(now, 2), NOW).len(), 10);
    }

    #[test]
    fn a_hold_that_has_run_out_is_lost_once_while_the_key_still_says_it() {
        let (end, over) = (Deadline::from_millis(NOW.millis() + 5), NOW.plus_millis(6));
        let stored = Stored::Text { value: b"x", deadline: Some(end) };
        let mut queue = queue();
        queue.remember(stored.seen(), NOW);
        assert!(queue.lost(stored, NOW).is_empty());
        assert_eq!(queue.lost(stored, over).len(), 1);
        assert!(queue.lost(stored, over).is_empty());
    }

    #[test]
    fn what_may_free_a_lock_counts_from_the_last_time_and_is_not_forgotten() {
        let later = |millis| NOW.plus_millis(millis);
        let mut queue = queue();
        let _soonest = queue.touch(Suspicion::Freed, NOW);
        let _soonest = queue.touch(Suspicion::Rewritten, later(50));
        assert_eq!(queue.next_after_touch(later(60), RECHECK_MILLIS), Some(later(120)));
        let _soonest = queue.touch(Suspicion::Freed, later(100));
        assert_eq!(queue.next_after_touch(later(110), RECHECK_MILLIS), Some(later(120)));
    }

    #[test]
    fn a_touch_counts_from_then_on_when_the_clock_is_set_back() {
        for back in [0, 1, HOUR_MILLIS] {
            let mut queue = queue();
            let _soonest = queue.touch(Suspicion::Freed, NOW.plus_millis(back));
            assert_eq!(
                looks(|now| queue.next_after_touch(now, RECHECK_MILLIS), NOW).len(),
                10,
                "by {back} ms"
            );
        }
    }
}
