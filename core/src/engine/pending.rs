//! Holds by grants that were not delivered, until they are taken back.

use crate::lock::{Fence, KeptName, KeptOwner, Monotonic, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One of the holds of a grant that was not delivered.
#[derive(Clone, Debug)]
pub(super) struct PendingRelease {
    pub(super) name: KeptName,
    pub(super) owner: KeptOwner,
    pub(super) fence: Fence,
}

/// A fence, and one of the locks that it was granted for: together they identify a hold.
type Hold = (u64, i32, Rc<[u8]>);

impl PendingRelease {
    fn hold(&self) -> Hold {
        (self.fence.number(), self.name.db, Rc::clone(&self.name.key))
    }
}

/// Indexed by fence; by name, because every command checks whether its lock has one; and by when to try next.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    holds: BTreeMap<Hold, (PendingRelease, Monotonic)>,
    names: BTreeMap<i32, BTreeMap<Rc<[u8]>, BTreeSet<u64>>>,
    due: BTreeSet<(Monotonic, Hold)>,
}

impl PendingReleases {
    pub(super) const fn new() -> Self {
        Self { holds: BTreeMap::new(), names: BTreeMap::new(), due: BTreeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.due.first().map(|&(due, _)| due)
    }

    pub(super) fn add(&mut self, pending: PendingRelease, due: Monotonic) {
        let hold = pending.hold();
        let (number, db, key) = hold.clone();
        self.names.entry(db).or_default().entry(key).or_default().insert(number);
        self.due.insert((due, hold.clone()));
        self.holds.insert(hold, (pending, due));
    }

    pub(super) fn has(&self, name: Name<'_>, fence_number: u64) -> bool {
        self.fences_of(name).is_some_and(|fences| fences.contains(&fence_number))
    }

    /// Takes a pending release that is due.
    pub(super) fn take_due(&mut self, now: Monotonic) -> Option<PendingRelease> {
        let (due, hold) = self.due.first()?.clone();
        if due > now { None } else { self.take(&hold) }
    }

    /// Takes all pending releases of this lock.
    pub(super) fn take_all_of(&mut self, name: Name<'_>) -> Vec<PendingRelease> {
        let Some(fences) = self.fences_of(name).cloned() else { return Vec::new() };
        let key: Rc<[u8]> = name.key.into();
        let holds = fences.into_iter().map(|number| (number, name.db, Rc::clone(&key)));
        holds.filter_map(|hold| self.take(&hold)).collect()
    }

    pub(super) fn fences_of(&self, name: Name<'_>) -> Option<&BTreeSet<u64>> {
        self.names.get(&name.db)?.get(name.key)
    }

    /// Nothing with this fence is taken back any more, for any lock.
    pub(super) fn forget(&mut self, number: u64) {
        let first = (number, i32::MIN, Rc::default());
        while let Some((hold, _)) = self.holds.range(&first..).next()
            && hold.0 == number
        {
            let hold = hold.clone();
            let _former = self.take(&hold);
        }
    }

    fn take(&mut self, hold: &Hold) -> Option<PendingRelease> {
        let (pending, due) = self.holds.remove(hold)?;
        self.due.remove(&(due, hold.clone()));
        let (number, db, key) = hold;
        if let Some(names) = self.names.get_mut(db) {
            if let Some(fences) = names.get_mut(key) {
                fences.remove(number);
                if fences.is_empty() {
                    names.remove(key);
                }
            }
            if names.is_empty() {
                self.names.remove(db);
            }
        }
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Owner;

    const START: Monotonic = Monotonic::from_micros(0);

    fn name(db: i32, key: &str) -> Name<'_> {
        Name::new(db, key.as_bytes())
    }

    fn fence(number: u64) -> Fence {
        Fence::new(Fence::FIRST.number().saturating_add(number)).unwrap()
    }

    /// Adds a hold that is taken back after `millis`.
    fn add(pending: &mut PendingReleases, name: Name<'_>, number: u64, millis: u64) {
        let (name, owner) = (KeptName::from(name), KeptOwner::from(Owner::new(b"a").unwrap()));
        let fence = fence(number);
        pending.add(PendingRelease { name, owner, fence }, START.plus_millis(millis));
    }

    fn numbers(taken: impl IntoIterator<Item = PendingRelease>) -> Vec<u64> {
        let first = Fence::FIRST.number();
        taken.into_iter().map(|pending| pending.fence.number().saturating_sub(first)).collect()
    }

    #[test]
    fn a_grant_is_known_by_its_lock_and_its_fence() {
        let mut pending = PendingReleases::new();
        assert!(pending.is_empty());
        add(&mut pending, name(0, "k"), 1, 0);
        add(&mut pending, name(0, "k"), 2, 0);
        add(&mut pending, name(1, "k"), 3, 0);
        assert!(!pending.is_empty());
        let has = |db, key, number| pending.has(name(db, key), fence(number).number());
        assert!(has(0, "k", 1) && has(0, "k", 2) && has(1, "k", 3));
        assert!(!has(0, "k", 3) && !has(1, "k", 1) && !has(0, "l", 1));
        let fences = [1, 2].map(|number| fence(number).number());
        assert_eq!(pending.fences_of(name(0, "k")), Some(&BTreeSet::from(fences)));
        assert_eq!(pending.fences_of(name(0, "l")), None);
    }

    #[test]
    fn what_is_due_is_taken_in_the_order_of_that_and_nothing_is_left() {
        let mut pending = PendingReleases::new();
        assert_eq!(pending.next_due(), None);
        for (number, millis) in [(1, 20), (2, 10), (3, 30)] {
            add(&mut pending, name(0, "k"), number, millis);
        }
        let at = |millis| START.plus_millis(millis);
        assert_eq!(pending.next_due(), Some(at(10)));
        assert!(pending.take_due(at(9)).is_none());
        assert_eq!(numbers(std::iter::from_fn(|| pending.take_due(at(20)))), [2, 1]);
        assert_eq!(pending.next_due(), Some(at(30)));
        assert_eq!(numbers(pending.take_due(at(30))), [3]);
        assert!(pending.is_empty() && pending.names.is_empty() && pending.due.is_empty());
    }

    #[test]
    fn all_of_a_lock_are_taken_at_once_and_no_others() {
        let mut pending = PendingReleases::new();
        for (db, key, number) in [(0, "k", 1), (0, "k", 2), (0, "l", 3), (1, "k", 4)] {
            add(&mut pending, name(db, key), number, 0);
        }
        assert_eq!(numbers(pending.take_all_of(name(0, "k"))), [1, 2]);
        assert_eq!(numbers(pending.take_all_of(name(0, "k"))), []);
        assert_eq!(numbers(pending.take_all_of(name(0, "l"))), [3]);
        assert_eq!(numbers(pending.take_all_of(name(1, "k"))), [4]);
        assert!(pending.is_empty() && pending.names.is_empty() && pending.due.is_empty());
    }

    #[test]
    fn a_grant_that_was_heard_of_is_kept_with_all_its_locks() {
        let mut pending = PendingReleases::new();
        for (db, key, number) in [(0, "k", 2), (0, "l", 2), (-1, "k", 2), (0, "k", 1), (0, "k", 3)]
        {
            add(&mut pending, name(db, key), number, 0);
        }
        pending.forget(fence(9).number());
        assert_eq!(pending.holds.len(), 5);
        pending.forget(fence(2).number());
        assert_eq!(numbers(std::iter::from_fn(|| pending.take_due(START))), [1, 3]);
    }
}
