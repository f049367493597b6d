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

use super::digits::eight_digits;
use super::fence::Fence;
use super::lease::{Deadline, Moment};
use super::owner::{KeptOwner, Owner};
use super::share::Share;

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

    /// Lets time decide: a hold whose deadline has passed does not count, whatever the key still says. The server
    /// removes expired keys itself, but by a clock that it may have read at the start of a transaction or script.
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
    /// What the key holds; or, if the key was evicted, the value that the module is about to put back.
    pub fn or(self, evicted: Option<&'v Seen>) -> Self {
        match (self, evicted) {
            (Self::Nothing, Some(evicted)) => evicted.as_stored(),
            (stored, _) => stored,
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
}

/// A value and its expiry, as a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub value: Box<[u8]>,
    pub deadline: Option<Deadline>,
}

impl Seen {
    pub fn as_stored(&self) -> Stored<'_> {
        Stored::Text { value: &self.value, deadline: self.deadline }
    }
}

/// What a client shows to be taken for the holder: its owner and, to be exact, the fence of its grant. The fence is a
/// number, not a [`Fence`]: clients may show any number, and 0 for a foreign lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof<'r> {
    pub owner: Owner<'r>,
    pub fence: Option<u64>,
}

impl<'r> Proof<'r> {
    /// The proof of one grant.
    pub fn of(owner: &'r KeptOwner, fence_number: u64) -> Self {
        Self { owner: owner.as_owner(), fence: Some(fence_number) }
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
    use crate::lock::Value;
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
        let values = ",owner,12345:uuid,12345,1763000000000000,1763000000000000:,\
                      1763000000000000-x,:x,0763000000000000:x,9007199254740992:x,\
                      4611686018427387904:x,17630000000000001:x,176300000000000a:x,\
                      +763000000000000:x";
        for value in values.split(',').chain([" 763000000000000:x"]) {
            assert_foreign(value.as_bytes());
        }
        assert_foreign(&[b"1763000000000000:".as_slice(), &[b'x'; 256]].concat());
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
    }
}
