//! Fences, and the clock that gives them out.
//!
//! A fence must grow for ever (L2), also over deletion, restart and failover, and without leaving a
//! counter behind for every lock name ever used. So there is one clock per server, half time and half
//! counter:
//!
//! ```text
//!     fence = max(last + 1, unix microseconds)
//!
//!     wall clock   ──●────●────────●──┐ stepped back        ●───
//!                                     └──────────●─────────┘
//!     fence        ──●────●────────●──●──●──●────●──────────●───   never back
//! ```
//!
//! While the process lives, `last + 1` alone keeps the order. What outlives the process is time: a
//! new process starts at its own clock plus a margin (see [`FenceClock::raise`]), and learns from every
//! fence it meets in a value (see [`FenceClock::observe`]). What remains is a node that lost its data
//! *and* whose clock is behind by more than the margin.

use super::lease::Moment;

/// The number of a grant.
///
/// Always sixteen digits: from September 2001, as microseconds, to 2^53 - 1 in the year 2255, the
/// largest integer JavaScript holds exactly. The fixed width is what tells a value written by
/// Leasehold from an older client's `pid:uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fence(u64);

impl Fence {
    pub(crate) const FIRST: Self = Self(1_000_000_000_000_000);
    pub(crate) const LAST: Self = Self((1 << 53) - 1);
    pub(crate) const DIGITS: usize = 16;

    pub(crate) fn new(number: u64) -> Option<Self> {
        let fence = Self(number);
        (Self::FIRST <= fence && fence <= Self::LAST).then_some(fence)
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

/// Gives out fences, each larger than every one it gave or met before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceClock {
    last: u64,
    refused: u64,
}

impl FenceClock {
    /// How far ahead of the wall clock a fence in a value may be and still be learned: one day.
    ///
    /// Anyone who may SET a key can plant a fence near the end of the range. Were it learned, every
    /// later fence would have to be larger, and a restart without data, which begins again at the
    /// wall clock, would go back. So beyond the bound the value is what it says (held by that
    /// owner, with that fence), but the clock stays where it is. Clocks that are wrong by hours, as by
    /// a time zone, remain inside the bound.
    pub(crate) const HORIZON_MILLIS: u64 = 24 * 60 * 60 * 1_000;

    pub(crate) const fn new() -> Self {
        Self { last: Fence::FIRST.0 - 1, refused: 0 }
    }

    /// The next fence; `None` when the range is used up, as with a wall clock set past the year 2255.
    pub(crate) fn mint(&mut self, now: Moment) -> Option<Fence> {
        let fence = Fence::new(self.last.saturating_add(1).max(now.micros()))?;
        self.last = fence.0;
        Some(fence)
    }

    /// Takes note of a fence met in a value, unless it lies beyond the horizon.
    pub(crate) fn observe(&mut self, fence: Fence, now: Moment) {
        if fence.0 <= self.last {
            return;
        }
        if fence.0 <= now.plus_millis(Self::HORIZON_MILLIS).micros() {
            self.last = fence.0;
        } else {
            self.refused = self.refused.saturating_add(1);
        }
    }

    /// Makes every later fence larger than `floor`. Called wherever grants may have been made that
    /// this process does not know of: its start, the end of loading, becoming primary.
    pub(crate) fn raise(&mut self, floor: Moment) {
        if floor.micros() < Fence::LAST.0 {
            self.last = self.last.max(floor.micros());
        }
    }

    /// Fences met and not learned, since the start.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// By how many microseconds the next fence is ahead of the wall clock.
    pub(crate) const fn ahead_micros(&self, now: Moment) -> u64 {
        if self.last < Fence::FIRST.0 { 0 } else { self.last.saturating_sub(now.micros()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Moment = Moment::from_micros(1_763_000_000_000_000);

    fn clock_at(now: Moment) -> FenceClock {
        let mut clock = FenceClock::new();
        clock.raise(now);
        clock
    }

    #[test]
    fn a_fence_is_the_wall_clock_while_that_is_ahead() {
        assert_eq!(FenceClock::new().mint(NOW).unwrap().number(), NOW.micros());
    }

    #[test]
    fn two_fences_of_one_microsecond_differ_by_one() {
        let mut clock = FenceClock::new();
        let first = clock.mint(NOW).unwrap();
        assert_eq!(clock.mint(NOW).unwrap().number(), first.number() + 1);
    }

    #[test]
    fn a_raised_clock_gives_a_fence_above_the_floor() {
        let mut clock = clock_at(NOW.plus_millis(5_000));
        assert_eq!(clock.mint(NOW).unwrap().number(), NOW.micros() + 5_000_001);
    }

    #[test]
    fn a_fence_met_within_the_horizon_is_learned() {
        let mut clock = clock_at(NOW);
        let edge = Fence::new(NOW.micros() + FenceClock::HORIZON_MILLIS * 1_000).unwrap();
        clock.observe(edge, NOW);
        assert_eq!(clock.mint(NOW).unwrap().number(), edge.number() + 1);
        assert_eq!(clock.refused(), 0);
    }

    #[test]
    fn a_fence_met_beyond_the_horizon_is_refused_and_counted() {
        let mut clock = clock_at(NOW);
        clock.observe(
            Fence::new(NOW.micros() + FenceClock::HORIZON_MILLIS * 1_000 + 1).unwrap(),
            NOW,
        );
        clock.observe(Fence::LAST, NOW);
        assert_eq!(clock.mint(NOW).unwrap().number(), NOW.micros() + 1);
        assert_eq!(clock.refused(), 2);
    }

    #[test]
    fn a_clock_past_the_last_fence_gives_none_and_recovers() {
        let mut clock = clock_at(NOW);
        let year_3000 = Moment::from_micros(32_503_680_000_000_000);
        clock.raise(year_3000);
        assert_eq!(clock.mint(year_3000), None);
        assert_eq!(clock.mint(NOW).unwrap().number(), NOW.micros() + 1);
    }

    #[test]
    fn the_last_fence_is_given_once() {
        let mut clock = FenceClock { last: Fence::LAST.0 - 1, refused: 0 };
        assert_eq!(clock.mint(NOW), Some(Fence::LAST));
        assert_eq!(clock.mint(NOW), None);
    }

    #[test]
    fn a_clock_before_2001_still_gives_sixteen_digits() {
        assert_eq!(FenceClock::new().mint(Moment::from_micros(0)), Some(Fence::FIRST));
    }

    #[test]
    fn ahead_is_zero_for_a_clock_never_used_and_while_the_wall_clock_leads() {
        assert_eq!(FenceClock::new().ahead_micros(Moment::from_micros(0)), 0);
        assert_eq!(clock_at(NOW).ahead_micros(NOW.plus_millis(1)), 0);
        assert_eq!(clock_at(NOW.plus_millis(2)).ahead_micros(NOW), 2_000);
    }

    proptest! {
        #[test]
        fn fences_grow_whatever_the_wall_clock_does(
            steps in prop::collection::vec((0u64..1 << 51, 0u8..4, 0u64..1 << 53), 1..200)
        ) {
            let mut clock = FenceClock::new();
            let mut previous = None;
            for (micros, action, number) in steps {
                let now = Moment::from_micros(micros);
                match action {
                    0 => clock.raise(Moment::from_micros(number)),
                    1 => if let Some(fence) = Fence::new(number) { clock.observe(fence, now) },
                    _ => if let Some(fence) = clock.mint(now) {
                        prop_assert!(previous < Some(fence));
                        previous = Some(fence);
                    }
                }
            }
        }
    }
}
