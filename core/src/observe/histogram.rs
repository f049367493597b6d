//! Durations, in a fixed number of buckets.
//!
//! ```text
//!     µs   0 1 2 … 15 │ 16 17 … 31 │ 32 34 … 62 │ 64 68 … 124 │ …
//!          one each     one each     two each     four each     twice as many in each next row
//! ```
//!
//! Every power of two has sixteen buckets, so a bucket is never wider than a sixteenth of its values: a percentile is
//! at most 6.25 % above the truth, and never below it.

/// Durations in microseconds. Never allocates.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: [u64; Self::BUCKETS],
    count: u64,
    max: u64,
}

impl Histogram {
    /// Bits of a duration that choose the bucket within its power of two.
    const FINE_BITS: u32 = 4;
    /// Fifty days. Longer durations are in the last bucket.
    const CAP_BITS: u32 = 42;
    /// A row of sixteen for each power of two from 2^4 on, and one row for smaller values.
    const BUCKETS: usize = 16 * 39;

    pub(crate) const fn new() -> Self {
        Self { buckets: [0; Self::BUCKETS], count: 0, max: 0 }
    }

    pub(crate) fn record(&mut self, us: u64) {
        if let Some(bucket) = self.buckets.get_mut(Self::bucket_of(us)) {
            *bucket = bucket.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.max = self.max.max(us);
    }

    #[cfg(test)]
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// The duration that `per_mille` of a thousand did not exceed. 0 if nothing was recorded.
    pub(crate) fn percentile(&self, per_mille: u64) -> u64 {
        let rank = self.count.saturating_mul(per_mille).div_ceil(1_000).max(1);
        let mut so_far = 0_u64;
        let bucket = self.buckets.iter().position(|&bucket| {
            so_far = so_far.saturating_add(bucket);
            so_far >= rank
        });
        bucket.map_or(0, |bucket| Self::last_of(bucket).min(self.max))
    }

    fn bucket_of(us: u64) -> usize {
        let us = us.min((1 << Self::CAP_BITS) - 1);
        // The row below 2^4 and the row from 2^4 to 2^5 both have buckets of one microsecond.
        let row = us.checked_ilog2().unwrap_or(0).saturating_sub(Self::FINE_BITS);
        let bucket = (us >> row).saturating_add(u64::from(row) << Self::FINE_BITS);
        usize::try_from(bucket).unwrap_or(usize::MAX)
    }

    /// The longest duration in this bucket.
    fn last_of(bucket: usize) -> u64 {
        if bucket.saturating_add(1) >= Self::BUCKETS {
            return u64::MAX;
        }
        let next = u64::try_from(bucket).unwrap_or(u64::MAX).saturating_add(1);
        let row = (next >> Self::FINE_BITS).saturating_sub(1);
        let first_of_next = next.saturating_sub(row << Self::FINE_BITS) << row;
        first_of_next.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_a_record_everything_is_0() {
        let empty = Histogram::new();
        assert_eq!((empty.count(), empty.max(), empty.percentile(990)), (0, 0, 0));
    }

    #[test]
    fn the_buckets_follow_each_other_without_a_gap() {
        let mut next = 0;
        for bucket in 0..Histogram::BUCKETS - 1 {
            let last = Histogram::last_of(bucket);
            assert_eq!(Histogram::bucket_of(next), bucket, "from {next}");
            assert_eq!(Histogram::bucket_of(last), bucket, "to {last}");
            assert!((last - next) * 16 <= next, "{next} to {last} is too wide");
            next = last + 1;
        }
        for us in [next, 1 << 42, u64::MAX] {
            assert_eq!(Histogram::bucket_of(us), Histogram::BUCKETS - 1, "{us}");
        }
    }

    #[test]
    fn what_took_longer_than_the_last_bucket_reaches_is_still_the_longest() {
        let mut histogram = Histogram::new();
        histogram.record(1 << 60);
        assert_eq!(histogram.max(), 1 << 60);
        assert_eq!(histogram.percentile(500), 1 << 60);
    }

    proptest! {
        #[test]
        fn a_percentile_is_at_most_a_sixteenth_above_the_truth(
            mut durations in prop::collection::vec(
                prop_oneof![0..100_u64, 0..10_000_000_u64, 0..1_u64 << 42],
                1..300,
            ),
            per_mille in 1..=1_000_usize,
        ) {
            let mut histogram = Histogram::new();
            durations.iter().for_each(|&us| histogram.record(us));
            durations.sort_unstable();
            let exact = durations[(durations.len() * per_mille).div_ceil(1_000) - 1];
            let told = histogram.percentile(per_mille.try_into().unwrap());
            prop_assert!(exact <= told && told <= exact + exact / 16, "{told} for {exact}");
            prop_assert!(told <= histogram.max());
            prop_assert_eq!(histogram.max(), *durations.last().unwrap());
            prop_assert_eq!(usize::try_from(histogram.count()), Ok(durations.len()));
        }
    }
}
