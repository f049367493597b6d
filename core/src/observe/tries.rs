//! Recently refused tries. They tell a wait that follows a try from a wait without a try. Well-behaved clients try
//! first, and wait when they are refused. An operator wants to know of tries that are never followed by a wait.
//!
//! A memory aid of fixed size: a try that uses the entry of an earlier try replaces it, and the earlier owner's wait
//! then counts as one without a try.

use super::identity::hash_of_owner;
use crate::lock::Name;

/// Bits of the hash that find the entry.
const INDEX_BITS: u32 = 10;

const ENTRIES: usize = 1 << INDEX_BITS;

#[derive(Debug)]
pub(super) struct Tries {
    /// Empty until the first refusal. 0 in an empty place.
    entries: Vec<u64>,
}

/// Whether the owner had tried before it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Tried {
    Before,
    Not,
}

impl Tries {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(super) fn refused(&mut self, lock: Name<'_>, owner: &[u8]) {
        if self.entries.is_empty() {
            self.entries = vec![0; ENTRIES];
        }
        let hash = hash(lock, owner);
        if let Some(entry) = self.entries.get_mut(index(hash)) {
            *entry = hash;
        }
    }

    /// Notes a wait, and forgets the try: each try stands for one wait.
    pub(super) fn wait_started(&mut self, lock: Name<'_>, owner: &[u8]) -> Tried {
        let hash = hash(lock, owner);
        match self.entries.get_mut(index(hash)) {
            Some(entry) if *entry == hash => {
                *entry = 0;
                Tried::Before
            }
            _ => Tried::Not,
        }
    }
}

/// Identifies lock and owner. The hash of an owner is only half as wide, so it goes into both halves: the leading bits
/// find the entry.
fn hash(lock: Name<'_>, owner: &[u8]) -> u64 {
    let owner = u64::from(hash_of_owner(owner));
    (lock.hash() ^ owner ^ owner.rotate_left(32)).max(1)
}

fn index(hash: u64) -> usize {
    usize::try_from(hash >> (u64::BITS - INDEX_BITS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(key: &str) -> Name<'_> {
        Name::new(0, key.as_bytes())
    }

    #[test]
    fn a_wait_follows_a_try_of_the_same_owner_for_the_same_lock_once() {
        let mut tries = Tries::new();
        assert_eq!(tries.wait_started(lock("k"), b"alice"), Tried::Not);
        tries.refused(lock("k"), b"alice");
        assert_eq!(tries.wait_started(lock("k"), b"bob"), Tried::Not);
        assert_eq!(tries.wait_started(lock("other"), b"alice"), Tried::Not);
        assert_eq!(tries.wait_started(Name::new(1, b"k"), b"alice"), Tried::Not);
        assert_eq!(tries.wait_started(lock("k"), b"alice"), Tried::Before);
        assert_eq!(tries.wait_started(lock("k"), b"alice"), Tried::Not, "there was one try");
    }

    #[test]
    fn a_hundred_who_try_at_once_are_nearly_all_remembered_and_never_more_than_they_are() {
        let mut tries = Tries::new();
        let owners: Vec<_> = (0..100).map(|number| format!("owner-{number}")).collect();
        owners.iter().for_each(|owner| tries.refused(lock("k"), owner.as_bytes()));
        let mut remembered = || {
            let waits = owners.iter().map(|owner| tries.wait_started(lock("k"), owner.as_bytes()));
            waits.filter(|tried| *tried == Tried::Before).count()
        };
        // Of a hundred tries in 1,024 places, about five share a place.
        assert!(remembered() >= 85);
        assert_eq!(remembered(), 0);
    }
}
