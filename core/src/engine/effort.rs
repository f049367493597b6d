//! How much is done before others have their turn.
//!
//! Two things bound it, and neither would do alone. **Effort** counts what is known to take long: values that are read, and
//! subscribers that hear of a grant. **Time** tells of what is not: the server compares each message with every pattern that
//! anybody subscribed to, whoever hears it.

use super::Host;
use crate::lock::{Monotonic, Stored};

/// How long a value may be before a round of its hand-off counts as two. Each round reads the whole
/// value.
const BYTES_IN_A_ROUND: usize = 8_192;

/// How many subscribers hear of a grant in the time that a round takes.
const HEARERS_IN_A_ROUND: usize = 20;

/// What has been done in a turn, in rounds of the hand-off of an exclusive lock. When it comes to
/// [`Host::slice`], other locks have their turn, and at [`Host::batch`] other clients.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effort(usize);

impl Effort {
    pub(super) const ROUND: Self = Self(1);

    pub(super) fn add(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    pub(super) fn fills(self, batch: usize) -> bool {
        self.0 >= batch
    }

    /// The effort of a look at a lock that is held as before.
    pub(super) fn of_look(stored: Stored<'_>) -> Self {
        match stored {
            Stored::Text { value, .. } => Self(value.len().div_euclid(BYTES_IN_A_ROUND)),
            _ => Self::default(),
        }
    }

    /// The effort of a grant that is published, and heard of by so many.
    pub(super) fn of_telling(hearers: usize) -> Self {
        Self(hearers.div_euclid(HEARERS_IN_A_ROUND))
    }

    /// The effort of a round for a key that holds this.
    pub(super) fn of_round(stored: Stored<'_>) -> Self {
        let mut effort = Self::of_look(stored);
        effort.add(Self::ROUND);
        effort
    }
}

/// What may be done before others have their turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    most: usize,
    ends: Monotonic,
}

impl Budget {
    /// How long something may go on, as a rule.
    pub(super) const MICROS: u64 = 2_000;

    /// From now on, for so long.
    pub(super) fn new(host: &impl Host, most: usize, micros: u64) -> Self {
        Self { most, ends: host.monotonic().plus_micros(micros) }
    }

    /// As much as other clients, and other locks, can wait for.
    pub(super) fn of(host: &impl Host, most: usize) -> Self {
        Self::new(host, most, Self::MICROS)
    }

    /// Whether it is used up. Something was done before: what is asked first always goes on.
    pub(super) fn is_used_up(self, host: &impl Host, effort: Effort) -> bool {
        effort.fills(self.most) || host.monotonic() >= self.ends
    }
}
