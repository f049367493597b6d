//! Grants that nobody has heard of, until they are taken back.

use super::WaiterGrant;
use crate::lock::{Monotonic, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// By fence, which no two grants share; by name, because every command asks whether there is one for
/// its lock; and by when to try next.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    grants: BTreeMap<u64, (WaiterGrant, Monotonic)>,
    names: BTreeMap<i32, BTreeMap<Rc<[u8]>, BTreeSet<u64>>>,
    due: BTreeSet<(Monotonic, u64)>,
}

impl PendingReleases {
    pub(super) const fn new() -> Self {
        Self { grants: BTreeMap::new(), names: BTreeMap::new(), due: BTreeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.due.first().map(|&(due, _)| due)
    }

    pub(super) fn add(&mut self, grant: WaiterGrant, due: Monotonic) {
        let number = grant.fence.number();
        let names = self.names.entry(grant.name.db).or_default();
        names.entry(Rc::clone(&grant.name.key)).or_default().insert(number);
        self.due.insert((due, number));
        self.grants.insert(number, (grant, due));
    }

    pub(super) fn has(&self, name: Name<'_>, fence_number: u64) -> bool {
        self.fences_of(name).is_some_and(|fences| fences.contains(&fence_number))
    }

    /// Takes one that is due.
    pub(super) fn take_due(&mut self, now: Monotonic) -> Option<WaiterGrant> {
        let &(due, number) = self.due.first()?;
        if due > now { None } else { self.take(number) }
    }

    /// Takes all of this lock.
    pub(super) fn take_all_of(&mut self, name: Name<'_>) -> Vec<WaiterGrant> {
        let Some(fences) = self.fences_of(name).cloned() else { return Vec::new() };
        fences.into_iter().filter_map(|number| self.take(number)).collect()
    }

    pub(super) fn fences_of(&self, name: Name<'_>) -> Option<&BTreeSet<u64>> {
        self.names.get(&name.db)?.get(name.key)
    }

    /// Takes the one with this fence.
    pub(super) fn take(&mut self, number: u64) -> Option<WaiterGrant> {
        let (grant, due) = self.grants.remove(&number)?;
        self.due.remove(&(due, number));
        if let Some(names) = self.names.get_mut(&grant.name.db) {
            if let Some(fences) = names.get_mut(&grant.name.key) {
                fences.remove(&number);
                if fences.is_empty() {
                    names.remove(&grant.name.key);
                }
            }
            if names.is_empty() {
                self.names.remove(&grant.name.db);
            }
        }
        Some(grant)
    }
}
