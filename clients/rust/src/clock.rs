//! The clock that leases are measured by. It goes on while the machine is suspended.
//!
//! The server's clock goes on then, and so do leases. `Instant` stops on Linux and macOS, and so do
//! the timers of the runtime: whoever sleeps here looks at this clock at least once a second.

use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A timer that was set before a suspend is late by as long as the suspend took. No timer here is
/// longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The longest duration that can be added to any moment.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// A moment, as the time since this machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(since_start())
    }

    pub(crate) fn later(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by.min(FOR_EVER)))
    }

    /// Zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The same moment for timers, if the machine is not suspended before it.
    pub(crate) fn as_instant(self) -> Instant {
        let (now, left) = (Instant::now(), self.since(Self::now()));
        now.checked_add(left).unwrap_or(now)
    }
}

#[cfg(test)]
impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        self.later(by)
    }
}

/// Ends at this moment, or up to a second after the machine wakes up if it was suspended meanwhile.
pub(crate) async fn sleep_until(moment: Moment) {
    loop {
        let left = moment.since(Moment::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LONGEST_SLEEP)).await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_start() -> Duration {
    read(rustix::time::ClockId::Boottime)
}

/// Here this clock includes the time that the machine was asleep.
#[cfg(target_vendor = "apple")]
fn since_start() -> Duration {
    read(rustix::time::ClockId::Monotonic)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn read(clock: rustix::time::ClockId) -> Duration {
    // Only moments before the start of the machine could not be converted.
    Duration::try_from(rustix::time::clock_gettime(clock)).unwrap_or_default()
}

/// Since this was called first. On Windows this includes suspends.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn since_start() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_in_the_order_of_time() {
        let first = Moment::now();
        let second = first.later(Duration::from_secs(1));
        assert!(first < second && Moment::now() >= first);
        assert_eq!(second.since(first), Duration::from_secs(1));
        assert_eq!(first.since(second), Duration::ZERO);
        assert!(first.later(Duration::MAX) > second);
    }

    #[tokio::test]
    async fn whoever_sleeps_until_a_moment_wakes_at_it() {
        let until = Moment::now().later(Duration::from_millis(20));
        sleep_until(until).await;
        assert!(Moment::now() >= until);
    }
}
