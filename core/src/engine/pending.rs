//! Holds by grants that were not delivered, until they are taken back.

use crate::lock::{Fence, KeptName, KeptOwner, Monotonic, Name, Owner};
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

/// Indexed by fence; by name, because every command checks whether its lock has one; and by when to try next.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    holds: BTreeMap<Hold, (PendingRelease, Monotonic)>,
    names: BTreeSet<(i32, Rc<[u8]>, u64)>,
    due: BTreeSet<(Monotonic, Hold)>,
}

impl PendingReleases {
    pub(super) const fn new() -> Self {
        Self { holds: BTreeMap::new(), names: BTreeSet::new(), due: BTreeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.due.first().map(|&(due, _)| due)
    }

    pub(super) fn add(&mut self, pending: PendingRelease, due: Monotonic) {
        let KeptName { db, ref key } = pending.name;
        let hold = (pending.fence.number(), db, Rc::clone(key));
        self.names.insert((db, Rc::clone(key), hold.0));
        self.due.insert((due, hold.clone()));
        self.holds.insert(hold, (pending, due));
    }

    pub(super) fn has(&self, Name { db, key }: Name<'_>, fence_number: u64) -> bool {
        !self.is_empty() && self.holds.contains_key(&(fence_number, db, key.into()))
    }

    pub(super) fn take_due(&mut self, now: Monotonic) -> Option<PendingRelease> {
        let (due, hold) = self.due.first()?.clone();
        if due > now { None } else { self.take(&hold) }
    }

    /// Takes at most `at_most` holds of this lock, those of the asker first.
    pub(super) fn take_of(
        &mut self,
        name: Name<'_>,
        asker: Option<Owner<'_>>,
        at_most: usize,
    ) -> Vec<PendingRelease> {
        let key: Rc<[u8]> = name.key.into();
        let hold = |number| (number, name.db, Rc::clone(&key));
        let mut fences = self.fences_of(name);
        // In the order of the grants apart from that.
        fences.sort_by_key(|&number| {
            let pending = self.holds.get(&hold(number));
            pending.map(|(pending, _)| pending.owner.as_owner()) != asker
        });
        fences.truncate(at_most);
        fences.into_iter().filter_map(|number| self.take(&hold(number))).collect()
    }

    /// The fences of the holds of this lock, in their order.
    pub(super) fn fences_of(&self, Name { db, key }: Name<'_>) -> Vec<u64> {
        if self.is_empty() {
            return Vec::new();
        }
        let key: Rc<[u8]> = key.into();
        let all = (db, Rc::clone(&key), 0)..=(db, key, u64::MAX);
        self.names.range(all).map(|&(_, _, number)| number).collect()
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
        let (number, db, key) = hold;
        self.due.remove(&(due, hold.clone()));
        self.names.remove(&(*db, Rc::clone(key), *number));
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_takes_those_of_its_owner_first_and_others_up_to_its_limit() {
        let (name, asker) = (Name::new(0, b"k"), Owner::new(b"b").unwrap());
        let now = Monotonic::default();
        let mut pending = PendingReleases::new();
        for (number, owner) in (Fence::FIRST.number()..).zip([b"a", b"b", b"c"]) {
            let fence = Fence::new(number).unwrap();
            let owner = Owner::new(owner).unwrap().into();
            pending.add(PendingRelease { name: name.into(), owner, fence }, now);
        }
        let owners = |taken: Vec<PendingRelease>| -> Vec<_> {
            taken.iter().map(|taken| taken.owner.as_owner().as_bytes()[0]).collect()
        };
        assert_eq!(owners(pending.take_of(name, Some(asker), 2)), *b"ba");
        assert_eq!(owners(pending.take_of(name, Some(asker), 2)), *b"c");
        assert!(pending.is_empty() && pending.fences_of(name).is_empty());
        assert_eq!(pending.next_due(), None);
    }
}
