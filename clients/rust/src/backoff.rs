//! Pauses between tries: exponential, with full jitter. Pure: chance is an argument.

use std::time::Duration;

/// After a failed connection, or while the server is not ready.
pub(crate) const RETRY: Backoff =
    Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(1_000) };

/// Between polls for a lock, where no server keeps a queue.
pub(crate) const POLL: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(250) };

/// While the server's queue is full, or all waiting connections are in use.
pub(crate) const ROOM: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(2) };

#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    fn ceiling(self, tries: u32) -> Duration {
        let factor = 1_u32.checked_shl(tries.min(20)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// `chance` is from 0 to 1.
    pub(crate) fn rest(self, tries: u32, chance: f64) -> Duration {
        self.ceiling(tries).mul_f64(chance.clamp(0.0, 1.0))
    }

    pub(crate) fn random_rest(self, tries: u32) -> Duration {
        self.rest(tries, fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(100) };

    #[test]
    fn the_longest_rest_doubles_up_to_the_limit() {
        let rests = [0, 1, 2, 3, 4, 40].map(|tries| BACKOFF.rest(tries, 1.0).as_millis());
        assert_eq!(rests, [10, 20, 40, 80, 100, 100]);
    }

    #[test]
    fn chance_takes_all_of_it_or_nothing() {
        assert_eq!(BACKOFF.rest(3, 0.0), Duration::ZERO);
        assert_eq!(BACKOFF.rest(3, 0.5), Duration::from_millis(40));
        assert_eq!(BACKOFF.rest(3, 7.0), Duration::from_millis(80));
    }
}
