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
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long the place is kept for whoever has waited longest. Nobody may drive its runtime.
const TURN: Duration = Duration::from_millis(500);

/// One at a time asks as this owner, in the order of coming.
pub(crate) struct Slot {
    past: Mutex<Past>,
}

/// The right to ask as this owner, until it is dropped.
pub(crate) struct Place(Arc<Slot>);

/// Whoever waits for the place may leave before it has it.
struct Standing<'s> {
    slot: &'s Slot,
    number: u64,
    /// Told when it is the first one and the place is free.
    told: Arc<Notify>,
}

/// Whether whoever waits has the place now.
enum Turn {
    Now,
    /// If it is not told before, it is to look again after this time.
    Later(Duration),
}

struct Past {
    /// The runtime of whoever has the place.
    taken_on: Option<Home>,
    free_since: Moment,
    /// Those who wait for the place. Only the first one is told: a crowd would take its time.
    line: BTreeMap<u64, Arc<Notify>>,
    next: u64,
    /// What was granted last to whoever had the place.
    hold: Weak<Hold>,
    /// The last fence that was granted, and its extensions.
    fence: u64,
    unanswered: Arc<Mutex<Unanswered>>,
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
            taken_on: None,
            free_since: Moment::now(),
            line: BTreeMap::new(),
            next: 0,
            hold: Weak::new(),
            fence: 0,
            unanswered: Arc::default(),
            unreleased: None,
        };
        Self { past: Mutex::new(past) }
    }

    /// Something may still reach the server.
    pub(crate) fn is_used(&self) -> bool {
        let (past, now) = (self.past(), Moment::now());
        let is_unreleased = past.unreleased.as_ref().is_some_and(|it| it.until > now);
        let is_unanswered = || locked(&past.unanswered).is_any(now);
        is_unreleased || is_unanswered()
    }

    /// Waits until everybody has had the place who came before. Whoever does not come when it is
    /// free loses its turn.
    pub(crate) async fn take(self: &Arc<Self>) -> Place {
        let (number, told) = (self.past().stand(), Arc::default());
        let standing = Standing { slot: self, number, told };
        loop {
            let turn = self.past().take(&standing);
            match turn {
                Turn::Now => return Place(Arc::clone(self)),
                Turn::Later(within) => {
                    let _ = timeout(within, standing.told.notified()).await;
                }
            }
        }
    }

    /// The runtime of whoever has the place.
    pub(crate) fn taken_on(&self) -> Option<Home> {
        self.past().taken_on
    }

    /// What was asked for under the grant of this fence, which is the last one.
    pub(crate) fn unanswered(&self, fence: u64) -> Arc<Mutex<Unanswered>> {
        let mut past = self.past();
        if past.fence != fence {
            (past.fence, past.unanswered) = (fence, Arc::default());
        }
        Arc::clone(&past.unanswered)
    }

    pub(crate) fn unreleased(&self) -> Option<Unreleased> {
        self.past().unreleased.clone()
    }

    /// The release of this grant is about to be asked for, until then.
    pub(crate) fn about_to_release(&self, fence: u64, lease: Option<Arc<Lease>>, until: Moment) {
        let until = until.later(LONGEST_WAY);
        let mut past = self.past();
        past.unreleased = match past.unreleased.take() {
            // Another keeper may help with the release of an earlier grant, which is over.
            Some(known) if known.fence > fence => Some(known),
            // An earlier try of the same may be on its way for longer.
            Some(known) if known.fence == fence => {
                let (lease, until) = (lease.or(known.lease), until.max(known.until));
                Some(Unreleased { fence, lease, until })
            }
            _ => Some(Unreleased { fence, lease, until }),
        };
    }

    /// The server has answered it: nobody has this grant any more.
    pub(crate) fn released(&self, fence: u64) {
        self.past().unreleased.take_if(|known| known.fence == fence);
    }

    /// No mutex may be held: it runs a waker of the program.
    fn tell_the_first(&self) {
        let first = self.past().first_if_free();
        if let Some(first) = first {
            first.notify_one();
        }
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        locked(&self.past)
    }
}

impl Past {
    fn stand(&mut self) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        number
    }

    /// Takes the place if it is free, and nobody comes who waits for longer.
    fn take(&mut self, standing: &Standing<'_>) -> Turn {
        let number = standing.number;
        let is_first = self.line.range(..number).next().is_none();
        let turn_left = TURN.saturating_sub(Moment::now().since(self.free_since));
        let is_taken = self.taken_on.is_some();
        if is_taken || !(is_first || turn_left.is_zero()) {
            // Also whoever has lost its turn stands where it came.
            self.line.entry(number).or_insert_with(|| Arc::clone(&standing.told));
            return Turn::Later(if is_taken { TURN } else { turn_left });
        }
        self.taken_on = Some(Home::here());
        self.line = self.line.split_off(&number.saturating_add(1));
        Turn::Now
    }

    fn first_if_free(&self) -> Option<Arc<Notify>> {
        self.line.values().next().filter(|_| self.taken_on.is_none()).cloned()
    }
}

impl Place {
    pub(crate) fn slot(&self) -> &Slot {
        &self.0
    }

    /// Whoever has it goes on there.
    pub(crate) fn move_to(&self, home: Home) {
        self.0.past().taken_on = Some(home);
    }

    /// What was granted last to whoever had it.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        self.0.past().hold.upgrade()
    }

    pub(crate) fn granted(&self, hold: &Arc<Hold>) {
        self.0.past().hold = Arc::downgrade(hold);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut past = self.0.past();
        (past.taken_on, past.free_since) = (None, Moment::now());
        drop(past);
        self.0.tell_the_first();
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.slot.past().line.remove(&self.number);
        // It may have been told, and not have come.
        self.slot.tell_the_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
    fn an_earlier_release_of_the_same_grant_may_be_on_its_way_for_longer() {
        let (slot, now) = (Slot::new(), Moment::now());
        let later = now.later(LONGEST_WAY);
        slot.about_to_release(8, None, later);
        slot.about_to_release(8, None, now);
        let until = slot.unreleased().map(|known| known.until);
        assert_eq!(until, Some(later.later(LONGEST_WAY)));
    }

    #[tokio::test]
    async fn whoever_waits_has_its_turn_in_the_order_of_coming() {
        let slot = Arc::new(Slot::new());
        let first = slot.take().await;
        let order = Arc::<Mutex<Vec<u32>>>::default();
        let mut tasks = Vec::new();
        for number in 0..10 {
            let (slot, order) = (Arc::clone(&slot), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _place = slot.take().await;
                locked(&order).push(number);
                tokio::task::yield_now().await;
            }));
            tokio::task::yield_now().await;
        }
        // Some leave, and whoever comes at that moment is not served before them.
        tasks.remove(3).abort();
        drop(first);
        drop(slot.take().await);
        assert_eq!(*locked(&order), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(slot.past().line.is_empty());
        assert_eq!(slot.taken_on(), None);
    }

    /// Each of them would look whether it is its turn, as often as anybody has the place.
    #[tokio::test]
    async fn of_a_crowd_only_the_next_one_is_woken() {
        const CROWD: usize = 500;
        let slot = Arc::new(Slot::new());
        let first = slot.take().await;
        let looks = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for _ in 0..CROWD {
            let (slot, looks) = (Arc::clone(&slot), Arc::clone(&looks));
            tasks.push(tokio::spawn(async move {
                let mut taking = Box::pin(slot.take());
                let _place = poll_fn(|context| {
                    looks.fetch_add(1, Relaxed);
                    taking.as_mut().poll(context)
                })
                .await;
                tokio::task::yield_now().await;
            }));
        }
        tokio::task::yield_now().await;
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        // On a slow machine each of them looks twice a second, too.
        let looks = looks.load(Relaxed);
        assert!(looks < CROWD * CROWD / 10, "{looks}");
    }

    #[tokio::test]
    async fn whoever_lost_its_turn_is_the_first_again_when_it_comes() {
        let slot = Arc::new(Slot::new());
        let first = slot.take().await;
        let (mut slow, mut second, mut third) =
            (Box::pin(slot.take()), Box::pin(slot.take()), Box::pin(slot.take()));
        for waiting in [&mut slow, &mut second, &mut third] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(first);
        // Nobody polls the slow one meanwhile.
        let second = second.await;
        for waiting in [&mut slow, &mut third] {
            assert!(waiting.now_or_never().is_none());
        }
        assert_eq!(slot.past().line.len(), 2);
        drop(second);
        drop(slow.await);
        drop(third.await);
        assert!(slot.past().line.is_empty());
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
