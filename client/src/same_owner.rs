//! Where those meet who ask for one lock as one owner that the caller chose.
//!
//! The server may give such an owner the same grant again, with the same fence. What an earlier
//! guard of that grant has sent, and nobody has answered, may reach the server after that:
//!
//! - An extension may cut the lease. The next guard counts on no more than it leaves.
//! - A release may free the lock. It is asked for again before anything else. Once one is answered,
//!   the owner gets another fence, and the late one does nothing.

use crate::clock::Moment;
use crate::guard::Hold;
use crate::home::Home;
use crate::lease::Lease;
use crate::poison::locked;
use crate::unanswered::{LONGEST_WAY, Unanswered};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Its place is locked while somebody asks as this owner.
pub(crate) struct Slot {
    pub(crate) place: Arc<tokio::sync::Mutex<Weak<Hold>>>,
    past: Mutex<Past>,
}

struct Past {
    /// The runtime of whoever had the place last.
    asked_on: Home,
    /// The last fence that was granted, and its extensions.
    fence: u64,
    unanswered: Arc<Mutex<Unanswered>>,
    /// The last lease, and its fence.
    latest: Option<(u64, u64)>,
    unreleased: Option<Unreleased>,
}

/// A release that nobody has answered.
#[derive(Clone)]
pub(crate) struct Unreleased {
    pub(crate) fence: u64,
    /// None where nobody was told of the grant.
    pub(crate) lease: Option<Arc<Lease>>,
    /// Until when it may arrive.
    until: Moment,
}

impl Slot {
    pub(crate) fn new() -> Self {
        let past = Past {
            asked_on: Home::here(),
            fence: 0,
            unanswered: Arc::default(),
            latest: None,
            unreleased: None,
        };
        Self { place: Arc::default(), past: Mutex::new(past) }
    }

    /// Somebody has the place or waits for it, or something may still reach the server.
    pub(crate) fn is_used(&self) -> bool {
        let (past, now) = (self.past(), Moment::now());
        let is_unreleased = past.unreleased.as_ref().is_some_and(|it| it.until > now);
        let is_unanswered = || locked(&past.unanswered).is_any(now);
        Arc::strong_count(&self.place) > 1 || is_unreleased || is_unanswered()
    }

    pub(crate) fn asked_on(&self) -> Home {
        self.past().asked_on
    }

    pub(crate) fn ask_on(&self, home: Home) {
        self.past().asked_on = home;
    }

    /// What was asked for under the grant of this fence, which is the last one.
    pub(crate) fn unanswered(&self, fence: u64) -> Arc<Mutex<Unanswered>> {
        let mut past = self.past();
        if past.fence != fence {
            (past.fence, past.unanswered) = (fence, Arc::default());
        }
        Arc::clone(&past.unanswered)
    }

    /// This lease is held now.
    pub(crate) fn hold(&self, lease: &Lease) {
        self.past().latest = Some((lease.fence, lease.id));
    }

    /// Whether the server gave the same grant again to a later request, whose lease it is now.
    pub(crate) fn is_superseded(&self, lease: &Lease) -> bool {
        self.past().latest.is_some_and(|(fence, id)| fence == lease.fence && id != lease.id)
    }

    pub(crate) fn unreleased(&self) -> Option<Unreleased> {
        self.past().unreleased.clone()
    }

    /// The release of this grant is about to be asked for, until then.
    pub(crate) fn about_to_release(&self, fence: u64, lease: Option<Arc<Lease>>, until: Moment) {
        let until = until.later(LONGEST_WAY);
        let mut past = self.past();
        // Another keeper may help with the release of an earlier grant, which is over.
        if past.unreleased.as_ref().is_none_or(|known| known.fence <= fence) {
            past.unreleased = Some(Unreleased { fence, lease, until });
        }
    }

    /// The server has answered it: nobody has this grant any more.
    pub(crate) fn released(&self, fence: u64) {
        self.past().unreleased.take_if(|known| known.fence == fence);
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        locked(&self.past)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_release_that_was_not_answered_of_the_last_grant_is_known_until_it_is() {
        let (slot, now) = (Slot::new(), Moment::now());
        let known = || slot.unreleased().map(|known| known.fence);
        slot.about_to_release(8, None, now);
        slot.about_to_release(7, None, now);
        slot.released(7);
        assert_eq!(known(), Some(8));
        assert!(slot.is_used());
        slot.released(8);
        assert_eq!(known(), None);
        assert!(!slot.is_used());
    }

    #[test]
    fn the_extensions_of_one_grant_bound_no_other_one() {
        let (slot, now, second) = (Slot::new(), Moment::now(), Duration::from_secs(1));
        locked(&slot.unanswered(7)).begin(0, second, now);
        assert!(slot.is_used());
        assert_eq!(locked(&slot.unanswered(7)).counted(2 * second, now, &[0], 1), second);
        assert_eq!(locked(&slot.unanswered(8)).counted(2 * second, now, &[0], 1), 2 * second);
        assert!(!slot.is_used());
    }
}
