//! Moments that mean the same in two processes of one machine. `std::time::Instant` means nothing to another process.

use nix::time::{ClockId, clock_gettime};
use std::fmt;
use std::time::Duration;

/// Uses the clock that goes on while the machine sleeps, where there is one: the lease goes on too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(Duration);

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

impl Moment {
    pub(super) fn now() -> Self {
        // This clock always exists.
        Self(clock_gettime(CLOCK).map(Duration::from).unwrap_or_default())
    }

    pub(super) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// The time from now until this moment.
    pub(super) fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Parses the text that `Display` writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(|micros| Self(Duration::from_micros(micros)))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX).fmt(f)
    }
}
