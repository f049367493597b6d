//! How long a lease is valid for certain. Pure: moments are arguments.
//!
//! ```text
//!   asked              granted, by the server's clock                    its lease ends
//!     ├────────────────────┼────────────────────── ttl ─────────────────────┤
//!     ├────────────────────── ttl ──────────────────────┤
//!                                            valid until ┤ drift ┤
//! ```
//!
//! The lease began no earlier than its request was sent. The drift is how far the two clocks that measure it may differ.

use crate::clock::Moment;
use std::time::Duration;

/// 1 %, and a little more because servers count whole milliseconds.
const DRIFT_PART: u32 = 100;
const DRIFT_LEAST: Duration = Duration::from_millis(2);

pub(crate) fn drift(ttl: Duration) -> Duration {
    let part = ttl.checked_div(DRIFT_PART).unwrap_or_default();
    part.saturating_add(DRIFT_LEAST)
}

pub(crate) fn valid_until(asked: Moment, ttl: Duration) -> Moment {
    asked.later(ttl.saturating_sub(drift(ttl)))
}

pub(crate) fn renew_at(asked: Moment, ttl: Duration) -> Moment {
    asked.later(ttl.checked_div(3).unwrap_or_default())
}

/// The time for each answer, less for a short lease.
pub(crate) fn patience_for_answer(response_timeout: Duration, ttl: Duration) -> Duration {
    let part = |divisor| ttl.checked_div(divisor).unwrap_or_default();
    response_timeout.min(part(5).max(part(2).min(Duration::from_millis(100))))
}

/// Whether enough of the lease is left to skip another request.
pub(crate) fn is_fresh(asked: Moment, ttl: Duration, now: Moment) -> bool {
    now < asked.later(ttl.checked_div(4).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_is_counted_from_the_asking_less_the_drift() {
        let asked = Moment::now();
        assert_eq!(drift(SECOND), Duration::from_millis(12));
        assert_eq!(valid_until(asked, SECOND), asked + Duration::from_millis(988));
    }

    #[test]
    fn a_lease_shorter_than_the_drift_is_over_at_once() {
        let asked = Moment::now();
        assert_eq!(valid_until(asked, Duration::from_millis(1)), asked);
    }

    #[test]
    fn a_lease_is_renewed_after_a_third() {
        let asked = Moment::now();
        assert_eq!(renew_at(asked, 3 * SECOND), asked + SECOND);
    }

    #[test]
    fn a_grant_is_fresh_for_a_quarter_of_its_ttl() {
        let asked = Moment::now();
        assert!(is_fresh(asked, 4 * SECOND, asked + Duration::from_millis(999)));
        assert!(!is_fresh(asked, 4 * SECOND, asked + SECOND));
    }
}
