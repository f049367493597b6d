//! How much is done before others have their turn.
//!
//! Two limits bound it, and each covers what the other misses. **Effort** counts what is known to take long: values
//! that are read, and subscribers that receive a grant. **Time** covers the rest: the server compares each published
//! message with every pattern that clients subscribed to, whether it matches or not.

use super::Host;
use crate::lock::{Monotonic, Stored};

/// How long a value may be before a round of its hand-off counts as two. Each round reads the whole value.
const BYTES_IN_A_ROUND: usize = 8_192;

/// How many subscribers receive a grant in the time that a round takes.
const RECEIVERS_IN_A_ROUND: usize = 20;

/// What has been done in a turn, in rounds of the hand-off of an exclusive lock. At [`Host::slice`] other locks have
/// their turn, and at [`Host::batch`] other clients.
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

    /// The effort of a look at a lock that is still held.
    pub(super) fn of_look(stored: Stored<'_>) -> Self {
        match stored {
            Stored::Text { value, .. } => Self(value.len().div_euclid(BYTES_IN_A_ROUND)),
            _ => Self::default(),
        }
    }

    /// The effort of publishing a grant to this many subscribers.
    pub(super) fn of_telling(receivers: usize) -> Self {
        Self(receivers.div_euclid(RECEIVERS_IN_A_ROUND))
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
    pub(super) const MICROS: u64 = 2_000;

    pub(super) fn new(host: &impl Host, most: usize, micros: u64) -> Self {
        Self { most, ends: host.monotonic().plus_micros(micros) }
    }

    /// The usual budget: what other clients and other locks can wait for.
    pub(super) fn of(host: &impl Host, most: usize) -> Self {
        Self::new(host, most, Self::MICROS)
    }

    /// Whether the budget is used up. Ask after the first piece of work: then every turn gets something done.
    pub(super) fn is_used_up(self, host: &impl Host, effort: Effort) -> bool {
        effort.fills(self.most) || host.monotonic() >= self.ends
    }
}
