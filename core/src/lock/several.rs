//! Several locks in one request: all or none.
//!
//! Each key is looked at twice. The first look says how it [stands](Standing) with the lock. All of these together
//! determine what is to be done with each of them ([`Joint`]), and the second look carries that out. So one key is open at a
//! time, and nothing is written before it is known that everything can be.

use super::decision::{self, Acquired, Extended, NotHolder, Wanted};
use super::fence::{Fence, FenceClock, Minted};
use super::hold::{Grant, Proof};
use super::holders::Holders;
use super::lease::{Deadline, Moment, Ttl};
use super::outcome::Outcome;
use super::share::Share;

/// How it stands with one of several locks, for the owner who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    own: Option<Own>,
    is_held: bool,
    /// Whether the owner may hold it with the share that it asks for, among those present.
    is_admitted: bool,
    /// How many others wait for it.
    others: usize,
}

/// The hold of the owner who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    /// A foreign hold has none.
    fence: Option<Fence>,
    share: Share,
}

impl Standing {
    pub fn new(holders: &Holders<'_>, others: usize, share: Share, max_holders: usize) -> Self {
        let own = holders.own().map(|own| Own { fence: own.fence, share: own.share });
        let is_admitted = holders.admit(share, max_holders);
        Self { own, is_held: !holders.is_free(), is_admitted, others }
    }

    /// Whether the owner can be given this lock, whatever becomes of the others.
    pub fn may_be_had(&self) -> bool {
        self.is_admitted && (self.own.is_some() || self.others == 0)
    }

    fn is_of(&self, proof: &Proof<'_>) -> bool {
        self.own.is_some_and(|own| {
            let number = own.fence.map_or(0, Fence::number);
            proof.fence.is_none_or(|shown| shown == number)
        })
    }
}

/// What a request comes to, for all the locks that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Joint<'r> {
    /// The owner holds all of them from now on, by this grant.
    Granted(Grant<'r>),
    /// It holds all of them by one grant already.
    Again { wanted: Wanted<'r>, fence: Fence },
    /// They are not to be had, because of this one.
    Refused { at: usize, acquired: Acquired<'r> },
    /// Those that the owner holds are released.
    Released(Proof<'r>),
    /// The owner holds all of them.
    Extended { proof: Proof<'r>, ttl: Ttl },
    /// It does not hold this one, so none is extended.
    NotExtended { at: usize, not_holder: NotHolder<'r> },
}

/// All of these locks for an owner, if it is admitted to each or holds them already.
///
/// One that holds some of them is given all by a new grant, or keeps what it has and never waits for the others: two such
/// owners would wait for each other.
pub fn acquire<'r>(
    standings: &[Standing],
    wanted: &Wanted<'r>,
    now: Moment,
    fences: &mut FenceClock,
) -> Joint<'r> {
    let Wanted { owner, ttl, share } = *wanted;
    if let Some(fence) = common_fence(standings, share) {
        return Joint::Again { wanted: *wanted, fence };
    }
    let held = standings.iter().position(|standing| standing.own.is_some());
    let refused = |at| match held {
        Some(_) => Joint::Refused { at, acquired: Acquired::NotUpgraded(owner) },
        None => Joint::Refused { at, acquired: Acquired::Busy(owner) },
    };
    let is_foreign = |standing: &Standing| standing.own.is_some_and(|own| own.fence.is_none());
    let not_to_be_had = |standing: &Standing| !standing.may_be_had() || is_foreign(standing);
    if let Some(at) = standings.iter().position(not_to_be_had) {
        return refused(at);
    }
    match fences.mint(now) {
        Minted::Fence(fence) => {
            Joint::Granted(Grant { owner, fence, deadline: Deadline::after(now, ttl), share })
        }
        Minted::NotBefore(_) => refused(0),
        Minted::NoneLeft => Joint::Refused { at: 0, acquired: Acquired::NoFenceLeft },
    }
}

/// The fence by which the owner holds all the locks, if it holds them by one and no tighter than it asks.
fn common_fence(standings: &[Standing], share: Share) -> Option<Fence> {
    let fence_of = |standing: &Standing| {
        let own = standing.own.filter(|own| own.share <= share)?;
        own.fence
    };
    let fence = fence_of(standings.first()?)?;
    standings.iter().all(|standing| fence_of(standing) == Some(fence)).then_some(fence)
}

/// New ends for the leases of all of these locks, if the owner holds every one of them.
pub fn extend<'r>(standings: &[Standing], proof: &Proof<'r>, ttl: Ttl) -> Joint<'r> {
    let missing = standings.iter().enumerate().find(|(_, standing)| !standing.is_of(proof));
    match missing {
        None => Joint::Extended { proof: *proof, ttl },
        Some((at, standing)) => {
            let not_holder = NotHolder { proof: *proof, is_held: standing.is_held };
            Joint::NotExtended { at, not_holder }
        }
    }
}

impl<'r> Joint<'r> {
    /// What it comes to for the lock at this place, which these hold. `None` if it is left as it is, and there is nothing to
    /// tell of it.
    pub fn outcome(&self, at: usize, holders: &Holders<'_>, now: Moment) -> Option<Outcome<'r>> {
        Some(match *self {
            Self::Granted(grant) => {
                let former = holders.own().and_then(|own| own.fence);
                let company = holders.company();
                Outcome::Acquire(Acquired::Granted { grant, former, company })
            }
            Self::Again { wanted, .. } => {
                let deadline = Deadline::after(now, wanted.ttl);
                let own = holders.own()?;
                Outcome::Acquire(decision::again(own, &wanted, deadline))
            }
            Self::Released(proof) => Outcome::Release(decision::release(holders, &proof)),
            Self::Extended { proof, ttl } => {
                Outcome::Extend(decision::extend(holders, &proof, ttl, now))
            }
            Self::Refused { at: refused, acquired } if refused == at => Outcome::Acquire(acquired),
            Self::NotExtended { at: missing, not_holder } if missing == at => {
                Outcome::Extend(Extended::NotHolder(not_holder))
            }
            Self::Refused { .. } | Self::NotExtended { .. } => return None,
        })
    }
}

#[cfg(test)]
mod tests;
