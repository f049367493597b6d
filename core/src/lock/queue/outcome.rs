//! What may come of a request to wait, and of a lock for which somebody waits.

use super::{Waiter, WaiterId};
use crate::lock::decision::Acquired;
use crate::lock::fence::Fence;
use crate::lock::hold::{Grant, Hold, Stored};
use crate::lock::holders::Holders;
use crate::lock::lease::Deadline;
use crate::lock::name::KeptName;
use crate::lock::outcome::Outcome;
use crate::lock::wait::Told;

#[derive(Debug)]
#[must_use]
pub enum Joined<C> {
    /// At the tail.
    Queued(WaiterId),
    /// In the places of a former request of the same owner, which is not told any more.
    InPlaceOf(WaiterId, Told<C>),
    /// At the tail, because these former requests of the same owner, which wait no more, were for other locks, too.
    Anew(WaiterId, Vec<Departed<C>>),
}

/// Whether an owner that asks for a ticket had one, which is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewed {
    Yes,
    /// And it ends sooner than it would have.
    Sooner,
    /// It has no place, or is to be asked anew whether it is admitted.
    No,
}

/// One who waits no more.
#[derive(Debug)]
pub struct Departed<C> {
    /// The lock that it waited for. Of several, the first.
    pub name: KeptName,
    pub waiter: Waiter<C>,
}

/// What a look at a lock for which somebody waits comes to.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Look {
    /// It is held, or nobody waits: nothing is to be done.
    Held {
        /// The holds that were last seen and are over, and that nobody released.
        lost: Vec<Lost>,
    },
    /// There may be something to do.
    ToSettle,
}

/// What was found out about a lock for which somebody waits.
#[derive(Debug)]
#[must_use]
pub struct Settled<'v, C> {
    /// The holds that were last seen and are over, and that nobody released.
    pub lost: Vec<Lost>,
    /// As the one sees them whose turn it is.
    pub holders: Holders<'v>,
    pub next: Next<C>,
}

/// A hold that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub owner: Box<[u8]>,
    pub fence: Option<Fence>,
    pub deadline: Option<Deadline>,
    pub by: LostBy,
}

impl Lost {
    pub(super) fn new(hold: &Hold<'_>, by: LostBy) -> Self {
        let Hold { owner, fence, deadline, .. } = *hold;
        Self { owner: owner.into(), fence, deadline, by }
    }
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
    /// The lock can be had, and this one is next: write the grant, and tell. `former` is the fence of a hold that it had.
    Grant { waiter: Waiter<C>, fence: Fence, deadline: Deadline, former: Option<Fence> },
    /// The holder itself was waiting, as when it was granted the lock by other means: tell it the fence, and
    /// write the lease if it became longer.
    Again { waiter: Waiter<C>, fence_number: u64, longer: Option<Deadline> },
    /// This one's patience ended before its turn came: tell it nil.
    GaveUp(Waiter<C>),
    /// The lock is free, but there is no fence to give: tell it so.
    NoFenceLeft(Waiter<C>),
    /// This lock can be had, and the one who is first waits for others, too: see whether all can be had. It still waits.
    Several(WaiterId),
    /// The lock is held, or nobody is granted anything for a while; the queue will be dirty again when that may
    /// change.
    Held,
    /// Nobody waits.
    Nobody,
}

impl<C> Next<C> {
    /// Who has the lock from now on.
    pub fn waiter(&self) -> Option<&Waiter<C>> {
        match self {
            Self::Grant { waiter, .. } | Self::Again { waiter, .. } => Some(waiter),
            Self::GaveUp(_)
            | Self::NoFenceLeft(_)
            | Self::Several(_)
            | Self::Held
            | Self::Nobody => None,
        }
    }

    /// What it comes to, if these hold the lock; `None` if the lock stays as it is.
    pub fn outcome(&self, holders: &Holders<'_>) -> Option<Outcome<'_>> {
        let acquired = match *self {
            Self::Grant { ref waiter, fence, deadline, former } => {
                let (owner, share) = (waiter.owner.as_owner(), waiter.share);
                let grant = Grant { owner, fence, deadline, share };
                Acquired::Granted { grant, former, company: holders.company() }
            }
            Self::Again { ref waiter, fence_number, longer } => {
                let (owner, share) = (waiter.owner.as_owner(), waiter.share);
                Acquired::Again { owner, fence_number, longer, share }
            }
            Self::GaveUp(_)
            | Self::NoFenceLeft(_)
            | Self::Several(_)
            | Self::Held
            | Self::Nobody => return None,
        };
        Some(Outcome::Acquire(acquired))
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
