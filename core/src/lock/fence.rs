//! Fences, and the clock that gives them out.
//!
//! A fence must grow for ever (L2), also over deletion, restart and failover, and without a counter left behind for
//! every lock name ever used. So there is one clock per server, half time and half counter:
//!
//! ```text
//!     fence = max(last + 1, unix microseconds)
//!
//!     wall clock   ──●────●────────●──┐ stepped back        ●───
//!                                     └──────────●─────────┘
//!     fence        ──●────●────────●──●──●──●────●──────────●───   never back
//! ```
//!
//! While the process lives, `last + 1` alone keeps the order. Time outlives the process: a new process starts at its
//! own clock plus a margin (see [`FenceClock::raise`]), and learns from every fence that it meets in a value (see
//! [`FenceClock::observe`]). A replica that takes over also knows the fences of its primary, up to the last few. The
//! last few may have been ahead of all clocks, for the same reason, so the replica starts above what it knows, too (see
//! [`FenceClock::raise_above_known`]). One gap remains: a fence that this server never met, and that is ahead of its
//! clock by more than the margin.
//!
//! Without a fence there is no grant. So this is also where a server is kept from granting anything for a while: see
//! [`FenceClock::quarantine`].

use super::lease::{Moment, Monotonic};
use std::num::NonZeroU64;

/// The number of a grant. Always sixteen digits: from September 2001, as microseconds, to 2^53 - 1 in the year 2255,
/// the largest integer that JavaScript holds exactly. The fixed width tells a value that Leasehold wrote from an older
/// client's `pid:uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(NonZeroU64);

impl Fence {
    pub const FIRST: Self = Self::of(1_000_000_000_000_000);
    pub const LAST: Self = Self::of((1 << 53) - 1);
    pub const DIGITS: usize = 16;

    pub fn new(number: u64) -> Option<Self> {
        let fence = Self::of(number);
        (Self::FIRST <= fence && fence <= Self::LAST).then_some(fence)
    }

    /// No fence is 0, so an `Option` of a fence takes no more room than a fence.
    const fn of(number: u64) -> Self {
        match NonZeroU64::new(number) {
            Some(number) => Self(number),
            None => Self(NonZeroU64::MIN),
        }
    }

    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

/// Gives out fences, each larger than every fence that it gave or met before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceClock {
    /// The highest fence that was given out here, or met.
    known: u64,
    /// Other servers may have given out fences up to here.
    floor: u64,
    refused: u64,
    quarantine: Option<Quarantine>,
}

/// A quarantine is a duration, so it goes by the clock that cannot be set: the holders that it waits for have their own
/// clocks, and setting this server's clock ends none of their leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Quarantine {
    end: Monotonic,
    /// What was left when [`FenceClock::pass`] was last called.
    left_micros: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Minted {
    Fence(Fence),
    /// No fence before this moment.
    NotBefore(Moment),
    /// No fence is left below 2^53, as with a wall clock set past the year 2255.
    NoneLeft,
}

impl FenceClock {
    /// How far ahead of the wall clock a fence in a value may be and still be learned: one day.
    ///
    /// Any client that may SET a key can plant a fence near the end of the range. If the clock learned that fence,
    /// every later fence would have to be larger, and a restart without data, which begins again at the wall clock,
    /// would go back. So the value counts (it is held by that owner, with that fence), but the clock does not learn a
    /// fence beyond the bound. Clocks that are wrong by hours, as by a time zone, remain inside the bound.
    pub const HORIZON_MILLIS: u64 = 24 * 60 * 60 * 1_000;

    /// While a fence clock is ahead of time, it advances by a microsecond with each grant: this far in ten thousand
    /// grants.
    const UNHEARD_MILLIS: u64 = 10;

    pub const fn new() -> Self {
        Self {
            known: Fence::FIRST.number().saturating_sub(1),
            floor: 0,
            refused: 0,
            quarantine: None,
        }
    }

    pub fn mint(&mut self, now: Moment) -> Minted {
        if let Some(end) = self.quarantine_ends(now) {
            return Minted::NotBefore(end);
        }
        let next = self.last().saturating_add(1).max(now.micros());
        match Fence::new(next) {
            Some(fence) => {
                self.known = fence.number();
                Minted::Fence(fence)
            }
            None => Minted::NoneLeft,
        }
    }

    /// Gives no fence for `millis`: a server that may not know of grants still in force waits until they have run out.
    /// 0 ends a running quarantine.
    pub fn quarantine(&mut self, now: Monotonic, millis: u64) {
        let end = now.plus_millis(millis);
        let left_micros = end.micros_since(now);
        self.quarantine = (millis > 0).then_some(Quarantine { end, left_micros });
    }

    pub const fn is_quarantined(&self) -> bool {
        self.quarantine.is_some()
    }

    /// Lets time pass for the quarantine. Call it before every use during a quarantine; the wall clock cannot tell when
    /// the quarantine is over.
    pub fn pass(&mut self, now: Monotonic) {
        self.quarantine = self
            .quarantine
            .map(|Quarantine { end, .. }| Quarantine { end, left_micros: end.micros_since(now) })
            .filter(|quarantine| quarantine.left_micros > 0);
    }

    pub fn quarantine_left_micros(&self) -> u64 {
        self.quarantine.map_or(0, |quarantine| quarantine.left_micros)
    }

    /// When the quarantine will be over, if there is one and nobody sets the clock meanwhile.
    pub fn quarantine_ends(&self, now: Moment) -> Option<Moment> {
        let quarantine = self.quarantine?;
        Some(now.plus_micros(quarantine.left_micros))
    }

    /// Learns a fence met in a value, unless it lies beyond the horizon.
    pub fn observe(&mut self, fence: Fence, now: Moment) {
        if fence.number() <= self.known {
            return;
        }
        if Self::is_credible(fence, now) || fence.number() <= self.floor {
            self.known = fence.number();
        } else {
            self.refused = self.refused.saturating_add(1);
        }
    }

    /// Whether some server may have given out this fence: clocks that are wrong by hours do occur.
    pub fn is_credible(fence: Fence, now: Moment) -> bool {
        fence.number() <= now.plus_millis(Self::HORIZON_MILLIS).micros()
    }

    /// Makes every later fence larger than `floor`. Called wherever grants may have been made that this process does
    /// not know of: at its start, at the end of loading, at the arrival of a slot.
    pub fn raise(&mut self, floor: Moment) {
        if floor.micros() < Fence::LAST.number() {
            self.floor = self.floor.max(floor.micros());
        }
    }

    /// Raises the floor of a server that takes over from another server and knows most of its fences. The last of them
    /// may never have been replicated here: they are above those that were, and usually not above the time plus the
    /// margin. If a known fence is beyond that, this server's clock is behind the other's, and nobody knows how many
    /// fences were given out since.
    ///
    /// Repeating the call makes no difference, as long as no fence is given out or met in between. It raises no higher
    /// than needed: the floor of a server that is started anew, without its data, must soon be above it.
    pub fn raise_above_known(&mut self, now: Moment, margin_millis: u64) {
        let (known, usual) = (Moment::from_micros(self.known), now.plus_millis(margin_millis));
        self.raise(if known > usual {
            known.plus_millis(margin_millis)
        } else {
            usual.max(known.plus_millis(Self::UNHEARD_MILLIS))
        });
    }

    /// Fences met and not learned, since the start.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// By how many microseconds the next fence is ahead of the wall clock.
    pub const fn ahead_micros(&self, now: Moment) -> u64 {
        if self.last() < Fence::FIRST.number() {
            0
        } else {
            self.last().saturating_sub(now.micros())
        }
    }

    /// The highest fence that may have been given out, here or elsewhere, if any.
    pub fn highest(&self) -> Option<Fence> {
        Fence::new(self.last())
    }

    /// Whether a fence was given out here, or met.
    pub const fn is_in_use(&self) -> bool {
        self.known >= Fence::FIRST.number()
    }

    /// Every later fence is larger than this.
    const fn last(&self) -> u64 {
        if self.known > self.floor { self.known } else { self.floor }
    }
}

#[cfg(test)]
impl Minted {
    pub fn fence(self) -> Option<Fence> {
        if let Self::Fence(fence) = self { Some(fence) } else { None }
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

    /// By how many microseconds the next fence is ahead of `NOW`.
    fn next(clock: &mut FenceClock) -> u64 {
        clock.mint(NOW).fence().unwrap().number().saturating_sub(NOW.micros())
    }

    #[test]
    fn a_clock_is_raised_above_what_it_may_have_missed_and_no_higher_the_second_time() {
        for (known, raised) in
            [(None, 5_000_001), (Some(5_000_000), 5_010_001), (Some(5_000_001), 10_000_002)]
        {
            let mut clock = FenceClock::new();
            if let Some(fence) = known.and_then(|known| Fence::new(NOW.micros() + known)) {
                clock.observe(fence, NOW);
            }
            clock.raise_above_known(NOW, 5_000);
            clock.raise_above_known(NOW, 5_000);
            assert_eq!(next(&mut clock), raised);
        }
    }

    #[test]
    fn a_fence_met_within_the_horizon_is_learned_and_one_beyond_it_refused_and_counted() {
        let horizon = FenceClock::HORIZON_MILLIS * 1_000;
        for (met, then, refused) in [(horizon, horizon + 1, 0), (horizon + 1, 1, 1)] {
            let mut clock = clock_at(NOW);
            clock.observe(Fence::new(NOW.micros() + met).unwrap(), NOW);
            assert_eq!((next(&mut clock), clock.refused()), (then, refused));
        }
    }

    #[test]
    fn a_clock_past_the_last_fence_gives_none_and_recovers() {
        let mut clock = clock_at(NOW);
        let year_3000 = Moment::from_micros(32_503_680_000_000_000);
        clock.raise(year_3000);
        assert_eq!(clock.mint(year_3000), Minted::NoneLeft);
        assert_eq!(next(&mut clock), 1);
        let mut clock = clock_at(Moment::from_micros(Fence::LAST.number()));
        assert_eq!(next(&mut clock), 0, "there is no fence above this floor");
        clock.known = Fence::LAST.number() - 1;
        assert_eq!(clock.mint(NOW), Minted::Fence(Fence::LAST));
        assert_eq!(clock.mint(NOW), Minted::NoneLeft);
    }

    #[test]
    fn a_fence_is_in_use_once_it_was_given_or_met_and_may_be_once_it_was_reserved() {
        let (mut giving, mut meeting, floor) =
            (FenceClock::new(), FenceClock::new(), clock_at(NOW));
        assert_eq!((giving.highest(), giving.is_in_use()), (None, false));
        assert_eq!((floor.highest().unwrap().number(), floor.is_in_use()), (NOW.micros(), false));
        let fence = giving.mint(NOW).fence();
        assert_eq!((giving.highest(), giving.is_in_use()), (fence, true));
        meeting.observe(Fence::LAST, NOW);
        assert!(!meeting.is_in_use(), "refused");
        meeting.observe(fence.unwrap(), NOW);
        assert_eq!((meeting.highest(), meeting.is_in_use()), (fence, true));
    }

    const START: Monotonic = Monotonic::from_micros(7);

    #[test]
    fn a_quarantine_lasts_as_long_whatever_the_wall_clock_is_set_to() {
        const HOUR_MILLIS: u64 = 3_600_000;
        let mut clock = FenceClock::new();
        clock.quarantine(START, 50);
        clock.pass(START.plus_millis(10));
        let hour_before = Moment::from_millis(NOW.millis() - HOUR_MILLIS);
        for now in [hour_before, NOW, NOW.plus_millis(HOUR_MILLIS)] {
            assert_eq!(clock.mint(now), Minted::NotBefore(now.plus_millis(40)));
        }
        assert_eq!(clock.quarantine_left_micros(), 40_000);
        clock.quarantine(START, 0);
        assert!(!clock.is_quarantined(), "0 ends it");
    }

    #[test]
    fn ahead_is_zero_for_a_clock_never_used_and_while_the_wall_clock_leads() {
        let (mut clock, then) = (FenceClock::new(), Moment::from_micros(7));
        assert_eq!(clock.ahead_micros(then), 0);
        assert_eq!(clock.mint(then).fence(), Some(Fence::FIRST));
        assert_eq!(clock.ahead_micros(then), Fence::FIRST.number() - 7);
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
                    _ => if let Minted::Fence(fence) = clock.mint(now) {
                        prop_assert!(previous < Some(fence));
                        previous = Some(fence);
                    }
                }
            }
        }
    }
}
