//! What may come of a request to wait, and of a lock for which somebody waits.

use super::{Waiter, WaiterId};
use crate::lock::fence::Fence;
use crate::lock::hold::{Hold, Stored};
use crate::lock::holders::Holders;
use crate::lock::lease::Deadline;
use crate::lock::name::KeptName;
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
pub struct Settled<'v> {
    /// The holds that were last seen and are over, and that nobody released.
    pub lost: Vec<Lost>,
    /// `None` if the lock is held, nobody waits, or nobody is granted anything for a while. The queue is marked again when that
    /// may change.
    pub turn: Option<Turn<'v>>,
}

/// Whose turn it is. It still waits.
#[derive(Debug)]
pub struct Turn<'v> {
    pub waiter: WaiterId,
    /// As this one sees them.
    pub holders: Holders<'v>,
    /// Whether it waits for other locks, too, and is first in all queues. It is to be left there unless it can have all.
    pub is_for_several: bool,
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
