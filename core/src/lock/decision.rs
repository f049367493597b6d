//! What to do with the locks that a request names: one of them, or several, all or none.
//!
//! The first look at each lock says how it [stands](Standing) with that lock. All of these together are what a [`Decision`] is
//! made of, and the decision says what becomes of each lock ([`Decision::outcome`]). So one key is open at a time, and nothing
//! is written before it is known that everything can be. A single lock is the case of one.
//!
//! `holders` are those **in force**, as the owner sees them who asks: time has decided already (see [`Holders`]), so nothing
//! here asks whether a lease has run out.

use super::fence::{Fence, FenceClock, Minted};
use super::hold::{Grant, Hold, Proof};
use super::holders::Holders;
use super::lease::{Deadline, Moment, Ttl};
use super::outcome::Outcome;
use super::owner::Owner;
use super::share::Share;
use super::wait::Wait;

/// What an owner asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'r> {
    pub owner: Owner<'r>,
    pub ttl: Ttl,
    pub share: Share,
}

/// How it stands with a lock, for the owner who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    own: Option<Own>,
    is_held: bool,
    /// Whether the owner may hold the lock with the share that it asks for, among those present.
    is_admitted: bool,
    /// How many others wait for the lock. The one whose turn it is does not count.
    others: usize,
}

/// The hold of the owner who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    /// A foreign hold has none.
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

    /// Whether the owner can be given this lock, whatever becomes of the others. A lock for which others wait is theirs (L4).
    /// The holder may come to tolerate less before them.
    pub fn may_be_had(&self) -> bool {
        self.is_admitted && (self.own.is_some() || self.others == 0)
    }

    /// Whether the owner who asks holds the lock.
    pub const fn is_own(&self) -> bool {
        self.own.is_some()
    }

    fn is_foreign(&self) -> bool {
        self.own.is_some_and(|own| own.fence.is_none())
    }

    fn is_of(&self, proof: &Proof<'_>) -> bool {
        self.own.is_some_and(|own| proof.fence.is_none_or(|shown| shown == own.fence_number()))
    }
}

/// What a request comes to, for all the locks that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision<'r> {
    /// The owner holds all of them from now on, by this grant.
    Granted(Grant<'r>),
    /// The owner holds all of them by one grant already: a retry. 0 stands for a foreign lock.
    Again { wanted: Wanted<'r>, fence_number: u64 },
    /// They are not to be had now: others have this one, or wait for it already, or nobody is granted anything for a while.
    Busy { at: usize, owner: Owner<'r> },
    /// The owner holds some of them, and cannot have this one as it asks. It keeps what it has and does not wait: two of them
    /// would wait for each other.
    NotUpgraded { at: usize, owner: Owner<'r> },
    /// They could be granted, but no fence is left below 2^53.
    NoFenceLeft,
    /// They are not to be had now, and the client is ready to wait.
    Wait(Wait<'r>),
    /// Those that the owner holds are released.
    Released(Proof<'r>),
    /// The owner holds all of them.
    Extended { proof: Proof<'r>, ttl: Ttl },
    /// The owner does not hold this one, so none is extended.
    NotExtended { at: usize, not_holder: NotHolder<'r> },
    /// Of one lock.
    Raised(Raised<'r>),
}

/// What a request for locks comes to for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Acquired<'r> {
    /// The owner holds the lock from now on. `former` is the fence of the hold that this one takes the place of, which
    /// tolerated more.
    Granted { grant: Grant<'r>, former: Option<Fence>, company: Company },
    /// The owner had it already: a retry, so the grant stays the same one. `longer` is the new end of
    /// the lease if the retry moved it, `share` what was asked for.
    Again { owner: Owner<'r>, fence_number: u64, longer: Option<Deadline>, share: Share },
    /// It is not for this owner now, who may not hold it.
    Refused(Owner<'r>),
}

/// Whether others held the lock when it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    Nobody,
    /// Others held it, and go on.
    Others,
}

/// All of these locks for an owner, if it is admitted to each or holds them already.
///
/// One that holds some of them is given all by a new grant, or keeps what it has and never waits for the others.
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
    // Nobody can be let in beside a foreign hold, nor take its place.
    let not_to_be_had = |standing: &Standing| !standing.may_be_had() || standing.is_foreign();
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

/// The fence by which the owner holds all the locks, if it holds them by one and no tighter than it asks. A foreign hold of one
/// lock tolerates nobody, whatever is asked.
fn common_fence(standings: &[Standing], share: Share) -> Option<u64> {
    if let [Standing { own: Some(Own { fence: None, .. }), .. }] = standings {
        return Some(0);
    }
    let fence_of = |standing: &Standing| standing.own.filter(|own| own.share <= share)?.fence;
    let (first, others) = standings.split_first()?;
    let fence = fence_of(first)?;
    others.iter().all(|other| fence_of(other) == Some(fence)).then(|| fence.number())
}

/// New ends for the leases of all of these locks, if the owner holds every one of them.
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

/// Lifts the fence of a hold to one that another server gave out, and the fence clock with it, so that whoever is granted
/// any lock here later has a larger one (L2).
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
    /// What it comes to for the lock at this place, which these hold. `None` if the lock is left as it is, and there is nothing
    /// to tell of it.
    #[inline(always)]
    pub fn outcome(&self, at: usize, holders: &Holders<'_>, now: Moment) -> Option<Outcome<'r>> {
        Some(match *self {
            Self::Granted(grant) => {
                let former = holders.own().and_then(|own| own.fence);
                let company = holders.company();
                Outcome::Acquire(Acquired::Granted { grant, former, company })
            }
            Self::Again { ref wanted, .. } => {
                Outcome::Acquire(again(holders.own()?, wanted, Deadline::after(now, wanted.ttl)))
            }
            Self::Released(proof) => Outcome::Release(release(holders, &proof)),
            Self::Extended { proof, ttl } => Outcome::Extend(extend_one(holders, &proof, ttl, now)),
            Self::Raised(raised) => Outcome::Raise(raised),
            Self::Busy { at: refused, owner } | Self::NotUpgraded { at: refused, owner }
                if refused == at =>
            {
                Outcome::Acquire(Acquired::Refused(owner))
            }
            Self::NotExtended { at: missing, not_holder } if missing == at => {
                Outcome::Extend(Extended::NotHolder(not_holder))
            }
            Self::Wait(_)
            | Self::Busy { .. }
            | Self::NotUpgraded { .. }
            | Self::NoFenceLeft
            | Self::NotExtended { .. } => return None,
        })
    }
}

/// The hold that the owner has already, and the later of its end and this one.
fn again<'r>(own: &Hold<'_>, wanted: &Wanted<'r>, asked: Deadline) -> Acquired<'r> {
    let Wanted { owner, share, .. } = *wanted;
    // A hold without deadline already outlasts every ttl.
    let longer = own.deadline.and_then(|deadline| (deadline < asked).then_some(asked));
    Acquired::Again { owner, fence_number: own.fence_number(), longer, share }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Released<'r> {
    /// This grant is over; a foreign lock has no fence.
    Released {
        fence: Option<Fence>,
    },
    NotHolder(NotHolder<'r>),
}

/// The proof is of no hold in force; nothing changes (L3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHolder<'r> {
    pub proof: Proof<'r>,
    /// Whether somebody else holds the lock.
    pub is_held: bool,
}

impl<'r> NotHolder<'r> {
    const fn new(holders: &Holders<'_>, proof: &Proof<'r>) -> Self {
        Self { proof: *proof, is_held: !holders.is_free() }
    }
}

#[inline]
pub fn release<'r>(holders: &Holders<'_>, proof: &Proof<'r>) -> Released<'r> {
    match holders.own() {
        Some(hold) if hold.matches(proof) => Released::Released { fence: hold.fence },
        _ => Released::NotHolder(NotHolder::new(holders, proof)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Extended<'r> {
    /// The lease of this grant now ends here: earlier than before, if that was asked.
    Until {
        fence: Option<Fence>,
        deadline: Deadline,
    },
    NotHolder(NotHolder<'r>),
}

/// A new end for the lease of one hold.
#[inline]
pub fn extend_one<'r>(
    holders: &Holders<'_>,
    proof: &Proof<'r>,
    ttl: Ttl,
    now: Moment,
) -> Extended<'r> {
    let deadline = Deadline::after(now, ttl);
    match holders.own() {
        Some(hold) if hold.matches(proof) => Extended::Until { fence: hold.fence, deadline },
        _ => Extended::NotHolder(NotHolder::new(holders, proof)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Checked {
    /// The proof is of a hold in force, which has this fence.
    Holds { fence_number: u64 },
    /// It is not.
    NotHolder,
}

pub fn check(holders: &Holders<'_>, proof: &Proof<'_>) -> Checked {
    match holders.own() {
        Some(hold) if hold.matches(proof) => Checked::Holds { fence_number: hold.fence_number() },
        _ => Checked::NotHolder,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Raised<'r> {
    /// The hold has this fence from now on.
    To { owner: Owner<'r>, former: Fence, fence: Fence },
    /// It has this one already, which is no smaller. A foreign lock has none, and keeps none.
    Already { fence_number: u64 },
    /// The owner does not hold the lock; nothing changes (L3).
    NotHolder,
    /// No server's clock is wrong by so much: nothing changes.
    TooFarAhead,
}

#[cfg(test)]
mod tests;
