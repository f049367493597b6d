//! The results of a request to wait, and of a look at a lock that somebody waits for.

use super::{Waiter, WaiterId};
use crate::lock::fence::Fence;
use crate::lock::hold::Hold;
use crate::lock::holders::Holders;
use crate::lock::lease::Deadline;
use crate::lock::name::KeptName;

#[derive(Debug)]
#[must_use]
pub enum Joined<C> {
    /// At the tail.
    Queued(WaiterId),
    /// In the places of a former request of the same owner, which waits no more.
    InPlaceOf(WaiterId, Waiter<C>),
    /// At the tail. The owner's former requests named other locks, too; they wait no more.
    Anew(WaiterId, Vec<Departed<C>>),
}

/// Whether an owner that asks for a ticket had one already, which it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewed {
    Yes,
    /// It had a ticket, which now ends sooner than before.
    Sooner,
    /// The owner has no place, or must be checked for admission again.
    No,
}

#[derive(Debug)]
pub struct Departed<C> {
    /// The lock that it waited for; of several, the first.
    pub name: KeptName,
    pub waiter: Waiter<C>,
}

#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Look {
    /// The lock is held, or nobody waits: there is nothing to do.
    Held {
        /// The holds that were last seen and are over, without a release.
        lost: Vec<Lost>,
    },
    /// There may be something to do.
    ToSettle,
}

#[derive(Debug)]
#[must_use]
pub struct Settled<'v> {
    /// The holds that were last seen and are over, without a release.
    pub lost: Vec<Lost>,
    /// `None` if the lock is held, nobody waits, or nothing is granted for a while. The queue is marked again when this
    /// may change.
    pub turn: Option<Turn<'v>>,
}

/// The waiter whose turn it is. It is still queued.
#[derive(Debug)]
pub struct Turn<'v> {
    pub waiter: WaiterId,
    /// The holders as this waiter sees them.
    pub holders: Holders<'v>,
    /// Whether the waiter waits for other locks, too, and is first in all queues. Leave it queued unless it can have
    /// all the locks.
    pub is_for_several: bool,
}

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
    RunningOut,
    Deletion,
    Overwriting,
}
