//! The clock that measures leases. It also runs while the machine is suspended.
//!
//! Leases on the server continue during a suspend. `Instant` stops on Linux and macOS, and so do the timers of the runtime.

use futures_util::FutureExt;
use std::time::Duration;

/// Cap for durations, so that adding one to a moment cannot overflow.
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
}

#[cfg(test)]
impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        self.later(by)
    }
}

/// None if the limit passed. Not an async function, because that would reserve room for the future twice.
pub(crate) fn within<T>(
    limit: Duration,
    future: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    tokio::time::timeout(limit.min(FOR_EVER), future).map(Result::ok)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_start() -> Duration {
    read(rustix::time::ClockId::Boottime)
}

/// On Apple systems the monotonic clock includes sleep.
#[cfg(target_vendor = "apple")]
fn since_start() -> Duration {
    read(rustix::time::ClockId::Monotonic)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn read(clock: rustix::time::ClockId) -> Duration {
    // Only moments before boot fail to convert.
    Duration::try_from(rustix::time::clock_gettime(clock)).unwrap_or_default()
}

/// Counts from the first call. On Windows, `Instant` includes suspends.
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
}
