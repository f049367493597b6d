//! What a request came to. The reply, the write, the counters, the events and the log are all made from it.

use super::decision::{Acquired, Extended, Grant, Raised, Released};
use super::fence::Fence;
use super::lease::{Deadline, Patience};
use super::owner::Owner;
use super::queue::Seen;

/// What a command that may change a lock came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome<'r> {
    Acquire(Acquired<'r>),
    /// The lock is not to be had now, and the client is ready to wait this long.
    Wait(Patience),
    Release(Released<'r>),
    Extend(Extended<'r>),
    Raise(Raised<'r>),
}

/// What is to be written into the key, and told to replicas and the append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Write<'r> {
    /// Nothing is written.
    Keep,
    /// This hold, in place of whatever the key holds.
    Hold {
        owner: Owner<'r>,
        fence: Fence,
        deadline: Option<Deadline>,
    },
    /// The value stays, the lease ends here.
    Expire(Deadline),
    /// What the key held before.
    Restore(&'r Seen),
    Delete,
}

impl<'r> Outcome<'r> {
    pub fn write(&self) -> Write<'r> {
        match *self {
            Self::Acquire(Acquired::Granted(grant)) => Write::grant(&grant),
            Self::Acquire(Acquired::Again { longer: Some(deadline), .. })
            | Self::Extend(Extended::Until { deadline, .. }) => Write::Expire(deadline),
            Self::Release(Released::Released { .. }) => Write::Delete,
            Self::Raise(Raised::To { owner, fence, deadline, .. }) => {
                Write::Hold { owner, fence, deadline }
            }
            Self::Acquire(Acquired::Again { .. } | Acquired::Busy(_) | Acquired::NoFenceLeft)
            | Self::Wait(_)
            | Self::Release(Released::NotHolder(_))
            | Self::Extend(Extended::NotHolder(_))
            | Self::Raise(Raised::Already { .. } | Raised::NotHolder | Raised::TooFarAhead) => {
                Write::Keep
            }
        }
    }

    /// The fence of the grant that the key held before, if the client is told that this grant is its own. It counts on the
    /// grant from now on. 0 stands for a foreign lock.
    pub fn confirmed(&self) -> Option<u64> {
        match *self {
            Self::Acquire(Acquired::Again { fence_number, .. })
            | Self::Raise(Raised::Already { fence_number }) => Some(fence_number),
            Self::Extend(Extended::Until { fence, .. }) => fence.map(Fence::number),
            Self::Raise(Raised::To { former, .. }) => Some(former.number()),
            _ => None,
        }
    }

    /// Whether the hold that the key held is over by the holder's own doing, or has become another one.
    pub fn ends_a_hold(&self) -> bool {
        matches!(self, Self::Release(Released::Released { .. }) | Self::Raise(Raised::To { .. }))
    }
}

impl<'r> Write<'r> {
    pub fn grant(grant: &Grant<'r>) -> Self {
        let Grant { owner, fence, deadline } = *grant;
        Self::Hold { owner, fence, deadline: Some(deadline) }
    }
}
