//! Instants and durations of a lease. Each has its own type, because all of them are "some milliseconds".
//!
//! There are two kinds of instant. The end of a lease, which clients and replicas agree on, is a [`Moment`] of the
//! server's wall clock, which may be set back or forward. What lasts for some time on this server, such as patience or
//! a quarantine, goes by [`Monotonic`], which cannot be set.

use std::num::NonZeroU64;

const MICROS_PER_MILLI: u64 = 1_000;

/// Kept as one more, so that an `Option` of a time takes no more room than the time: each waiter has many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Number(NonZeroU64);

impl Number {
    const fn new(number: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(number))
    }

    const fn get(self) -> u64 {
        self.0.get().wrapping_sub(1)
    }

    const fn plus(self, more: u64) -> Self {
        Self(self.0.saturating_add(more))
    }

    const fn since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }
}

impl Default for Number {
    fn default() -> Self {
        Self::new(0)
    }
}

/// A point on the server's wall clock. In microseconds, because fences are made of them; leases count milliseconds, as
/// the server's own expiry does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    micros: Number,
}

impl Moment {
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros: Number::new(micros) }
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self::from_micros(millis.saturating_mul(MICROS_PER_MILLI))
    }

    pub const fn plus_millis(self, millis: u64) -> Self {
        self.plus_micros(millis.saturating_mul(MICROS_PER_MILLI))
    }

    pub const fn plus_micros(self, micros: u64) -> Self {
        Self { micros: self.micros.plus(micros) }
    }

    /// Whole milliseconds from `earlier` to this; 0 if `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.micros.since(earlier.micros) / MICROS_PER_MILLI
    }

    /// Whole milliseconds to let pass from `now` until this has come; 0 if it has.
    pub const fn whole_millis_after(self, now: Self) -> u64 {
        self.micros.since(now.micros).div_ceil(MICROS_PER_MILLI)
    }

    pub const fn micros(self) -> u64 {
        self.micros.get()
    }

    pub const fn millis(self) -> u64 {
        self.micros() / MICROS_PER_MILLI
    }
}

/// A point on a clock that only moves forward, at the speed of time. Its zero has no meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic {
    micros: Number,
}

impl Monotonic {
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros: Number::new(micros) }
    }

    pub const fn plus_micros(self, micros: u64) -> Self {
        Self { micros: self.micros.plus(micros) }
    }

    pub const fn plus_millis(self, millis: u64) -> Self {
        self.plus_micros(millis.saturating_mul(MICROS_PER_MILLI))
    }

    /// 0 if `earlier` is later.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.micros.since(earlier.micros)
    }

    /// Whole milliseconds; 0 if `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.micros_since(earlier) / MICROS_PER_MILLI
    }
}

/// One instant on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub wall: Moment,
    pub monotonic: Monotonic,
}

impl Now {
    /// The wall time at `then`, unless the wall clock is set meanwhile.
    pub const fn wall_at(self, then: Monotonic) -> Moment {
        self.wall.plus_micros(then.micros_since(self.monotonic))
    }
}

/// The length of a lease that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl {
    millis: NonZeroU64,
}

impl Ttl {
    /// A hundred years. Any time of the server's clock plus this fits the signed 64 bits in which the server keeps a
    /// deadline.
    pub const LONGEST: Self = Self::days(100 * 365);

    /// The longest ttl that a client may ask for unless an operator allows more.
    pub const USUAL_LIMIT: Self = Self::days(1);

    /// `None` for zero and above [`Ttl::LONGEST`].
    pub fn from_millis(millis: u64) -> Option<Self> {
        let ttl = Self { millis: NonZeroU64::new(millis)? };
        (ttl <= Self::LONGEST).then_some(ttl)
    }

    pub const fn millis(self) -> u64 {
        self.millis.get()
    }

    const fn days(days: u64) -> Self {
        match NonZeroU64::new(days.saturating_mul(24 * 60 * 60 * 1_000)) {
            Some(millis) => Self { millis },
            None => Self { millis: NonZeroU64::MIN },
        }
    }
}

/// The limits that an operator sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_ttl: Ttl,
    /// How many may hold a lock at a time, whatever their shares.
    pub max_holders: usize,
}

/// How long a client is ready to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Unlimited,
    Millis(NonZeroU64),
}

impl Patience {
    /// Bounded like a lease, so that adding it to a time cannot overflow.
    pub const LONGEST_MILLIS: u64 = Ttl::LONGEST.millis();

    /// 0 means without limit. `None` above [`Patience::LONGEST_MILLIS`].
    pub fn from_millis(millis: u64) -> Option<Self> {
        (millis <= Self::LONGEST_MILLIS)
            .then(|| NonZeroU64::new(millis).map_or(Self::Unlimited, Self::Millis))
    }

    pub fn ends(self, now: Monotonic) -> Option<Monotonic> {
        match self {
            Self::Unlimited => None,
            Self::Millis(millis) => Some(now.plus_millis(millis.get())),
        }
    }
}

/// When a lease ends, in unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    millis: u64,
}

impl Deadline {
    pub const fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    pub const fn after(now: Moment, ttl: Ttl) -> Self {
        Self::from_millis(now.millis().saturating_add(ttl.millis()))
    }

    pub const fn millis(self) -> u64 {
        self.millis
    }

    /// The server's own rule, so that the module and the server never disagree on whether a key is still there: the
    /// millisecond of the deadline itself still belongs to the lease.
    pub fn has_passed(self, now: Moment) -> bool {
        now.millis() > self.millis
    }

    /// Whether a key that is gone may be gone because its lease is over. When Redis 7.2 and newer look for expired
    /// keys, they remove a key already in the millisecond of its deadline.
    pub const fn may_have_passed(self, now: Moment) -> bool {
        now.millis() >= self.millis
    }

    pub const fn first_moment_after(self) -> Moment {
        Moment::from_millis(self.millis.saturating_add(1))
    }

    pub const fn millis_left(self, now: Moment) -> u64 {
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
    fn a_millisecond_is_a_thousand_moments_and_a_part_of_one_takes_a_whole_one_to_pass() {
        let (first, second) = (Moment::from_millis(7), Moment::from_millis(8));
        assert_eq!(second.whole_millis_after(first), 1);
        assert_eq!(Moment::from_micros(9_001).whole_millis_after(first), 3);
        assert_eq!(first.whole_millis_after(second), 0);
    }
}
