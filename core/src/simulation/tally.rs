//! How often clients were told what, to be compared with the counters that an operator is shown.

use crate::engine::Answer;
use crate::lock::{Acquired, Extended, Outcome, Released, WaitKind};
use crate::observe::Observer;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    grants: u64,
    retries: u64,
    hand_offs: u64,
    waits_granted: u64,
    waits_timed_out: u64,
    waits_refused: u64,
    tries_refused: u64,
    releases: u64,
    releases_refused: u64,
    extends: u64,
    extends_refused: u64,
    queue_full: u64,
}

impl Tally {
    /// What the module has counted itself.
    pub(super) fn of(observer: &Observer) -> Self {
        let counters = observer.counters();
        Self {
            grants: counters.grants,
            retries: counters.retries,
            hand_offs: counters.hand_offs,
            waits_granted: counters.waits_granted,
            waits_timed_out: counters.waits_timed_out,
            waits_refused: counters.waits_refused,
            tries_refused: counters.tries_refused,
            releases: counters.releases,
            releases_refused: counters.releases_refused,
            extends: counters.extends,
            extends_refused: counters.extends_refused,
            queue_full: counters.queue_full,
        }
    }

    /// What a request came to whose client does not wait.
    pub(super) fn requested(&mut self, outcome: &Outcome<'_>) {
        match outcome {
            Outcome::Acquire(Acquired::Granted { .. }) => self.grants += 1,
            Outcome::Acquire(Acquired::Again { .. }) => self.retries += 1,
            Outcome::Acquire(Acquired::Busy(_) | Acquired::NotUpgraded(_)) => {
                self.tries_refused += 1
            }
            Outcome::Release(Released::Released { .. }) => self.releases += 1,
            Outcome::Release(Released::NotHolder(_)) => self.releases_refused += 1,
            Outcome::Extend(Extended::Until { .. }) => self.extends += 1,
            Outcome::Extend(Extended::NotHolder(_)) => self.extends_refused += 1,
            Outcome::Acquire(Acquired::NoFenceLeft) | Outcome::Wait(_) | Outcome::Raise(_) => {}
        }
    }

    /// What a wait came to.
    pub(super) fn answered(&mut self, kind: WaitKind, answer: &Answer) {
        match (answer, kind) {
            (Answer::Granted { .. }, _) => {
                self.grants += 1;
                self.hand_offs += 1;
                self.waits_granted += 1;
            }
            (Answer::Again { .. }, _) => {
                self.retries += 1;
                self.waits_granted += 1;
            }
            (Answer::GaveUp, WaitKind::Blocked) => self.waits_timed_out += 1,
            // Its owner is told nothing.
            (Answer::GaveUp, WaitKind::Ticket) => {}
            (Answer::Refused(_), _) => self.waits_refused += 1,
        }
    }

    pub(super) fn had_no_room(&mut self) {
        self.queue_full += 1;
    }
}
