//! The outcome of a request. The reply, the write, the counters, the events and the log are all made from it.

use super::edit::Write;
use super::fence::Fence;
use super::hold::{Grant, Proof};
use super::holders::{Holders, OtherHolders};
use super::lease::Deadline;
use super::owner::Owner;
use super::share::Share;

/// What a request did to one of the locks that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome<'r> {
    /// The owner holds the lock from now on. `former` is the fence of the owner's hold that this grant replaces.
    Granted { grant: Grant<'r>, former: Option<Fence>, others: OtherHolders },
    /// The owner had the lock already: a retry, so the grant stays the same. `longer` is the new end of the lease if
    /// the retry moved it, `share` is the share that was asked for.
    Again { owner: Owner<'r>, fence_number: u64, longer: Option<Deadline>, share: Share },
    /// The owner does not hold the lock, and cannot be granted it now.
    Refused(Owner<'r>),
    /// This grant is over. A foreign lock has no fence.
    Released { fence: Option<Fence> },
    /// The owner that gives the lock back does not hold it.
    NotReleased(NotHolder<'r>),
    /// The lease of this grant now ends at `deadline`, which may be earlier than before.
    Extended { fence: Option<Fence>, deadline: Deadline },
    /// The owner does not hold the lock, or another one of the request.
    NotExtended(NotHolder<'r>),
    /// The request names one lock.
    Raise(Raised<'r>),
}

/// The proof matches no hold in force; nothing changes (L3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHolder<'r> {
    pub proof: Proof<'r>,
    /// Whether somebody else holds the lock.
    pub is_held: bool,
}

impl<'r> NotHolder<'r> {
    pub(super) const fn new(holders: &Holders<'_>, proof: &Proof<'r>) -> Self {
        Self { proof: *proof, is_held: !holders.is_free() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Raised<'r> {
    /// The hold has this fence from now on.
    To { owner: Owner<'r>, former: Fence, fence: Fence },
    /// The hold's fence is no smaller already. A foreign lock has no fence, and gets none.
    Already { fence_number: u64 },
    /// The owner does not hold the lock; nothing changes (L3).
    NotHolder,
    /// No server's clock is wrong by this much, so nothing changes.
    TooFarAhead,
}

impl<'r> Outcome<'r> {
    /// The write that makes the key show this outcome. `holders` are the holders that the outcome was decided from.
    pub fn write(&self, holders: &Holders<'_>) -> Write<'r> {
        match self {
            Self::Granted { grant, .. } => holders.granted(grant),
            Self::Again { owner, longer, share, .. } => holders.renewed(*owner, *longer, *share),
            Self::Released { .. } => holders.ended(),
            Self::Extended { deadline, .. } => holders.extended(*deadline),
            Self::Raise(Raised::To { owner, fence, .. }) => holders.raised(*owner, *fence),
            Self::Refused(_)
            | Self::NotReleased(_)
            | Self::NotExtended(_)
            | Self::Raise(Raised::Already { .. } | Raised::NotHolder | Raised::TooFarAhead) => {
                Write::Keep
            }
        }
    }

    /// The fence of the grant that the key held before, if the client is now told that this grant is its own, or was.
    /// From now on it knows of the grant. 0 stands for a foreign lock.
    pub fn confirmed(&self) -> Option<u64> {
        match *self {
            Self::Again { fence_number, .. } | Self::Raise(Raised::Already { fence_number }) => {
                Some(fence_number)
            }
            Self::Extended { fence, .. }
            | Self::Released { fence }
            | Self::Granted { former: fence, .. } => fence.map(Fence::number),
            Self::Raise(Raised::To { former, .. }) => Some(former.number()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_that_was_there_before_is_confirmed_when_its_owner_is_told_of_it() {
        let (owner, share) = (Owner::new(b"a").unwrap(), Share::EXCLUSIVE);
        let (former, fence) = (Fence::FIRST, Fence::LAST);
        let (deadline, number) = (Deadline::from_millis(9), former.number());
        let granted = |former| {
            let grant = Grant { owner, fence, deadline, share };
            Outcome::Granted { grant, former, others: OtherHolders::None }
        };
        for (outcome, confirmed) in [
            (granted(None), None),
            (granted(Some(former)), Some(number)),
            (Outcome::Again { owner, fence_number: 7, longer: None, share }, Some(7)),
            (Outcome::Refused(owner), None),
            (Outcome::Extended { fence: Some(former), deadline }, Some(number)),
            (Outcome::Extended { fence: None, deadline }, None),
            (Outcome::Raise(Raised::To { owner, former, fence }), Some(number)),
            (Outcome::Raise(Raised::Already { fence_number: 8 }), Some(8)),
            (Outcome::Raise(Raised::NotHolder), None),
            (Outcome::Released { fence: Some(former) }, Some(number)),
        ] {
            assert_eq!(outcome.confirmed(), confirmed, "{outcome:?}");
        }
    }
}
