//! Outcomes, which are not errors.

use std::fmt;

/// The number of a grant, larger than those of all earlier grants of the lock.
///
/// Fences are below 2^53, so they fit a signed integer and a JavaScript number.
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
    /// A fence from elsewhere, such as a database or another program.
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

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a late release means that the work may have been done without the lock"]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until now. It is free, or belongs to the next holder.
    InTime,
    /// The lock was lost before the release, and somebody else may hold it. The ttl is too short for the work, or the key
    /// was deleted.
    Late,
    /// The lock was held until now, and stays held for the time of [`hold_at_least`](crate::Request::hold_at_least).
    Later,
}

/// Why a guard lost its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ended, or may have ended, before a renewal.
    Expired,
    /// The server says that the guard is not the holder: the key was deleted, or somebody else holds the lock.
    Taken,
    /// The guard was released, dropped or detached.
    Released,
    /// The client was closed and released the lock: [`Locks::close`](crate::Locks::close).
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
