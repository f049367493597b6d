//! Repeatable random numbers (SplitMix64). Every failure shows the seed.

use super::version::announce;
use std::env;
use std::time::UNIX_EPOCH;

/// A generator of random numbers.
pub struct Seed(u64);

impl Seed {
    /// A fresh seed, or the one in `LEASEHOLD_SEED`. Prints the seed, so that a failure can be repeated.
    pub fn announced() -> Self {
        let seed = match env::var("LEASEHOLD_SEED") {
            Ok(chosen) => chosen.parse().expect("LEASEHOLD_SEED is a number"),
            Err(_) => Self::fresh().0,
        };
        announce(&format!("LEASEHOLD_SEED={seed}"));
        Self(seed)
    }

    /// Uses this seed, which the caller prints.
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// A fresh seed, which is not printed.
    pub fn fresh() -> Self {
        let since = UNIX_EPOCH.elapsed().unwrap_or_default();
        Self(u64::from(since.subsec_nanos()) ^ since.as_secs())
    }

    /// A generator for another thread.
    pub fn fork(&mut self) -> Self {
        Self(self.number())
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The seed, if no number has been drawn yet.
    pub fn value(&self) -> u64 {
        self.0
    }

    /// A number below this one.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// One of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
