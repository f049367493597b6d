//! One hold of several, as a line of a lock's value.
//!
//! ```text
//!     1763712345678901 01763712375678 00005 008:worker-7\n
//!     └──────┬───────┘ └─────┬──────┘ └─┬─┘ └┬┘ └──┬───┘
//!         fence           deadline    share  length, owner
//! ```
//!
//! All numbers have a fixed width, so that a field can be overwritten in its place, and so that two numbers can be
//! compared without being read: digits sort as their numbers do. Every command reads every line of its lock, so most of
//! the time goes here.

use super::digits::{self, decimal, eight_digits};
use super::fence::Fence;
use super::hold::{Grant, Hold};
use super::lease::Deadline;
use super::owner::Owner;
use super::share::Share;

/// Digits, the first in the highest byte.
pub(super) type Digits = u128;

pub(super) const LONGEST: usize = HEAD + Owner::LONGEST + 1;

/// Length of the part before the owner.
const HEAD: usize = 42;

pub(super) const DEADLINE_AT: usize = 17;
const DEADLINE_DIGITS: usize = 14;
const SHARE_AT: usize = 32;
const SHARE_DIGITS: usize = 5;
const LENGTH_AT: usize = 38;

/// The deadline of a hold that was ended.
pub(super) const ENDED: &[u8] = &[b'0'; DEADLINE_DIGITS];

/// The deadline of an ended hold, as a [`Line`] has it.
const ENDED_AT: Digits = 0x3030_3030_3030_3030_3030_3030_3030_3030;

/// From the deadline to the end of the share.
pub(super) const LEASE_LEN: usize = SHARE_AT + SHARE_DIGITS - DEADLINE_AT;

/// The latest deadline that can be written: in the year 5138. A hold without an end has it.
pub(super) const LATEST: u64 = 99_999_999_999_999;

const LAST_FENCE: Digits = Digits::from_be_bytes(*b"9007199254740991");

/// What eight bytes of a line must look like: a `0` stands for any digit.
struct Form {
    template: u64,
    /// Added to the difference between a byte and its template, so that a byte that is not a digit shows in the upper
    /// half.
    six: u64,
    /// The bits that must then be 0.
    mask: u64,
}

impl Form {
    const fn new(template: [u8; 8]) -> Self {
        let template = u64::from_le_bytes(template);
        let (mut six, mut mask, mut at) = (0, 0, 0);
        while at < u64::BITS {
            let is_digit = template >> at & 0xff == 0x30;
            let (six_here, mask_here): (u64, u64) = if is_digit { (6, 0xf0) } else { (0, 0xff) };
            six |= six_here << at;
            mask |= mask_here << at;
            at = at.saturating_add(8);
        }
        Self { template, six, mask }
    }

    /// 0 if the bytes look like that. A sum only carries from a byte that is wrong already.
    const fn differs(&self, bytes: [u8; 8]) -> u64 {
        let apart = u64::from_le_bytes(bytes) ^ self.template;
        (apart | apart.wrapping_add(self.six)) & self.mask
    }
}

/// For a fence and a deadline.
const DIGITS: &Form = &Form::new(*b"00000000");

/// From the space before the share.
const SHARE: &Form = &Form::new(*b" 00000 0");

/// To the end of the head.
const LENGTH: &Form = &Form::new(*b"000 000:");

#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'v> {
    pub(super) fence: Digits,
    /// The first eight and the last eight of the fourteen digits. They sort as all fourteen do.
    pub(super) deadline: Digits,
    share: u64,
    pub(super) owner: &'v [u8],
}

impl<'v> Line<'v> {
    /// The line at the beginning of these bytes, and what is behind it. `None` if it is not written as the module
    /// writes lines.
    #[inline(always)]
    pub(super) fn first_of(bytes: &'v [u8]) -> Option<(Self, &'v [u8])> {
        let (head, tail) = bytes.split_first_chunk::<HEAD>()?;
        let fence = [part::<0, 8>(head), part::<8, 8>(head)];
        let deadline = [part::<DEADLINE_AT, 8>(head), part::<{ DEADLINE_AT + 6 }, 8>(head)];
        let (share, length) = (part::<{ SHARE_AT - 1 }, 8>(head), part::<{ HEAD - 8 }, 8>(head));
        let digits = [fence, deadline].into_iter().flatten();
        let wrong = digits.fold(0, |wrong, digits| wrong | DIGITS.differs(digits))
            | SHARE.differs(share)
            | LENGTH.differs(length);
        if wrong != 0 || part::<{ Fence::DIGITS }, 1>(head) != *b" " {
            return None;
        }
        let (fence, deadline) = (wide(fence), wide(deadline));
        // A number that begins with a zero is below the first fence.
        if part::<0, 1>(head) == *b"0" || fence > LAST_FENCE {
            return None;
        }
        let [_, _, _, _, digits @ .., _] = length;
        let [hundreds, tens, ones] = digits.map(|digit| usize::from(digit & 0x0f));
        let length =
            hundreds.wrapping_mul(100).wrapping_add(tens.wrapping_mul(10)).wrapping_add(ones);
        if length == 0 || length > Owner::LONGEST {
            return None;
        }
        let (owner, behind) = tail.split_at_checked(length)?;
        let (b'\n', behind) = behind.split_first()? else { return None };
        let share = u64::from_be_bytes(share) >> 16 & 0x0f_0f0f_0f0f;
        Some((Self { fence, deadline, share, owner }, behind))
    }

    /// Owners mostly differ in their last byte. Comparing it first spares the call that compares all bytes.
    pub(super) fn is_of(&self, owner: Owner<'_>) -> bool {
        let bytes = owner.as_bytes();
        self.owner.last() == bytes.last() && self.owner == bytes
    }

    /// How many bytes the line takes, its end included.
    pub(super) fn len(&self) -> usize {
        HEAD.saturating_add(self.owner.len()).saturating_add(1)
    }

    /// Whether the lease of its hold ran out before `now`. An ended hold did not run out.
    pub(super) fn has_run_out(&self, now: Digits) -> bool {
        self.deadline < now && self.deadline != ENDED_AT
    }

    /// Sorts like the share; no limit is the largest.
    pub(super) const fn tolerance(&self) -> Tolerance {
        Tolerance(self.share.wrapping_sub(1))
    }

    pub(super) fn hold(&self) -> Hold<'v> {
        Hold {
            owner: self.owner,
            fence: fence_of(self.fence),
            deadline: Some(deadline_of(self.deadline)),
            share: self.tolerance().share(),
        }
    }
}

/// A share, to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tolerance(u64);

impl Tolerance {
    pub(super) const UNLIMITED: Self = Self(u64::MAX);

    pub(super) fn share(self) -> Share {
        let digits = self.0.wrapping_add(1) | 0x3030_3030_3030_3030;
        let share = u32::try_from(number(digits.to_be_bytes())).ok().and_then(Share::new);
        share.unwrap_or(Share::UNLIMITED)
    }
}

#[inline]
fn part<const AT: usize, const LEN: usize>(head: &[u8; HEAD]) -> [u8; LEN] {
    head.get(AT..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; LEN])
}

#[inline]
fn wide([high, low]: [[u8; 8]; 2]) -> Digits {
    let [high, low] = [high, low].map(|half| Digits::from(u64::from_be_bytes(half)));
    high << 64 | low
}

/// The digits of a deadline. All deadlines beyond [`LATEST`] have its digits.
pub(super) fn digits_of(deadline: Deadline) -> Digits {
    let millis = deadline.millis().min(LATEST);
    wide([millis / 1_000_000, millis % 100_000_000].map(|half| digits::word(half).to_be_bytes()))
}

pub(super) fn deadline_of(digits: Digits) -> Deadline {
    let (high, low) = halves(digits);
    // The two parts share two digits.
    let (first, last) = (number(high), number(low).checked_rem(1_000_000).unwrap_or(0));
    Deadline::from_millis(first.wrapping_mul(1_000_000).wrapping_add(last))
}

pub(super) fn fence_of(digits: Digits) -> Option<Fence> {
    let (high, low) = halves(digits);
    Fence::new(number(high).wrapping_mul(100_000_000).wrapping_add(number(low)))
}

fn halves(digits: Digits) -> ([u8; 8], [u8; 8]) {
    let bytes = digits.to_be_bytes();
    let half = |half: Option<&[u8; 8]>| half.copied().unwrap_or_default();
    (half(bytes.first_chunk()), half(bytes.last_chunk()))
}

fn number(digits: [u8; 8]) -> u64 {
    eight_digits(digits).unwrap_or(0)
}

/// What is written at [`DEADLINE_AT`] to give a hold another lease and share.
pub(super) fn lease(deadline: Deadline, share: Share) -> [u8; LEASE_LEN] {
    let mut bytes = [b' '; LEASE_LEN];
    put(&mut bytes, 0, &decimal::<DEADLINE_DIGITS>(deadline.millis().min(LATEST)));
    put(&mut bytes, SHARE_AT - DEADLINE_AT, &decimal::<SHARE_DIGITS>(share.number().into()));
    bytes
}

/// The parts of a line, one behind the other.
pub(super) fn write(grant: &Grant<'_>, mut append: impl FnMut(&[u8])) {
    let Grant { owner, fence, deadline, share } = *grant;
    let owner = owner.as_bytes();
    let length = u64::try_from(owner.len()).unwrap_or(0);
    let mut head = [b' '; HEAD];
    put(&mut head, 0, &decimal::<{ Fence::DIGITS }>(fence.number()));
    put(&mut head, DEADLINE_AT, &lease(deadline, share));
    put(&mut head, LENGTH_AT, &decimal::<3>(length));
    put(&mut head, HEAD - 1, b":");
    append(&head);
    append(owner);
    append(b"\n");
}

#[inline]
fn put<const LEN: usize>(bytes: &mut [u8], at: usize, part: &[u8; LEN]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = *part;
    }
}

/// The value of a grant, without a heap allocation.
pub struct Value {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Value {
    /// Every value that the module writes has at least this length.
    pub const SHORTEST: usize = Fence::DIGITS + 2;

    const EMPTY: Self = Self { bytes: [0; LONGEST], len: 0 };

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
        let deadline = deadline.unwrap_or(Deadline::from_millis(LATEST));
        Self::of_line(&Grant { owner, fence, deadline, share })
    }

    pub(super) fn of_line(grant: &Grant<'_>) -> Self {
        let mut value = Self::EMPTY;
        write(grant, |part| value.append(part));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &[u8] = b"1763712345678901 01763712375678 00005 008:worker-7\n";

    #[test]
    fn a_line_says_who_holds_the_lock_by_which_grant_until_when_and_beside_how_many() {
        let (line, behind) = Line::first_of(LINE).unwrap();
        assert_eq!(behind, b"");
        assert_eq!(line.len(), LINE.len());
        let hold = Hold {
            owner: b"worker-7",
            fence: Fence::new(1_763_712_345_678_901),
            deadline: Some(Deadline::from_millis(1_763_712_375_678)),
            share: Share::new(5).unwrap(),
        };
        assert_eq!(line.hold(), hold);
    }

    /// The slow and obvious way to read a line.
    fn reads(line: &[u8]) -> bool {
        let is_number = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_digit);
        let number = |bytes: &[u8]| str::from_utf8(bytes).unwrap().parse::<u64>().unwrap();
        if line.len() < HEAD || !is_number(&line[38..41]) {
            return false;
        }
        let length = usize::try_from(number(&line[38..41])).unwrap();
        is_number(&line[..16])
            && line[16] == b' '
            && is_number(&line[17..31])
            && line[31] == b' '
            && is_number(&line[32..37])
            && line[37] == b' '
            && line[41] == b':'
            && Fence::new(number(&line[..16])).is_some()
            && (1..=255).contains(&length)
            && line.get(HEAD..).and_then(|rest| rest.get(length)) == Some(&b'\n')
    }

    #[test]
    fn every_byte_of_the_head_counts() {
        for position in 0..LINE.len() {
            for byte in 0..=u8::MAX {
                let mut line = LINE.to_vec();
                line[position] = byte;
                let shown = line.escape_ascii();
                assert_eq!(Line::first_of(&line).is_some(), reads(&line), "{shown}");
            }
        }
        for len in 0..LINE.len() {
            assert!(Line::first_of(&LINE[..len]).is_none(), "torn after {len}");
        }
    }

    #[test]
    fn two_mistakes_do_not_make_up_for_each_other() {
        for one in 0..HEAD {
            for other in (one + 1)..HEAD {
                for bits in [0x01, 0x10, 0x20, 0x40, 0x80] {
                    let mut line = LINE.to_vec();
                    line[one] ^= bits;
                    line[other] ^= bits;
                    let shown = line.escape_ascii();
                    assert_eq!(Line::first_of(&line).is_some(), reads(&line), "{shown}");
                }
            }
        }
    }

    /// The share and the length are compared in parts of eight bytes, which are three bytes apart and overlap.
    #[test]
    fn mistakes_in_the_share_and_the_length_do_not_make_up_for_each_other() {
        for first in 31..34 {
            for bits in [0x40, 0x80] {
                let mut line = LINE.to_vec();
                line[first..HEAD].iter_mut().step_by(3).for_each(|byte| *byte ^= bits);
                assert!(Line::first_of(&line).is_none(), "{}", line.escape_ascii());
            }
        }
    }

    #[test]
    fn an_owner_is_as_long_as_owners_may_be() {
        let line = |length: usize| {
            let head = format!("1763712345678901 01763712375678 00005 {length:03}:");
            [head.as_bytes(), &vec![b'x'; length], b"\n"].concat()
        };
        for length in [0, 1, Owner::LONGEST, Owner::LONGEST + 1, 999] {
            let is_read = (1..=Owner::LONGEST).contains(&length);
            assert_eq!(Line::first_of(&line(length)).is_some(), is_read, "{length}");
        }
        assert_eq!(line(Owner::LONGEST).len(), LONGEST);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            number in Fence::FIRST.number()..=Fence::LAST.number(),
            millis in 0..=LATEST,
            share in 0..=Share::LARGEST,
            owner in prop::collection::vec(any::<u8>(), 1..=Owner::LONGEST),
            rest in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let (fence, deadline) = (Fence::new(number).unwrap(), Deadline::from_millis(millis));
            let share = Share::new(share).unwrap();
            let mut bytes = Vec::new();
            let name = Owner::new(&owner).unwrap();
            let grant = Grant { owner: name, fence, deadline, share };
            write(&grant, |part| bytes.extend_from_slice(part));
            prop_assert!((HEAD + 2..=LONGEST).contains(&bytes.len()));
            bytes.extend_from_slice(&rest);
            let (line, behind) = Line::first_of(&bytes).unwrap();
            prop_assert_eq!(behind, &rest[..]);
            let hold = Hold { owner: &owner, fence: Some(fence), deadline: Some(deadline), share };
            prop_assert_eq!(line.hold(), hold);
        }

        #[test]
        fn digits_sort_as_their_numbers_do(one in 0..=2 * LATEST, other in 0..=2 * LATEST) {
            let digits = |millis: u64| digits_of(Deadline::from_millis(millis));
            prop_assert_eq!(digits(one) < digits(other), one.min(LATEST) < other.min(LATEST));
            prop_assert_eq!(deadline_of(digits(one)).millis(), one.min(LATEST));
        }
    }
}
