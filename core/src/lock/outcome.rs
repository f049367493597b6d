//! The outcome of a request. The reply, the write, the counters, the events and the log are all made from it.

use super::decision::{Acquired, Extended, Raised, Released};
use super::edit::Edit;
use super::fence::Fence;
use super::holders::Holders;
use super::lease::Deadline;
use super::owner::Owner;
use super::queue::Seen;
use super::share::Share;

/// What a request did to one of the locks that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome<'r> {
    Acquire(Acquired<'r>),
    Release(Released<'r>),
    Extend(Extended<'r>),
    Raise(Raised<'r>),
}

/// The write to the key, which is also replicated and appended to the append-only file.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Write<'r> {
    Keep,
    /// This hold, in place of whatever the key holds.
    Hold {
        owner: Owner<'r>,
        fence: Fence,
        deadline: Option<Deadline>,
        share: Share,
    },
    /// The value stays, the lease ends at this deadline.
    Expire(Deadline),
    /// One of several holds is changed, added or ended.
    Edit(Edit<'r>),
    /// What the key held before it was evicted.
    Restore(&'r Seen),
    Delete,
}

/// What a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    Nothing,
    Lease,
    /// The value, if the key held one.
    Value,
}

impl<'r> Outcome<'r> {
    /// The write that makes the key show this outcome. `holders` are the holders that the outcome was decided from.
    pub fn write(&self, holders: &Holders<'_>) -> Write<'r> {
        match *self {
            Self::Acquire(Acquired::Granted { grant, .. }) => holders.granted(&grant),
            Self::Acquire(Acquired::Again { owner, longer, share, .. }) => {
                holders.renewed(owner, longer, share)
            }
            Self::Release(Released::Released { .. }) => holders.ended(),
            Self::Extend(Extended::Until { deadline, .. }) => holders.extended(deadline),
            Self::Raise(Raised::To { owner, fence, .. }) => holders.raised(owner, fence),
            Self::Acquire(Acquired::Refused(_))
            | Self::Release(Released::NotHolder(_))
            | Self::Extend(Extended::NotHolder(_))
            | Self::Raise(Raised::Already { .. } | Raised::NotHolder | Raised::TooFarAhead) => {
                Write::Keep
            }
        }
    }

    /// The fence of the grant that the key held before, if the client is now told that this grant is its own, or was.
    /// From now on it knows of the grant. 0 stands for a foreign lock.
    pub fn confirmed(&self) -> Option<u64> {
        match *self {
            Self::Acquire(Acquired::Again { fence_number, .. })
            | Self::Raise(Raised::Already { fence_number }) => Some(fence_number),
            Self::Extend(Extended::Until { fence, .. })
            | Self::Release(Released::Released { fence })
            | Self::Acquire(Acquired::Granted { former: fence, .. }) => fence.map(Fence::number),
            Self::Raise(Raised::To { former, .. }) => Some(former.number()),
            _ => None,
        }
    }
}

impl Write<'_> {
    pub const fn changes(&self) -> Changed {
        match self {
            Self::Keep => Changed::Nothing,
            Self::Expire(_) => Changed::Lease,
            Self::Hold { .. } | Self::Edit(_) | Self::Restore(_) | Self::Delete => Changed::Value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Company, Grant, Owner, Share};

    #[test]
    fn a_grant_that_was_there_before_is_confirmed_when_its_owner_is_told_of_it() {
        let (owner, share) = (Owner::new(b"a").unwrap(), Share::EXCLUSIVE);
        let (former, fence) = (Fence::FIRST, Fence::LAST);
        let (deadline, number) = (Deadline::from_millis(9), former.number());
        let granted = |former| {
            let grant = Grant { owner, fence, deadline, share };
            Outcome::Acquire(Acquired::Granted { grant, former, company: Company::Nobody })
        };
        let again = Acquired::Again { owner, fence_number: 7, longer: None, share };
        for (outcome, confirmed) in [
            (granted(None), None),
            (granted(Some(former)), Some(number)),
            (Outcome::Acquire(again), Some(7)),
            (Outcome::Acquire(Acquired::Refused(owner)), None),
            (Outcome::Extend(Extended::Until { fence: Some(former), deadline }), Some(number)),
            (Outcome::Extend(Extended::Until { fence: None, deadline }), None),
            (Outcome::Raise(Raised::To { owner, former, fence }), Some(number)),
            (Outcome::Raise(Raised::Already { fence_number: 8 }), Some(8)),
            (Outcome::Raise(Raised::NotHolder), None),
            (Outcome::Release(Released::Released { fence: Some(former) }), Some(number)),
        ] {
            assert_eq!(outcome.confirmed(), confirmed, "{outcome:?}");
        }
    }
}
