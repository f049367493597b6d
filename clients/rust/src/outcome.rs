//! What became of a lock. None of these is an error.

use std::fmt;

/// The number of a grant. It is larger than those of all earlier grants of the lock.
///
/// Every fence is below 2^53, so it fits a signed integer and a JavaScript number, too.
///
/// ```
/// use leasehold_client::Fence;
///
/// let (earlier, later) = (Fence::new(17), Fence::new(18));
/// assert!(earlier < later);
/// assert_eq!((u64::from(later), i64::from(later)), (18, 18));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// A fence that came by another way, as from a database or another program.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.0
    }
}

impl From<Fence> for i64 {
    fn from(fence: Fence) -> Self {
        fence.0.cast_signed()
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a release came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a late release means that the work may have been done without the lock"]
#[non_exhaustive]
pub enum Released {
    /// It was held until now, and is free or the next one's.
    InTime,
    /// It was lost before: the lease had run out, or the key was deleted, and somebody else may have it. The ttl is too
    /// short for the work.
    Late,
    /// It was held until now, and the server frees it when the time of
    /// [`hold_at_least`](crate::Request::hold_at_least) is over.
    Later,
}

/// Why a guard holds nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease has run out, or could have, before it was renewed.
    Expired,
    /// The server says that it is not this guard's: it was deleted, or somebody else has it.
    Taken,
    /// The guard was released, dropped or detached.
    Released,
    /// The client was closed, and released the lock: [`Locks::close`](crate::Locks::close).
    Closed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease could have ended",
            Self::Taken => "the server says that it is not held",
            Self::Released => "it was released",
            Self::Closed => "the client was closed",
        })
    }
}
