//! A held lock, and how it is written into a string key.
//!
//! ```text
//!     1763712345678901:worker-7         key's own expiry
//!     └──────┬───────┘ └───┬──┘         └──────┬───────┘
//!       fence, always    owner             deadline
//!         16 digits     1–255 bytes
//! ```
//!
//! If there are several holds, each is a line: see [`line`](mod@super::line). Any other string is a *foreign* lock: an
//! older client's `SET key value NX PX ttl`. Its holder is the owner equal to the whole value, and it has no fence. So
//! old and new clients exclude each other.

use super::digits::{decimal, eight_digits};
use super::fence::{Fence, FenceClock};
use super::holders::{Holders, Holds, newest_fence};
use super::lease::{Deadline, Moment};
use super::line;
use super::owner::Owner;
use super::share::Share;

/// No older client's lock has a longer value.
const LONGEST_FOREIGN: usize = 8_192;

/// One act of giving a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'r> {
    pub owner: Owner<'r>,
    pub fence: Fence,
    pub deadline: Deadline,
    pub share: Share,
}

/// Who holds a lock, by which grant, until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold<'v> {
    /// The holder. Bytes and not an [`Owner`]: a foreign value may be empty or longer than any owner.
    pub owner: &'v [u8],
    /// `None` for a foreign lock.
    pub fence: Option<Fence>,
    /// `None` for a key without expiry: held until deleted.
    pub deadline: Option<Deadline>,
    pub share: Share,
}

impl<'v> Hold<'v> {
    /// The hold in a value that is not made of lines. Every such string is a hold.
    pub(super) fn read(value: &'v [u8], deadline: Option<Deadline>) -> Self {
        let share = Share::EXCLUSIVE;
        match split(value) {
            Some((fence, owner)) => {
                Self { owner: owner.as_bytes(), fence: Some(fence), deadline, share }
            }
            None => Self { owner: value, fence: None, deadline, share },
        }
    }

    /// Lets time decide: a hold whose deadline has passed does not count, whatever the key still says.
    ///
    /// The server removes expired keys itself, but by a clock that it may have read at the start of a transaction or
    /// script. The lease ends by the clock of this moment.
    pub fn in_force(self, now: Moment) -> Option<Self> {
        match self.deadline {
            Some(deadline) if deadline.has_passed(now) => None,
            _ => Some(self),
        }
    }

    /// The fence as clients see it: 0 if there is none.
    pub fn fence_number(&self) -> u64 {
        self.fence.map_or(0, Fence::number)
    }

    pub fn is_held_by(&self, owner: Owner<'_>) -> bool {
        self.owner == owner.as_bytes()
    }

    pub fn matches(&self, proof: &Proof<'_>) -> bool {
        let by_fence = proof.fence.is_none_or(|fence| fence == self.fence_number());
        self.is_held_by(proof.owner) && by_fence
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug)]
pub enum Stored<'v> {
    Nothing,
    Text { value: &'v [u8], deadline: Option<Deadline> },
    OtherType,
}

/// The key holds something that is not a string, and so not a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotALock;

impl<'v> Stored<'v> {
    /// The holders of the lock, as this owner sees them. The fence clock learns the fences of the value, so that no
    /// look at a value misses them.
    #[inline]
    pub fn holders(
        self,
        asker: Owner<'_>,
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Holders<'v>, NotALock> {
        match self {
            Self::Nothing => Ok(Holders::NOBODY),
            Self::OtherType => Err(NotALock),
            Self::Text { value, deadline } => {
                Ok(Holders::read(value, deadline, asker, now, fences))
            }
        }
    }

    /// The holds in force, oldest first. The fence clock learns their fences, too.
    pub fn holds(self, now: Moment, fences: &mut FenceClock) -> Result<Holds<'v>, NotALock> {
        match self {
            Self::Nothing => Ok(Holds::NONE),
            Self::OtherType => Err(NotALock),
            Self::Text { value, deadline } => {
                let (holds, newest) = Holds::read(value, deadline, now);
                learn(value, newest, now, fences);
                Ok(holds)
            }
        }
    }

    /// Whether nobody holds the lock, judged by the key's expiry alone.
    pub fn is_free(self, now: Moment) -> bool {
        match self {
            Self::Nothing => true,
            Self::OtherType => false,
            Self::Text { deadline, .. } => deadline.is_some_and(|end| end.has_passed(now)),
        }
    }

    /// Whether the lock may be granted, judged without reading the holds: nobody holds it, or its holders may tolerate
    /// others.
    pub fn may_be_granted(self, now: Moment) -> bool {
        match self {
            Self::Nothing => true,
            Self::OtherType => false,
            Self::Text { value, deadline } => {
                Holders::may_be_several(value)
                    || deadline.is_some_and(|deadline| deadline.has_passed(now))
            }
        }
    }

    /// The text as it is, to be kept and compared. `None` for a long text that is not a list of holds: no client locks
    /// with such a text, and keeping it would copy other programs' data each time that they change it.
    pub fn seen(self) -> Option<(&'v [u8], Option<Deadline>)> {
        match self {
            Self::Text { value, deadline } => {
                let is_kept = value.len() <= LONGEST_FOREIGN || Holders::may_be_several(value);
                is_kept.then_some((value, deadline))
            }
            Self::Nothing | Self::OtherType => None,
        }
    }
}

/// What a client shows to be taken for the holder: its owner and, to be exact, the fence of its grant. The fence is a
/// number, not a [`Fence`]: clients may show any number, and 0 for a foreign lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof<'r> {
    pub owner: Owner<'r>,
    pub fence: Option<u64>,
}

/// Teaches the fence clock the fences of a value.
pub fn learn_from(value: &[u8], now: Moment, fences: &mut FenceClock) {
    learn(value, newest_fence(value), now, fences);
}

/// If the newest fence is not credible, the others are learned one by one: it must not hide them.
pub(super) fn learn(value: &[u8], newest: Option<Fence>, now: Moment, fences: &mut FenceClock) {
    let Some(newest) = newest else { return };
    fences.observe(newest, now);
    if !FenceClock::is_credible(newest, now) {
        let others = Holds::all(value).filter_map(|hold| hold.fence);
        others.filter(|fence| *fence != newest).for_each(|fence| fences.observe(fence, now));
    }
}

/// The value of a grant, without a heap allocation.
pub struct Value {
    bytes: [u8; Self::LONGEST],
    len: usize,
}

impl Value {
    const LONGEST: usize = line::LONGEST;

    /// Every value that the module writes has at least this length.
    pub const SHORTEST: usize = Fence::DIGITS + 2;

    const EMPTY: Self = Self { bytes: [0; Self::LONGEST], len: 0 };

    /// The value of an exclusive hold.
    pub fn new(fence: Fence, owner: Owner<'_>) -> Self {
        let mut value = Self::EMPTY;
        value.append(&decimal::<{ Fence::DIGITS }>(fence.number()));
        value.append(b":");
        value.append(owner.as_bytes());
        value
    }

    /// The value of a hold that has no other beside it yet. A key without an expiry gives a hold without an end.
    pub fn of_hold(
        fence: Fence,
        owner: Owner<'_>,
        deadline: Option<Deadline>,
        share: Share,
    ) -> Self {
        if share == Share::EXCLUSIVE {
            return Self::new(fence, owner);
        }
        let deadline = deadline.unwrap_or(Deadline::from_millis(line::LATEST));
        Self::of_line(&Grant { owner, fence, deadline, share })
    }

    pub(super) fn of_line(grant: &Grant<'_>) -> Self {
        let mut value = Self::EMPTY;
        line::write(grant, |part| value.append(part));
        value
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn append(&mut self, part: &[u8]) {
        let end = self.len.saturating_add(part.len());
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(part);
            self.len = end;
        }
    }
}

fn split(value: &[u8]) -> Option<(Fence, Owner<'_>)> {
    let (digits, rest) = value.split_first_chunk::<{ Fence::DIGITS }>()?;
    let (b':', owner) = rest.split_first()? else { return None };
    let (first, last) =
        (eight_digits(*digits.first_chunk()?)?, eight_digits(*digits.last_chunk()?)?);
    // A leading zero puts the number below the first fence, so each fence has only one spelling.
    Some((Fence::new(first.wrapping_mul(100_000_000).wrapping_add(last))?, Owner::new(owner)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(value: &[u8]) -> Hold<'_> {
        Hold::read(value, None)
    }

    #[track_caller]
    fn assert_foreign(value: &[u8]) {
        let share = Share::EXCLUSIVE;
        assert_eq!(read(value), Hold { owner: value, fence: None, deadline: None, share });
    }

    #[test]
    fn a_grant_is_written_as_fence_colon_owner() {
        let value = Value::new(Fence::FIRST, Owner::new(b"a:b").unwrap());
        assert_eq!(value.as_bytes(), b"1000000000000000:a:b");
        let value = Value::new(Fence::LAST, Owner::new(b"x").unwrap());
        assert_eq!(value.as_bytes(), b"9007199254740991:x");
        assert_eq!(value.as_bytes().len(), Value::SHORTEST);
        let value = Value::new(Fence::LAST, Owner::new(&[0; Owner::LONGEST]).unwrap());
        assert_eq!(value.as_bytes().len(), 272);
    }

    #[test]
    fn values_of_another_form_are_foreign() {
        for value in [
            &b""[..],
            b"owner",
            b"12345:uuid",
            b"12345",
            b"1763000000000000",
            b"1763000000000000:",
            b"1763000000000000-x",
            b":x",
            b"0763000000000000:x",
            b"9007199254740992:x",
            b"4611686018427387904:x",
            b"17630000000000001:x",
            b"176300000000000a:x",
            b" 763000000000000:x",
            b"+763000000000000:x",
        ] {
            assert_foreign(value);
        }
        assert_foreign(&[b"1763000000000000:".as_slice(), &[b'x'; 256]].concat());
    }

    #[test]
    fn the_fence_of_a_value_is_learned() {
        let now = Moment::from_millis(1_763_000_000_000);
        let mut fences = FenceClock::new();
        learn_from(b"1763000000000007:x", now, &mut fences);
        learn_from(b"1763000000000005:y", now, &mut fences);
        learn_from(b"foreign", now, &mut fences);
        assert_eq!(fences.highest().map(Fence::number), Some(1_763_000_000_000_007));
    }

    #[test]
    fn a_fence_is_digits_and_nothing_else() {
        for position in 0..Fence::DIGITS {
            for byte in 0..=u8::MAX {
                let mut value = *b"1234567890123456:x";
                value[position] = byte;
                let number: Option<u64> =
                    value[..Fence::DIGITS].iter().try_fold(0, |number: u64, digit| {
                        digit.is_ascii_digit().then(|| 10 * number + u64::from(digit - b'0'))
                    });
                let expected = number.and_then(Fence::new);
                assert_eq!(read(&value).fence, expected, "{}", value.escape_ascii());
            }
        }
    }

    #[test]
    fn a_foreign_lock_shows_fence_0_and_is_held_by_its_whole_value() {
        let hold = read(b"12345:uuid");
        assert_eq!(hold.fence_number(), 0);
        let owner = Owner::new(b"12345:uuid").unwrap();
        assert!(hold.matches(&Proof { owner, fence: None }));
        assert!(hold.matches(&Proof { owner, fence: Some(0) }));
        assert!(!hold.matches(&Proof { owner, fence: Some(12345) }));
        assert!(!hold.is_held_by(Owner::new(b"uuid").unwrap()));
    }

    #[test]
    fn a_proof_needs_the_owner_and_the_fence_if_it_shows_one() {
        let hold = read(b"1763000000000000:a");
        let proof = |owner, fence| Proof { owner: Owner::new(owner).unwrap(), fence };
        assert!(hold.matches(&proof(b"a", None)));
        assert!(hold.matches(&proof(b"a", Some(1_763_000_000_000_000))));
        assert!(!hold.matches(&proof(b"a", Some(1_763_000_000_000_001))));
        assert!(!hold.matches(&proof(b"a", Some(0))));
        assert!(!hold.matches(&proof(b"b", None)));
        assert!(!hold.matches(&proof(b"1763000000000000:a", None)));
    }

    #[test]
    fn a_lease_that_ran_out_is_no_hold() {
        let now = Moment::from_millis(1_763_000_000_000);
        let hold = Hold::read(b"a", Some(Deadline::from_millis(now.millis())));
        assert_eq!(hold.in_force(now), Some(hold));
        assert_eq!(hold.in_force(now.plus_millis(1)), None);
        let forever = read(b"a");
        assert_eq!(forever.in_force(now.plus_millis(u64::MAX)), Some(forever));
    }

    #[test]
    fn a_lease_that_ran_out_is_a_free_lock_but_its_fence_is_learned() {
        let now = Moment::from_millis(1_763_000_000_000);
        let deadline = Some(Deadline::from_millis(now.millis() - 1));
        let stored = Stored::Text { value: b"1763000000000000:a", deadline };
        let mut fences = FenceClock::new();
        assert!(stored.may_be_granted(now) && Stored::Nothing.may_be_granted(now));
        assert!(!stored.may_be_granted(Moment::from_millis(now.millis() - 1)));
        assert!(stored.holders(Owner::new(b"a").unwrap(), now, &mut fences).unwrap().is_free());
        let stepped_back = Moment::from_millis(now.millis() - 3_600_000);
        assert_eq!(fences.mint(stepped_back).fence().unwrap().number(), 1_763_000_000_000_001);
    }

    #[test]
    fn another_type_of_key_is_no_lock() {
        let now = Moment::from_millis(0);
        assert!(!Stored::OtherType.may_be_granted(now));
        let holds = Stored::OtherType.holds(now, &mut FenceClock::new());
        assert_eq!(holds.map(Iterator::count), Err(NotALock));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            number in Fence::FIRST.number()..=Fence::LAST.number(),
            owner in prop::collection::vec(any::<u8>(), 1..=Owner::LONGEST),
        ) {
            let fence = Fence::new(number).unwrap();
            let value = Value::new(fence, Owner::new(&owner).unwrap());
            let hold = read(value.as_bytes());
            prop_assert_eq!(hold.fence, Some(fence));
            prop_assert_eq!(hold.owner, &owner[..]);
        }

        #[test]
        fn every_string_reads_as_a_hold_that_prints_the_same_string(
            value in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                "[0-9]{14,18}[:;]?[a-z:]{0,4}".prop_map(String::into_bytes),
            ]
        ) {
            let hold = read(&value);
            match hold.fence {
                Some(fence) => {
                    let again = Value::new(fence, Owner::new(hold.owner).unwrap());
                    prop_assert_eq!(again.as_bytes(), &value[..]);
                }
                None => prop_assert_eq!(hold.owner, &value[..]),
            }
        }
    }
}
