//! What to do with a lock: the four requests, each a function of the hold, the request and the moment.
//!
//! `current` is the hold **in force**: the caller has let time decide first (see
//! [`Hold::in_force`]), so none of these asks whether a lease has run out.

use super::fence::{Fence, FenceClock, Minted};
use super::hold::{Hold, Proof};
use super::lease::{Deadline, Moment, Ttl};
use super::owner::Owner;

/// One act of giving a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'r> {
    pub owner: Owner<'r>,
    pub fence: Fence,
    pub deadline: Deadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Acquired<'r> {
    /// The lock was free and is now the owner's.
    Granted(Grant<'r>),
    /// The owner had it already: a retry, so the grant stays the same one. `longer` is the new end of
    /// the lease if the retry moved it.
    Again { fence_number: u64, longer: Option<Deadline> },
    /// Not for this owner now: another one has it, or others wait for it already, or nobody is granted anything for a while.
    Busy(Owner<'r>),
    /// Free, but no fence is left below 2^53.
    NoFenceLeft,
}

/// The lock for `owner`, if it is free or already its own.
///
/// A free lock for which others wait is theirs (L4); `others` does not count the one whose turn it is.
pub fn acquire<'r>(
    current: Option<&Hold<'_>>,
    others: usize,
    owner: Owner<'r>,
    ttl: Ttl,
    now: Moment,
    fences: &mut FenceClock,
) -> Acquired<'r> {
    let asked = Deadline::after(now, ttl);
    match current {
        None if others > 0 => Acquired::Busy(owner),
        None => match fences.mint(now) {
            Minted::Fence(fence) => Acquired::Granted(Grant { owner, fence, deadline: asked }),
            Minted::NotBefore(_) => Acquired::Busy(owner),
            Minted::NoneLeft => Acquired::NoFenceLeft,
        },
        Some(hold) if hold.is_held_by(owner) => Acquired::Again {
            fence_number: hold.fence_number(),
            // A hold without deadline already outlasts every ttl.
            longer: hold.deadline.and_then(|deadline| (deadline < asked).then_some(asked)),
        },
        Some(_) => Acquired::Busy(owner),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Released<'r> {
    /// The lock is free, and this grant is over; a foreign lock has no fence.
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
    const fn new(current: Option<&Hold<'_>>, proof: &Proof<'r>) -> Self {
        Self { proof: *proof, is_held: current.is_some() }
    }
}

pub fn release<'r>(current: Option<&Hold<'_>>, proof: &Proof<'r>) -> Released<'r> {
    match current {
        Some(hold) if hold.matches(proof) => Released::Released { fence: hold.fence },
        _ => Released::NotHolder(NotHolder::new(current, proof)),
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

pub fn extend<'r>(
    current: Option<&Hold<'_>>,
    proof: &Proof<'r>,
    ttl: Ttl,
    now: Moment,
) -> Extended<'r> {
    let deadline = Deadline::after(now, ttl);
    match current {
        Some(hold) if hold.matches(proof) => Extended::Until { fence: hold.fence, deadline },
        _ => Extended::NotHolder(NotHolder::new(current, proof)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Checked {
    /// The proof is of the hold in force, which has this fence.
    Holds { fence_number: u64 },
    /// It is not.
    NotHolder,
}

pub fn check(current: Option<&Hold<'_>>, proof: &Proof<'_>) -> Checked {
    match current {
        Some(hold) if hold.matches(proof) => Checked::Holds { fence_number: hold.fence_number() },
        _ => Checked::NotHolder,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Raised<'r> {
    /// The hold has this fence from now on.
    To { owner: Owner<'r>, former: Fence, fence: Fence, deadline: Option<Deadline> },
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
    current: Option<&Hold<'_>>,
    owner: Owner<'r>,
    number: u64,
    now: Moment,
    fences: &mut FenceClock,
) -> Raised<'r> {
    let fence = Fence::new(number);
    if fence.is_some_and(|fence| !FenceClock::is_credible(fence, now)) {
        return Raised::TooFarAhead;
    }
    match (current, fence) {
        (Some(hold), _) if !hold.is_held_by(owner) => Raised::NotHolder,
        (Some(Hold { fence: Some(former), deadline, .. }), Some(fence)) if fence > *former => {
            fences.observe(fence, now);
            Raised::To { owner, former: *former, fence, deadline: *deadline }
        }
        (Some(hold), _) => Raised::Already { fence_number: hold.fence_number() },
        (None, _) => Raised::NotHolder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Monotonic;

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

    fn held_by(owner: &str, deadline: Option<Deadline>) -> Hold<'_> {
        Hold { owner: owner.as_bytes(), fence: Some(Fence::FIRST), deadline }
    }

    const RELEASED: Released<'static> = Released::Released { fence: Some(Fence::FIRST) };

    fn until(deadline: Deadline) -> Extended<'static> {
        Extended::Until { fence: Some(Fence::FIRST), deadline }
    }

    fn proof(name: &str) -> Proof<'_> {
        Proof { owner: owner(name), fence: None }
    }

    #[test]
    fn a_free_lock_is_granted_with_the_next_fence() {
        let mut fences = FenceClock::new();
        let Acquired::Granted(first) = acquire(None, 0, owner("a"), ttl(5), NOW, &mut fences)
        else {
            panic!("a free lock was refused")
        };
        assert_eq!(first.deadline, in_ms(5));
        let Acquired::Granted(second) = acquire(None, 0, owner("a"), ttl(5), NOW, &mut fences)
        else {
            panic!("a free lock was refused")
        };
        assert!(first.fence < second.fence);
    }

    #[test]
    fn another_owner_gets_nothing_and_no_fence_is_used() {
        let mut fences = FenceClock::new();
        let hold = held_by("a", Some(in_ms(9)));
        assert_eq!(
            acquire(Some(&hold), 0, owner("b"), ttl(5), NOW, &mut fences),
            Acquired::Busy(owner("b"))
        );
        assert_eq!(fences.mint(NOW).fence().unwrap().number(), NOW.micros());
    }

    #[test]
    fn a_free_lock_that_others_wait_for_is_not_for_the_taking() {
        let mut fences = FenceClock::new();
        assert_eq!(
            acquire(None, 1, owner("b"), ttl(5), NOW, &mut fences),
            Acquired::Busy(owner("b"))
        );
        let hold = held_by("a", Some(in_ms(9)));
        let again = acquire(Some(&hold), 1, owner("a"), ttl(5), NOW, &mut fences);
        assert!(matches!(again, Acquired::Again { .. }));
    }

    #[test]
    fn the_holder_gets_its_fence_again_and_the_later_of_the_two_leases() {
        let mut fences = FenceClock::new();
        let mut again = |deadline, asked| {
            let hold = held_by("a", deadline);
            acquire(Some(&hold), 0, owner("a"), ttl(asked), NOW, &mut fences)
        };
        let fence_number = Fence::FIRST.number();
        assert_eq!(
            again(Some(in_ms(5)), 6),
            Acquired::Again { fence_number, longer: Some(in_ms(6)) }
        );
        assert_eq!(again(Some(in_ms(6)), 6), Acquired::Again { fence_number, longer: None });
        assert_eq!(again(Some(in_ms(7)), 6), Acquired::Again { fence_number, longer: None });
        assert_eq!(again(None, 6), Acquired::Again { fence_number, longer: None });
    }

    #[test]
    fn in_quarantine_only_those_who_hold_a_lock_have_their_way() {
        let mut fences = FenceClock::new();
        fences.quarantine(Monotonic::from_micros(0), 9);
        assert_eq!(
            acquire(None, 0, owner("a"), ttl(5), NOW, &mut fences),
            Acquired::Busy(owner("a"))
        );
        let hold = held_by("a", Some(in_ms(5)));
        let again = acquire(Some(&hold), 0, owner("a"), ttl(9), NOW, &mut fences);
        assert!(matches!(again, Acquired::Again { longer: Some(_), .. }));
        assert_eq!(extend(Some(&hold), &proof("a"), ttl(9), NOW), until(in_ms(9)));
        assert_eq!(release(Some(&hold), &proof("a")), RELEASED);
    }

    #[test]
    fn a_free_lock_without_a_fence_left_is_not_granted() {
        let late = Moment::from_micros(Fence::LAST.number() + 1);
        let outcome = acquire(None, 0, owner("a"), ttl(5), late, &mut FenceClock::new());
        assert_eq!(outcome, Acquired::NoFenceLeft);
    }

    #[test]
    fn only_the_holder_releases() {
        let hold = held_by("a", None);
        assert_eq!(release(Some(&hold), &proof("a")), RELEASED);
        assert!(matches!(release(Some(&hold), &proof("b")), Released::NotHolder(_)));
        assert!(matches!(release(None, &proof("a")), Released::NotHolder(_)));
    }

    #[test]
    fn only_the_holder_extends_and_may_shorten() {
        let hold = held_by("a", Some(in_ms(9)));
        assert_eq!(extend(Some(&hold), &proof("a"), ttl(20), NOW), until(in_ms(20)));
        assert_eq!(extend(Some(&hold), &proof("a"), ttl(2), NOW), until(in_ms(2)));
        assert!(matches!(extend(Some(&hold), &proof("b"), ttl(20), NOW), Extended::NotHolder(_)));
        assert!(matches!(extend(None, &proof("a"), ttl(20), NOW), Extended::NotHolder(_)));
    }

    #[test]
    fn a_check_tells_the_holder_its_fence() {
        let hold = held_by("a", None);
        let fence_number = Fence::FIRST.number();
        assert_eq!(check(Some(&hold), &proof("a")), Checked::Holds { fence_number });
        assert_eq!(check(Some(&hold), &proof("b")), Checked::NotHolder);
        assert_eq!(check(None, &proof("a")), Checked::NotHolder);
    }
}
