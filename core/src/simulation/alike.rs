//! What the servers of both simulations share.

use crate::engine::{Authority, Engine};
use crate::lock::Now;

pub(super) const MICROS_PER_MILLI: u64 = 1_000;

/// How much later than the event a lock may be settled if nobody told the module of the event.
pub(super) const RECHECK_MICROS: u64 = 1_000 * MICROS_PER_MILLI;
pub(super) const PAUSE_MICROS: u64 = 10 * MICROS_PER_MILLI;
pub(super) const REFUSAL_MICROS: u64 = 100 * MICROS_PER_MILLI;

/// How far the clock of an old primary may be ahead of the server that replaces it.
pub(super) const FENCE_MARGIN_MILLIS: u64 = 5_000;

/// How many connections with bound holds are open at a time.
pub(super) const CONNECTIONS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    /// A primary under `CLIENT PAUSE`.
    Paused,
    /// A primary that refuses writes, because too few replicas are in sync.
    Refusing,
    Replica,
}

impl Role {
    pub(super) fn authority(self) -> Authority {
        match self {
            Self::Primary | Self::Refusing => Authority::Yes,
            Self::Paused => Authority::NotNow,
            Self::Replica => Authority::Replica,
        }
    }
}

/// A host sets its timer only if the engine says that what is due next has changed.
pub(super) fn saying_what_is_due<C>(
    engine: &Engine<C>,
    clocks: impl Fn() -> Now,
    happen: impl FnOnce(),
) {
    let _changed_before = engine.take_due_changed();
    let before = engine.next_due(clocks());
    happen();
    let is_sooner =
        engine.next_due(clocks()).is_some_and(|due| before.is_none_or(|before| due < before));
    assert!(!is_sooner || engine.take_due_changed(), "due sooner, and nobody is told");
}
