//! The queue of one lock, and what it knows of the lock's key.

use super::marking::{Mark, Suspicion};
use super::owners::Index;
use super::{Lost, LostBy, Ownership, PlaceId, RECHECK_MILLIS, Seen};
use crate::lock::hold::{Hold, Stored};
use crate::lock::holders::Holds;
use crate::lock::lease::{Deadline, Moment};
use crate::lock::name::KeptName;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: KeptName,
    pub(super) head: Option<PlaceId>,
    pub(super) tail: Option<PlaceId>,
    /// How many wait.
    pub(super) length: usize,
    /// Every waiter by its owner, if there are many.
    pub(super) owners: Option<Box<Index>>,
    /// How many of them wait by a ticket.
    pub(super) tickets: usize,
    /// When to look at the key again; also in `looks`.
    pub(super) look: Option<Moment>,
    /// When the key was last looked at because of a touch, and the lock found to be held.
    pub(super) looked: Option<Moment>,
    /// Whether the lock is to be looked at now; also in `marks`.
    pub(super) mark: Option<Mark>,
    pub(super) ownership: Ownership,
    /// What the key held when last seen, and when that was.
    pub(super) seen: Option<Seen>,
    seen_at: Moment,
    /// What somebody's command may do to the key, and when it named the key:
    /// see [`Queues::suspect`](super::Queues::suspect).
    pub(super) touched: Option<(Suspicion, Moment)>,
    repeats: Repeats,
}

/// What another touch by a command that only rewrites the lock is to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    /// It may bring the next look forward, for which the time must be known.
    Matter,
    /// A look is due within the gap of a rewriting touch, so there is no need to know the time: that
    /// look counts as the moment of those that have come meanwhile.
    Wait { any: bool },
}

impl Queue {
    pub(super) fn new(name: KeptName) -> Self {
        Self {
            name,
            head: None,
            tail: None,
            length: 0,
            owners: None,
            tickets: 0,
            look: None,
            looked: None,
            mark: None,
            ownership: Ownership::Ours,
            seen: None,
            seen_at: Moment::from_micros(0),
            touched: None,
            repeats: Repeats::Matter,
        }
    }

    /// Which of the holds that were last seen have ended since, and how. Told once.
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

    /// Whether the touch is one that only waits to be counted by the next look.
    pub(super) fn is_repeated_by(&mut self, suspicion: Suspicion) -> bool {
        match &mut self.repeats {
            Repeats::Wait { any } if suspicion == Suspicion::Rewritten => {
                *any = true;
                true
            }
            Repeats::Wait { .. } | Repeats::Matter => false,
        }
    }

    /// Takes note that somebody's command names the key. When the lock may be looked at for that, if it may not be
    /// now: it was just looked at. The caller sees to it that it is looked at then.
    pub(super) fn touch(&mut self, suspicion: Suspicion, now: Moment) -> Option<Moment> {
        // What may free the lock is not forgotten over what may only rewrite it.
        match self.touched {
            Some((Suspicion::Freed, _)) if suspicion == Suspicion::Rewritten => {}
            _ => self.touched = Some((suspicion, now)),
        }
        self.repeats = Repeats::Wait { any: false };
        let next = self.looked?.plus_millis(suspicion.gap_millis());
        // Further away than that it can only be because the clock was set back.
        (now < next && next <= now.plus_millis(suspicion.gap_millis())).then_some(next)
    }

    /// The command that touched the lock may not have been executed yet.
    pub(super) fn touch_again(&mut self, now: Moment) {
        self.repeats = Repeats::Matter;
        self.touched = self.touched.map(|(suspicion, _)| (suspicion, now));
    }

    /// When to look again because of a touch, if that was less than [`RECHECK_MILLIS`] ago.
    pub(super) fn next_after_touch(&mut self, now: Moment) -> Option<Moment> {
        let passed = |&(_, touched): &(_, Moment)| now.millis_since(touched);
        self.touched = self
            .touched
            .filter(|(_, touched)| *touched <= now)
            .filter(|touch| passed(touch) < RECHECK_MILLIS);
        let is_repeated = self.repeats == Repeats::Wait { any: true };
        self.repeats = Repeats::Matter;
        if is_repeated && !matches!(self.touched, Some((Suspicion::Freed, _))) {
            self.touched = Some((Suspicion::Rewritten, now));
            self.repeats = Repeats::Wait { any: false };
        }
        let touch = self.touched?;
        Some(now.plus_millis(passed(&touch).max(touch.0.gap_millis())))
    }

    /// Keeps the value only if it is another one: a queue is settled far more often than its lock
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
