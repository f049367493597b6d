//! Repeatable chance, with numbers of the types that records have.

use testkit::Seed;

pub(super) struct Chance(Seed);

impl Chance {
    /// Spreads the numbers of tests, because the sequences of neighbouring seeds must not overlap.
    pub(super) fn new(number: u64) -> Self {
        Self(Seed::of(number.wrapping_mul(0x2545_f491_4f6c_dd1d)))
    }

    pub(super) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.0.number() % u64::from(end)).unwrap()
    }

    pub(super) fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }
}
