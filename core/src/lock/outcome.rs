//! What a request came to. The reply, the write, the counters, the events and the log are all made from it.

use super::decision::{Acquired, Extended, Raised, Released};
use super::edit::Edit;
use super::fence::Fence;
use super::lease::{Deadline, Patience};
use super::owner::Owner;
use super::queue::Seen;
use super::share::Share;

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
        share: Share,
    },
    /// The value stays, the lease ends here.
    Expire(Deadline),
    /// One of several holds has changed, has come or has ended.
    Edit(Edit<'r>),
    /// What the key held before.
    Restore(&'r Seen),
    Delete,
}

impl<'r> Outcome<'r> {
    pub fn write(&self) -> Write<'r> {
        match *self {
            Self::Acquire(Acquired::Granted { write, .. } | Acquired::Again { write, .. })
            | Self::Release(Released::Released { write, .. })
            | Self::Extend(Extended::Until { write, .. })
            | Self::Raise(Raised::To { write, .. }) => write,
            Self::Acquire(Acquired::Busy(_) | Acquired::NotUpgraded(_) | Acquired::NoFenceLeft)
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
            Self::Extend(Extended::Until { fence, .. })
            | Self::Acquire(Acquired::Granted { former: fence, .. }) => fence.map(Fence::number),
            Self::Raise(Raised::To { former, .. }) => Some(former.number()),
            _ => None,
        }
    }
}

impl Write<'_> {
    /// Whether the key has another value then, if it had one.
    pub const fn changes_value(&self) -> bool {
        match self {
            Self::Keep | Self::Expire(_) => false,
            Self::Hold { .. } | Self::Edit(_) | Self::Restore(_) | Self::Delete => true,
        }
    }

    /// Whether others hold the lock, too.
    pub const fn is_beside_others(&self) -> bool {
        matches!(self, Self::Edit(_))
    }
}
