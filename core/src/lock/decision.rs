//! What to do with a lock: the requests, each a function of the holders, the request and the moment.
//!
//! `holders` are those **in force**, as the owner sees them who asks: time has decided already (see
//! [`Holders`]), so none of these asks whether a lease has run out.

use super::fence::{Fence, FenceClock, Minted};
use super::hold::{Grant, Hold, Proof};
use super::holders::Holders;
use super::lease::{Deadline, Moment, Ttl};
use super::owner::Owner;
use super::share::Share;

/// What an owner asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'r> {
    pub owner: Owner<'r>,
    pub ttl: Ttl,
    pub share: Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Acquired<'r> {
    /// The owner holds the lock from now on. `former` is the fence of the hold that this one takes the place of, which
    /// tolerated more.
    Granted { grant: Grant<'r>, former: Option<Fence>, company: Company },
    /// The owner had it already: a retry, so the grant stays the same one. `longer` is the new end of
    /// the lease if the retry moved it, `share` what was asked for.
    Again { owner: Owner<'r>, fence_number: u64, longer: Option<Deadline>, share: Share },
    /// Not for this owner now: others have it, or wait for it already, or nobody is granted anything for a while.
    Busy(Owner<'r>),
    /// The owner holds the lock, but tolerates too many for what it asks. It keeps its hold and does not wait: two of them
    /// would wait for each other.
    NotUpgraded(Owner<'r>),
    /// The lock could be granted, but no fence is left below 2^53.
    NoFenceLeft,
}

/// Whether others held the lock when it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    Nobody,
    /// Others held it, and go on.
    Others,
}

/// The lock for an owner, if it is admitted or holds it already.
///
/// A lock for which others wait is theirs (L4); `others` does not count the one whose turn it is. Whoever holds the
/// lock already may come to tolerate less before them.
pub fn acquire<'r>(
    holders: &Holders<'_>,
    others: usize,
    wanted: &Wanted<'r>,
    max_holders: usize,
    now: Moment,
    fences: &mut FenceClock,
) -> Acquired<'r> {
    let Wanted { owner, ttl, share } = *wanted;
    let deadline = Deadline::after(now, ttl);
    let former = match holders.own() {
        // A foreign hold tolerates nobody, whatever is asked.
        Some(own) if own.share <= share || own.fence.is_none() => {
            return again(own, wanted, deadline);
        }
        Some(_) if !holders.admit(share, max_holders) => return Acquired::NotUpgraded(owner),
        Some(own) => own.fence,
        None if others > 0 || !holders.admit(share, max_holders) => return Acquired::Busy(owner),
        None => None,
    };
    match fences.mint(now) {
        Minted::Fence(fence) => {
            let grant = Grant { owner, fence, deadline, share };
            Acquired::Granted { grant, former, company: holders.company() }
        }
        Minted::NotBefore(_) if former.is_some() => Acquired::NotUpgraded(owner),
        Minted::NotBefore(_) => Acquired::Busy(owner),
        Minted::NoneLeft => Acquired::NoFenceLeft,
    }
}

/// The hold that the owner has already, and the later of its end and this one.
pub(super) fn again<'r>(own: &Hold<'_>, wanted: &Wanted<'r>, asked: Deadline) -> Acquired<'r> {
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

pub fn extend<'r>(holders: &Holders<'_>, proof: &Proof<'r>, ttl: Ttl, now: Moment) -> Extended<'r> {
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

/// Lifts the fence of a hold to one that another server gave out, and the fence clock with it, so that whoever is granted
/// any lock here later has a larger one (L2).
pub fn raise<'r>(
    holders: &Holders<'_>,
    owner: Owner<'r>,
    number: u64,
    now: Moment,
    fences: &mut FenceClock,
) -> Raised<'r> {
    let fence = Fence::new(number);
    if fence.is_some_and(|fence| !FenceClock::is_credible(fence, now)) {
        return Raised::TooFarAhead;
    }
    match (holders.own(), fence) {
        (Some(Hold { fence: Some(former), .. }), Some(fence)) if fence > *former => {
            fences.observe(fence, now);
            Raised::To { owner, former: *former, fence }
        }
        (Some(hold), _) => Raised::Already { fence_number: hold.fence_number() },
        (None, _) => Raised::NotHolder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Monotonic, Value};

    const NOW: Moment = Moment::from_millis(1_763_000_000_000);

    fn owner(name: &str) -> Owner<'_> {
        Owner::new(name.as_bytes()).unwrap()
    }

    fn ttl(millis: u64) -> Ttl {
        Ttl::from_millis(millis).unwrap()
    }

    fn in_ms(millis: u64) -> Deadline {
        Deadline::after(NOW, ttl(millis))
    }

    /// The holders as this owner sees them, if this one holds the lock for itself.
    fn held_by(holder: &'static str, deadline: Option<Deadline>, asker: &str) -> Holders<'static> {
        let value = Value::new(Fence::FIRST, owner(holder)).as_bytes().to_vec();
        Holders::read(value.leak(), deadline, owner(asker), NOW, &mut FenceClock::new())
    }

    const RELEASED: Released<'static> = Released::Released { fence: Some(Fence::FIRST) };

    fn until(deadline: Deadline) -> Extended<'static> {
        Extended::Until { fence: Some(Fence::FIRST), deadline }
    }

    fn proof(name: &str) -> Proof<'_> {
        Proof { owner: owner(name), fence: None }
    }

    fn wanted(name: &str, millis: u64, share: u32) -> Wanted<'_> {
        let share = Share::new(share).unwrap();
        Wanted { owner: owner(name), ttl: ttl(millis), share }
    }

    /// For itself, of a server that allows many holders.
    fn ask<'r>(
        holders: &Holders<'_>,
        others: usize,
        name: &'r str,
        millis: u64,
        fences: &mut FenceClock,
    ) -> Acquired<'r> {
        acquire(holders, others, &wanted(name, millis, 1), 1_000, NOW, fences)
    }

    #[test]
    fn a_free_lock_is_granted_with_the_next_fence() {
        let mut fences = FenceClock::new();
        let Acquired::Granted { grant: first, .. } = ask(&Holders::NOBODY, 0, "a", 5, &mut fences)
        else {
            panic!("a free lock was refused")
        };
        assert_eq!(first.deadline, in_ms(5));
        let Acquired::Granted { grant: second, .. } = ask(&Holders::NOBODY, 0, "a", 5, &mut fences)
        else {
            panic!("a free lock was refused")
        };
        assert!(first.fence < second.fence);
    }

    #[test]
    fn another_owner_gets_nothing_and_no_fence_is_used() {
        let mut fences = FenceClock::new();
        let holders = |asker| held_by("a", Some(in_ms(9)), asker);
        assert_eq!(ask(&holders("b"), 0, "b", 5, &mut fences), Acquired::Busy(owner("b")));
        assert_eq!(fences.mint(NOW).fence().unwrap().number(), NOW.micros());
    }

    #[test]
    fn a_free_lock_that_others_wait_for_is_not_for_the_taking() {
        let mut fences = FenceClock::new();
        assert_eq!(ask(&Holders::NOBODY, 1, "b", 5, &mut fences), Acquired::Busy(owner("b")));
        let holders = |asker| held_by("a", Some(in_ms(9)), asker);
        let again = ask(&holders("a"), 1, "a", 5, &mut fences);
        assert!(matches!(again, Acquired::Again { .. }));
    }

    #[test]
    fn the_holder_gets_its_fence_again_and_the_later_of_the_two_leases() {
        let mut fences = FenceClock::new();
        let mut again = |deadline, asked| {
            let holders = |asker| held_by("a", deadline, asker);
            ask(&holders("a"), 0, "a", asked, &mut fences)
        };
        let told = |longer| {
            let (fence_number, share) = (Fence::FIRST.number(), Share::EXCLUSIVE);
            Acquired::Again { owner: owner("a"), fence_number, longer, share }
        };
        assert_eq!(again(Some(in_ms(5)), 6), told(Some(in_ms(6))));
        assert_eq!(again(Some(in_ms(6)), 6), told(None));
        assert_eq!(again(Some(in_ms(7)), 6), told(None));
        assert_eq!(again(None, 6), told(None));
    }

    #[test]
    fn in_quarantine_only_those_who_hold_a_lock_have_their_way() {
        let mut fences = FenceClock::new();
        fences.quarantine(Monotonic::from_micros(0), 9);
        assert_eq!(ask(&Holders::NOBODY, 0, "a", 5, &mut fences), Acquired::Busy(owner("a")));
        let holders = |asker| held_by("a", Some(in_ms(5)), asker);
        let again = ask(&holders("a"), 0, "a", 9, &mut fences);
        assert!(matches!(again, Acquired::Again { longer: Some(_), .. }));
        assert_eq!(extend(&holders("a"), &proof("a"), ttl(9), NOW), until(in_ms(9)));
        assert_eq!(release(&holders("a"), &proof("a")), RELEASED);
    }

    #[test]
    fn a_free_lock_without_a_fence_left_is_not_granted() {
        let late = Moment::from_micros(Fence::LAST.number() + 1);
        let wanted = wanted("a", 5, 1);
        let fences = &mut FenceClock::new();
        let outcome = acquire(&Holders::NOBODY, 0, &wanted, 1_000, late, fences);
        assert_eq!(outcome, Acquired::NoFenceLeft);
    }

    #[test]
    fn only_the_holder_releases() {
        let holders = |asker| held_by("a", None, asker);
        assert_eq!(release(&holders("a"), &proof("a")), RELEASED);
        assert!(matches!(release(&holders("b"), &proof("b")), Released::NotHolder(_)));
        assert!(matches!(release(&Holders::NOBODY, &proof("a")), Released::NotHolder(_)));
    }

    #[test]
    fn only_the_holder_extends_and_may_shorten() {
        let holders = |asker| held_by("a", Some(in_ms(9)), asker);
        assert_eq!(extend(&holders("a"), &proof("a"), ttl(20), NOW), until(in_ms(20)));
        assert_eq!(extend(&holders("a"), &proof("a"), ttl(2), NOW), until(in_ms(2)));
        assert!(matches!(extend(&holders("b"), &proof("b"), ttl(20), NOW), Extended::NotHolder(_)));
        assert!(matches!(
            extend(&Holders::NOBODY, &proof("a"), ttl(20), NOW),
            Extended::NotHolder(_)
        ));
    }

    #[test]
    fn a_check_tells_the_holder_its_fence() {
        let holders = |asker| held_by("a", None, asker);
        let fence_number = Fence::FIRST.number();
        assert_eq!(check(&holders("a"), &proof("a")), Checked::Holds { fence_number });
        assert_eq!(check(&holders("b"), &proof("b")), Checked::NotHolder);
        assert_eq!(check(&Holders::NOBODY, &proof("a")), Checked::NotHolder);
    }
}
