//! What may come of a request to wait, and of a lock for which somebody waits.

use super::{Waiter, WaiterId};
use crate::lock::fence::Fence;
use crate::lock::hold::Stored;
use crate::lock::lease::Deadline;
use crate::lock::name::KeptName;
use crate::lock::outcome::Write;

#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Joined<C> {
    /// At the tail.
    Queued(WaiterId),
    /// In the place of a former request of the same owner, which is to be sent away.
    InPlaceOf(WaiterId, C),
}

/// One who waits no more.
#[derive(Debug)]
pub struct Departed<C> {
    pub name: KeptName,
    pub waiter: Waiter<C>,
}

/// What a look at a lock for which somebody waits comes to.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Look {
    /// It is held, or nobody waits: nothing is to be done.
    Held {
        /// The hold that was last seen is over, and nobody released it.
        lost: Option<Lost>,
    },
    /// There may be something to do.
    ToSettle,
}

/// What was found out about a lock for which somebody waits.
#[derive(Debug)]
#[must_use]
pub struct Settled<C> {
    /// The hold that was last seen is over, and nobody released it.
    pub lost: Option<Lost>,
    pub next: Next<C>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub seen: Seen,
    pub by: LostBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostBy {
    /// The end of its lease.
    RunningOut,
    /// Somebody who deleted the key.
    Deletion,
    /// Somebody who put something else in its place.
    Overwriting,
}

/// What has become of a lock, for the caller to carry out before it asks again.
#[derive(Debug)]
#[must_use]
pub enum Next<C> {
    /// The lock is free, and this one is next: write the grant, and tell.
    Grant { waiter: Waiter<C>, fence: Fence, deadline: Deadline },
    /// The holder itself was waiting, as when it was granted the lock by other means: tell it the fence, and
    /// write the lease if it became longer.
    Again { waiter: Waiter<C>, fence_number: u64, longer: Option<Deadline> },
    /// This one's patience ended before its turn came: tell it nil.
    GaveUp(Waiter<C>),
    /// The lock is free, but there is no fence to give: tell it so.
    NoFenceLeft(Waiter<C>),
    /// The lock is held, or nobody is granted anything for a while; the queue will be dirty again when that may
    /// change.
    Held,
    /// Nobody waits.
    Nobody,
}

impl<C> Next<C> {
    /// What is to be written.
    pub fn write(&self) -> Write<'_> {
        match self {
            Self::Grant { waiter, fence, deadline } => Write::Hold {
                owner: waiter.owner.as_owner(),
                fence: *fence,
                deadline: Some(*deadline),
            },
            Self::Again { longer: Some(deadline), .. } => Write::Expire(*deadline),
            Self::Again { longer: None, .. }
            | Self::GaveUp(_)
            | Self::NoFenceLeft(_)
            | Self::Held
            | Self::Nobody => Write::Keep,
        }
    }
}

/// A value and its expiry, kept.
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
