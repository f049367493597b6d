//! Instants and durations of a lease. Three types, because all three are "some milliseconds".

use std::num::NonZeroU64;

const MICROS_PER_MILLI: u64 = 1_000;

/// A point on the server's clock. Microseconds, because fences are made of them; leases count
/// milliseconds, as the server's own expiry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    micros: u64,
}

impl Moment {
    pub(crate) const fn from_micros(micros: u64) -> Self {
        Self { micros }
    }

    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self { micros: millis.saturating_mul(MICROS_PER_MILLI) }
    }

    pub(crate) const fn plus_millis(self, millis: u64) -> Self {
        Self { micros: self.micros.saturating_add(millis.saturating_mul(MICROS_PER_MILLI)) }
    }

    pub(crate) const fn micros(self) -> u64 {
        self.micros
    }

    pub(crate) const fn millis(self) -> u64 {
        self.micros / MICROS_PER_MILLI
    }
}

/// How long a lease is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ttl {
    millis: NonZeroU64,
}

impl Ttl {
    /// A hundred years. Any moment of the server's clock plus this fits the signed 64 bits in which
    /// the server keeps a deadline.
    pub(crate) const LONGEST: Self = Self::days(100 * 365);

    /// The longest that may be asked for unless an operator allows more.
    pub(crate) const USUAL_LIMIT: Self = Self::days(1);

    /// `None` for zero and above [`Ttl::LONGEST`].
    pub(crate) fn from_millis(millis: u64) -> Option<Self> {
        let ttl = Self { millis: NonZeroU64::new(millis)? };
        (ttl <= Self::LONGEST).then_some(ttl)
    }

    pub(crate) const fn millis(self) -> u64 {
        self.millis.get()
    }

    const fn days(days: u64) -> Self {
        match NonZeroU64::new(days.saturating_mul(24 * 60 * 60 * 1_000)) {
            Some(millis) => Self { millis },
            None => Self { millis: NonZeroU64::MIN },
        }
    }
}

/// When a lease ends, in unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    millis: u64,
}

impl Deadline {
    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    pub(crate) const fn after(now: Moment, ttl: Ttl) -> Self {
        Self { millis: now.millis().saturating_add(ttl.millis()) }
    }

    pub(crate) const fn millis(self) -> u64 {
        self.millis
    }

    /// The server's own rule, so that the module and the server never disagree on whether a key is
    /// still there: the millisecond of the deadline itself still belongs to the lease.
    pub(crate) const fn has_passed(self, now: Moment) -> bool {
        now.millis() > self.millis
    }

    pub(crate) const fn millis_left(self, now: Moment) -> u64 {
        self.millis.saturating_sub(now.millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_neither_zero_nor_beyond_the_longest() {
        assert_eq!(Ttl::from_millis(0), None);
        assert_eq!(Ttl::from_millis(1).map(Ttl::millis), Some(1));
        assert_eq!(Ttl::from_millis(Ttl::LONGEST.millis()), Some(Ttl::LONGEST));
        assert_eq!(Ttl::from_millis(Ttl::LONGEST.millis() + 1), None);
        assert_eq!(Ttl::LONGEST.millis(), 3_153_600_000_000);
    }

    #[test]
    fn the_latest_deadline_fits_what_the_server_can_store() {
        let latest = Moment::from_micros(i64::MAX.unsigned_abs());
        assert!(i64::try_from(Deadline::after(latest, Ttl::LONGEST).millis()).is_ok());
    }

    #[test]
    fn the_millisecond_of_the_deadline_belongs_to_the_lease() {
        let deadline = Deadline::after(Moment::from_millis(1_000), Ttl::from_millis(5).unwrap());
        assert!(!deadline.has_passed(Moment::from_micros(1_005_999)));
        assert!(deadline.has_passed(Moment::from_micros(1_006_000)));
    }

    #[test]
    fn what_is_left_of_a_lease_never_goes_below_zero() {
        let deadline = Deadline::from_millis(1_000);
        assert_eq!(deadline.millis_left(Moment::from_millis(400)), 600);
        assert_eq!(deadline.millis_left(Moment::from_millis(1_001)), 0);
    }
}
