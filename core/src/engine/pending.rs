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
