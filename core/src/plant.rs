//! Planted bugs: what the tests are tested with. Only a build with the feature `plant` has them, which nobody ships.
//!
//! ```text
//!     scripts/plants                                      each bug in turn, and which test finds it
//!     LEASEHOLD_PLANT=last-come-first-served redis-server --loadmodule …    one bug, in a build with the feature
//! ```
//!
//! Each is a mistake that somebody could make, or has made elsewhere: one line where the right thing is done, which does
//! not do it. `docs/verification.md` lists them with the test that finds each.

/// What can be wrong. The names by which they are chosen are below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    // Who holds a lock (L3).
    OwnerUnasked,
    FenceArgumentIgnored,
    ForeignLockIgnored,
    RetryGrantsAnew,
    RetryShortens,
    ExtendRevives,
    MintedOwnersRepeat,
    // When a lease ends (L1).
    ExpiryEarly,
    ExpiryIgnored,
    LeaseFromRequest,
    EvictedGivenAway,
    QuarantineIgnored,
    // Fences (L2).
    FenceFromTimeAlone,
    FenceNotRemembered,
    FenceUnlearned,
    ReplicaLearnsNothing,
    LoadDoesNotLift,
    PromotionDoesNotLift,
    SlotDoesNotLift,
    RaiseDoesNotLift,
    LiftUntold,
    PoisonLearned,
    // Whose turn it is (L4).
    LastComeFirstServed,
    TryOvertakes,
    OwnerWaitsTwice,
    PatienceIgnored,
    LimitsIgnored,
    // Wake-ups (L5).
    WakeUpLost,
    GrantToTheGone,
    GrantNotGivenBack,
    DeletionUnnoticed,
    FlushForgets,
    SwapForgets,
    WrongDatabase,
    StepBackUnnoticed,
    AlarmRingsOn,
    // Who may write, and what replicas are told (L7).
    MovedIsFree,
    AuthorityUnasked,
    WritesInEvent,
    GrantUntold,
    ReleaseUntold,
    TtlTold,
}

/// Whether this is the bug that is planted.
#[cfg(not(feature = "plant"))]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// The same, once in so many times.
#[cfg(not(feature = "plant"))]
pub const fn planted_once_in(_times: u32, _bug: Bug) -> bool {
    false
}

/// Why the build cannot be loaded; `None` if it can.
#[cfg(not(feature = "plant"))]
pub const fn obstacle() -> Option<String> {
    None
}

#[cfg(feature = "plant")]
pub use chosen::{obstacle, planted, planted_once_in};

#[cfg(feature = "plant")]
mod chosen {
    use super::Bug;
    use std::env;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    const VARIABLE: &str = "LEASEHOLD_PLANT";

    pub(super) const NAMES: [(Bug, &str); 42] = [
        (Bug::OwnerUnasked, "owner-unasked"),
        (Bug::FenceArgumentIgnored, "fence-argument-ignored"),
        (Bug::ForeignLockIgnored, "foreign-lock-ignored"),
        (Bug::RetryGrantsAnew, "retry-grants-anew"),
        (Bug::RetryShortens, "retry-shortens"),
        (Bug::ExtendRevives, "extend-revives"),
        (Bug::MintedOwnersRepeat, "minted-owners-repeat"),
        (Bug::ExpiryEarly, "expiry-early"),
        (Bug::ExpiryIgnored, "expiry-ignored"),
        (Bug::LeaseFromRequest, "lease-from-request"),
        (Bug::EvictedGivenAway, "evicted-given-away"),
        (Bug::QuarantineIgnored, "quarantine-ignored"),
        (Bug::FenceFromTimeAlone, "fence-from-time-alone"),
        (Bug::FenceNotRemembered, "fence-not-remembered"),
        (Bug::FenceUnlearned, "fence-unlearned"),
        (Bug::ReplicaLearnsNothing, "replica-learns-nothing"),
        (Bug::LoadDoesNotLift, "load-does-not-lift"),
        (Bug::PromotionDoesNotLift, "promotion-does-not-lift"),
        (Bug::SlotDoesNotLift, "slot-does-not-lift"),
        (Bug::RaiseDoesNotLift, "raise-does-not-lift"),
        (Bug::LiftUntold, "lift-untold"),
        (Bug::PoisonLearned, "poison-learned"),
        (Bug::LastComeFirstServed, "last-come-first-served"),
        (Bug::TryOvertakes, "try-overtakes"),
        (Bug::OwnerWaitsTwice, "owner-waits-twice"),
        (Bug::PatienceIgnored, "patience-ignored"),
        (Bug::LimitsIgnored, "limits-ignored"),
        (Bug::WakeUpLost, "wake-up-lost"),
        (Bug::GrantToTheGone, "grant-to-the-gone"),
        (Bug::GrantNotGivenBack, "grant-not-given-back"),
        (Bug::DeletionUnnoticed, "deletion-unnoticed"),
        (Bug::FlushForgets, "flush-forgets"),
        (Bug::SwapForgets, "swap-forgets"),
        (Bug::WrongDatabase, "wrong-database"),
        (Bug::StepBackUnnoticed, "step-back-unnoticed"),
        (Bug::AlarmRingsOn, "alarm-rings-on"),
        (Bug::MovedIsFree, "moved-is-free"),
        (Bug::AuthorityUnasked, "authority-unasked"),
        (Bug::WritesInEvent, "writes-in-event"),
        (Bug::GrantUntold, "grant-untold"),
        (Bug::ReleaseUntold, "release-untold"),
        (Bug::TtlTold, "ttl-told"),
    ];

    static CHOSEN: OnceLock<Option<Bug>> = OnceLock::new();
    static TIMES: AtomicU32 = AtomicU32::new(0);

    pub fn planted(bug: Bug) -> bool {
        *CHOSEN.get_or_init(|| named(&env::var(VARIABLE).ok()?)) == Some(bug)
    }

    pub fn planted_once_in(times: u32, bug: Bug) -> bool {
        planted(bug)
            && TIMES.fetch_add(1, Ordering::Relaxed).checked_rem(times) == times.checked_sub(1)
    }

    /// A name that is none would be a test of nothing.
    pub fn obstacle() -> Option<String> {
        let name = env::var(VARIABLE).ok()?;
        named(&name).is_none().then(|| format!("{VARIABLE}={name} is not the name of any bug"))
    }

    fn named(name: &str) -> Option<Bug> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(bug, _)| *bug)
    }

    #[cfg(test)]
    mod tests {
        use super::NAMES;

        #[test]
        fn every_bug_has_a_name_of_its_own() {
            for (position, (bug, name)) in NAMES.iter().enumerate() {
                let others = &NAMES[position + 1..];
                assert!(
                    others.iter().all(|(other, named)| other != bug && named != name),
                    "{name}"
                );
            }
        }
    }
}
