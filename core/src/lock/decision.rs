//! What to do with the locks that a request names, one or several. Either all of them change, or none does.
//!
//! The first look at each lock gives the owner's [standing](Standing) with it. A [`Decision`] is made from the
//! standings with all locks, and says what happens to each lock ([`Decision::outcome`]). So only one key is open at a
//! time, and nothing is written before it is known that all can be. A request for a single lock runs the same
//! functions.
//!
//! `holders` are those **in force**, as the owner who asks sees them. Time has decided already (see [`Holders`]), so
//! nothing here checks whether a lease has run out.

use super::fence::{Fence, FenceClock, Minted};
use super::hold::{Grant, Hold, Proof};
use super::holders::Holders;
use super::lease::{Deadline, Moment, Ttl};
use super::outcome::{NotHolder, Outcome, Raised};
use super::owner::Owner;
use super::share::Share;
use super::wait::Wait;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'r> {
    pub owner: Owner<'r>,
    pub ttl: Ttl,
    pub share: Share,
}

/// The standing of the owner who asks with one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    own: Option<Own>,
    is_held: bool,
    /// Whether the owner may hold the lock with the share that it asks for, among its present holders.
    is_admitted: bool,
    /// How many others wait for the lock. A waiter whose turn it is does not count itself.
    others: usize,
}

/// The hold of the owner who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    /// `None` for a foreign hold.
    fence: Option<Fence>,
    share: Share,
}

impl Own {
    fn fence_number(self) -> u64 {
        self.fence.map_or(0, Fence::number)
    }
}

impl Standing {
    #[inline(always)]
    pub fn new(holders: &Holders<'_>, others: usize, share: Share, max_holders: usize) -> Self {
        let own = holders.own().map(|own| Own { fence: own.fence, share: own.share });
        let is_admitted = holders.admit(share, max_holders);
        Self { own, is_held: !holders.is_free(), is_admitted, others }
    }

    /// Whether the owner can be given this lock, judged by this lock alone. If others wait for it, their turn comes
    /// first (L4). Only an owner that holds the lock already may change its share before their turn.
    pub fn may_be_had(&self) -> bool {
        self.is_admitted && (self.own.is_some() || self.others == 0)
    }

    pub const fn is_own(&self) -> bool {
        self.own.is_some()
    }

    fn is_of(&self, proof: &Proof<'_>) -> bool {
        self.own.is_some_and(|own| proof.fence.is_none_or(|shown| shown == own.fence_number()))
    }
}

/// The decision about a request, for all the locks that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision<'r> {
    /// The owner holds all the locks from now on, by this grant.
    Granted(Grant<'r>),
    /// The owner holds all the locks by one grant already: a retry. Fence 0 stands for a foreign lock.
    Again { wanted: Wanted<'r>, fence_number: u64 },
    /// The locks cannot be granted now: others hold the lock at `at` or wait for it already, or nothing is granted for
    /// a while.
    Busy { at: usize, owner: Owner<'r> },
    /// The owner holds some of the locks, and cannot have the lock at `at` as it asks. It keeps what it has and does
    /// not wait: two such owners would wait for each other.
    NotUpgraded { at: usize, owner: Owner<'r> },
    /// The locks could be granted, but no fence is left below 2^53.
    NoFenceLeft,
    /// The locks cannot be granted now, and the client is ready to wait.
    Wait(Wait<'r>),
    /// The locks that the owner holds are released.
    Released(Proof<'r>),
    /// The owner holds all the locks, and their leases get a new end.
    Extended { proof: Proof<'r>, ttl: Ttl },
    /// The owner does not hold the lock at `at`, so no lease is extended.
    NotExtended { at: usize, not_holder: NotHolder<'r> },
    /// A fence is raised; the request names one lock.
    Raised(Raised<'r>),
}

/// All of these locks, if the owner is admitted to each or holds it already. An owner that holds some of them gets all
/// by a new grant, or keeps what it has; it never waits for the others.
#[inline]
pub fn acquire<'r>(
    standings: &[Standing],
    wanted: &Wanted<'r>,
    now: Moment,
    fences: &mut FenceClock,
) -> Decision<'r> {
    let Wanted { owner, ttl, share } = *wanted;
    if let Some(fence_number) = common_fence(standings, share) {
        return Decision::Again { wanted: *wanted, fence_number };
    }
    let refused = |at| {
        if standings.iter().any(Standing::is_own) {
            Decision::NotUpgraded { at, owner }
        } else {
            Decision::Busy { at, owner }
        }
    };
    // Nobody can be let in beside a foreign hold, or replace it.
    let not_to_be_had = |standing: &Standing| {
        !standing.may_be_had() || standing.own.is_some_and(|own| own.fence.is_none())
    };
    if let Some(at) = standings.iter().position(not_to_be_had) {
        return refused(at);
    }
    match fences.mint(now) {
        Minted::Fence(fence) => {
            Decision::Granted(Grant { owner, fence, deadline: Deadline::after(now, ttl), share })
        }
        Minted::NotBefore(_) => refused(0),
        Minted::NoneLeft => Decision::NoFenceLeft,
    }
}

/// The fence by which the owner holds all the locks, if one grant covers them all and no share is larger than the owner
/// asks now. A foreign hold of a single lock gives 0, whatever share is asked for: it tolerates nobody.
fn common_fence(standings: &[Standing], share: Share) -> Option<u64> {
    if let [Standing { own: Some(Own { fence: None, .. }), .. }] = standings {
        return Some(0);
    }
    let fence_of = |standing: &Standing| standing.own.filter(|own| own.share <= share)?.fence;
    let (first, others) = standings.split_first()?;
    let fence = fence_of(first)?;
    others.iter().all(|other| fence_of(other) == Some(fence)).then(|| fence.number())
}

/// New ends for the leases of all of these locks, if the owner holds every one.
#[inline]
pub fn extend<'r>(standings: &[Standing], proof: &Proof<'r>, ttl: Ttl) -> Decision<'r> {
    let missing = standings.iter().enumerate().find(|(_, standing)| !standing.is_of(proof));
    match missing {
        None => Decision::Extended { proof: *proof, ttl },
        Some((at, standing)) => {
            let not_holder = NotHolder { proof: *proof, is_held: standing.is_held };
            Decision::NotExtended { at, not_holder }
        }
    }
}

/// Raises the fence of a hold to a fence that another server gave out, and the fence clock with it, so that every later
/// grant of any lock here has a larger fence (L2).
pub fn raise<'r>(
    standing: &Standing,
    owner: Owner<'r>,
    number: u64,
    now: Moment,
    fences: &mut FenceClock,
) -> Raised<'r> {
    let fence = Fence::new(number);
    if fence.is_some_and(|fence| !FenceClock::is_credible(fence, now)) {
        return Raised::TooFarAhead;
    }
    match (standing.own, fence) {
        (Some(Own { fence: Some(former), .. }), Some(fence)) if fence > former => {
            fences.observe(fence, now);
            Raised::To { owner, former, fence }
        }
        (Some(own), _) => Raised::Already { fence_number: own.fence_number() },
        (None, _) => Raised::NotHolder,
    }
}

impl<'r> Decision<'r> {
    /// The outcome for the lock at this place in the request, which has these holders. `None` if the lock stays as it
    /// is, and there is nothing to report.
    #[inline(always)]
    pub fn outcome(&self, at: usize, holders: &Holders<'_>, now: Moment) -> Option<Outcome<'r>> {
        Some(match *self {
            Self::Granted(grant) => {
                let former = holders.own().and_then(|own| own.fence);
                let others = holders.others();
                Outcome::Granted { grant, former, others }
            }
            Self::Again { ref wanted, .. } => {
                again(holders.own()?, wanted, Deadline::after(now, wanted.ttl))
            }
            Self::Released(proof) => release(holders, &proof),
            Self::Extended { proof, ttl } => extend_one(holders, &proof, ttl, now),
            Self::Raised(raised) => Outcome::Raise(raised),
            Self::Busy { at: refused, owner } | Self::NotUpgraded { at: refused, owner }
                if refused == at =>
            {
                Outcome::Refused(owner)
            }
            Self::NotExtended { at: missing, not_holder } if missing == at => {
                Outcome::NotExtended(not_holder)
            }
            Self::Wait(_)
            | Self::Busy { .. }
            | Self::NotUpgraded { .. }
            | Self::NoFenceLeft
            | Self::NotExtended { .. } => return None,
        })
    }
}

/// The hold that the owner has already, with the later of its end and `asked`.
fn again<'r>(own: &Hold<'_>, wanted: &Wanted<'r>, asked: Deadline) -> Outcome<'r> {
    let Wanted { owner, share, .. } = *wanted;
    // A hold without a deadline already outlasts every ttl.
    let longer = own.deadline.and_then(|deadline| (deadline < asked).then_some(asked));
    Outcome::Again { owner, fence_number: own.fence_number(), longer, share }
}

#[inline]
pub fn release<'r>(holders: &Holders<'_>, proof: &Proof<'r>) -> Outcome<'r> {
    match holders.own() {
        Some(hold) if hold.matches(proof) => Outcome::Released { fence: hold.fence },
        _ => Outcome::NotReleased(NotHolder::new(holders, proof)),
    }
}

#[inline]
pub fn extend_one<'r>(
    holders: &Holders<'_>,
    proof: &Proof<'r>,
    ttl: Ttl,
    now: Moment,
) -> Outcome<'r> {
    let deadline = Deadline::after(now, ttl);
    match holders.own() {
        Some(hold) if hold.matches(proof) => Outcome::Extended { fence: hold.fence, deadline },
        _ => Outcome::NotExtended(NotHolder::new(holders, proof)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Checked {
    /// The proof is of a hold in force, which has this fence.
    Holds { fence_number: u64 },
    /// The proof matches no hold in force.
    NotHolder,
}

pub fn check(holders: &Holders<'_>, proof: &Proof<'_>) -> Checked {
    match holders.own() {
        Some(hold) if hold.matches(proof) => Checked::Holds { fence_number: hold.fence_number() },
        _ => Checked::NotHolder,
    }
}

#[cfg(test)]
mod tests;
