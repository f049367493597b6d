//! The most contended locks, found with a fixed number of counters (Space-Saving).
//!
//! There may be millions of locks, but there are counters for 128. A lock without counters takes over those of the
//! least contended lock, and remembers their count: at most as many of its own waits and tries may have been missed.
//! So, for N waits and refused tries in all:
//!
//! - a lock with more than N / 128 of them is in the list;
//! - a lock in the list had at least as many as it shows, and at most `missed` more.
//!
//! Until the first refusal or wait, this is two empty lists.

use super::truncated::Truncated;
use crate::lock::{KeptName, Name};
use std::cmp::Reverse;

/// How many locks are counted.
const CAPACITY: usize = 128;

#[derive(Debug)]
pub struct Contention {
    /// The hashes of the entries, stored separately because every refused try searches them.
    hashes: Vec<u64>,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
pub struct Entry {
    pub db: i32,
    pub key: Truncated,
    pub waits: u64,
    pub refused: u64,
    /// Total of the waits that have ended.
    pub total_wait_us: u64,
    /// Of the waits that have ended.
    pub longest_wait_us: u64,
    /// At most this many waits and refused tries happened before the lock was counted.
    pub missed: u64,
}

impl Entry {
    fn new(lock: Name<'_>, missed: u64) -> Self {
        Self { db: lock.db, key: Truncated::new(lock.key), missed, ..Self::default() }
    }

    const fn counted(&self) -> u64 {
        self.waits.saturating_add(self.refused)
    }

    const fn at_most(&self) -> u64 {
        self.counted().saturating_add(self.missed)
    }
}

impl Contention {
    pub(super) const fn new() -> Self {
        Self { hashes: Vec::new(), entries: Vec::new() }
    }

    pub(super) fn refused(&mut self, lock: Name<'_>) {
        if let Some(entry) = self.counted(lock) {
            entry.refused = entry.refused.saturating_add(1);
        }
    }

    pub(super) fn wait_started(&mut self, lock: Name<'_>) {
        if let Some(entry) = self.counted(lock) {
            entry.waits = entry.waits.saturating_add(1);
        }
    }

    /// Adds nothing if the lock has lost its counters since the wait began.
    pub(super) fn wait_ended(&mut self, lock: Name<'_>, us: u64) {
        if let Some(entry) = self.position(lock.hash()).and_then(|at| self.entries.get_mut(at)) {
            entry.total_wait_us = entry.total_wait_us.saturating_add(us);
            entry.longest_wait_us = entry.longest_wait_us.max(us);
        }
    }

    /// The entries with the most waits and refused tries, most contended first.
    pub fn top(&self, count: usize) -> Vec<&Entry> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        let rank = |entry: &&Entry| (Reverse(entry.counted()), Reverse(entry.total_wait_us));
        entries.sort_by_key(rank);
        entries.truncate(count);
        entries
    }

    /// The lock that has these counters, whose name may be truncated.
    pub(crate) fn lock_at(&self, index: usize) -> Option<(usize, Option<KeptName>)> {
        let entry = self.entries.get(index)?;
        Some((index, Some(Name::new(entry.db, entry.key.as_bytes()).into())))
    }

    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// The entry of this lock. A lock without an entry takes that of the least contended lock.
    fn counted(&mut self, lock: Name<'_>) -> Option<&mut Entry> {
        let hash = lock.hash();
        if let Some(at) = self.position(hash) {
            return self.entries.get_mut(at);
        }
        if self.entries.len() < CAPACITY {
            self.hashes.reserve_exact(CAPACITY.saturating_sub(self.hashes.len()));
            self.entries.reserve_exact(CAPACITY.saturating_sub(self.entries.len()));
            self.hashes.push(hash);
            self.entries.push(Entry::new(lock, 0));
            return self.entries.last_mut();
        }
        let all = self.hashes.iter_mut().zip(&mut self.entries);
        let (least_hash, least) = all.min_by_key(|(_, entry)| entry.at_most())?;
        *least_hash = hash;
        *least = Entry::new(lock, least.at_most());
        Some(least)
    }

    fn position(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().position(|&known| known == hash)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn lock(key: &str) -> Name<'_> {
        Name { db: 0, key: key.as_bytes() }
    }

    fn names(entries: &[&Entry]) -> Vec<String> {
        let name = |entry: &&Entry| String::from_utf8_lossy(entry.key.as_bytes()).into_owned();
        entries.iter().map(name).collect()
    }

    #[test]
    fn waits_and_refused_tries_are_counted_apart_and_rank_together() {
        let mut contention = Contention::new();
        contention.refused(lock("tried"));
        contention.wait_started(lock("waited-for"));
        contention.wait_started(lock("waited-for"));
        for _ in 0..3 {
            contention.refused(lock("both"));
        }
        contention.wait_started(lock("both"));
        let top = contention.top(2);
        assert_eq!(names(&top), ["both", "waited-for"]);
        assert_eq!((top[0].waits, top[0].refused, top[0].missed), (1, 3, 0));
        assert_eq!((top[1].waits, top[1].refused, top[1].missed), (2, 0, 0));
        assert_eq!(contention.top(usize::MAX).len(), 3);
    }

    #[test]
    fn the_time_of_waits_adds_up_and_the_longest_is_kept() {
        let mut contention = Contention::new();
        contention.wait_started(lock("k"));
        for us in [20, 50, 30] {
            contention.wait_ended(lock("k"), us);
        }
        contention.wait_ended(lock("never-counted"), 1_000);
        let top = contention.top(9);
        assert_eq!((top[0].total_wait_us, top[0].longest_wait_us), (100, 50));
        assert_eq!(top.len(), 1);
    }

    #[test]
    fn among_locks_contended_alike_the_one_waited_for_longest_in_all_is_first() {
        let mut contention = Contention::new();
        for key in ["a", "b", "c"] {
            contention.wait_started(lock(key));
        }
        contention.wait_ended(lock("b"), 1);
        assert_eq!(names(&contention.top(1)), ["b"]);
    }

    #[test]
    fn a_lock_without_counters_takes_over_the_least_contended_ones() {
        let mut contention = Contention::new();
        for number in 0..CAPACITY {
            let key = number.to_string();
            for _ in 0..5 {
                contention.refused(lock(&key));
            }
            if number != 77 {
                contention.wait_started(lock(&key));
            }
        }
        contention.wait_ended(lock("77"), 1_000);
        contention.wait_started(lock("newcomer"));
        assert!(!names(&contention.top(CAPACITY)).contains(&"77".to_owned()));
        let top = contention.top(CAPACITY);
        assert_eq!(names(&top[CAPACITY - 1..]), ["newcomer"]);
        let last = top[CAPACITY - 1];
        assert_eq!((last.waits, last.refused, last.missed), (1, 0, 5));
        assert_eq!((last.total_wait_us, last.longest_wait_us), (0, 0));
    }

    #[test]
    fn nothing_is_allocated_before_it_is_needed_and_never_more_than_that() {
        let mut contention = Contention::new();
        contention.wait_ended(lock("k"), 1);
        assert!(contention.top(9).is_empty());
        assert_eq!((contention.hashes.capacity(), contention.entries.capacity()), (0, 0));
        for number in 0..10 * CAPACITY {
            contention.refused(lock(&number.to_string()));
        }
        assert_eq!(contention.hashes.capacity(), CAPACITY);
        assert_eq!(contention.entries.capacity(), CAPACITY);
        assert!(size_of::<Entry>() <= 64, "{}", size_of::<Entry>());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_most_contended_are_in_the_list_and_the_figures_are_within_their_bounds(
            happenings in prop::collection::vec(
                (prop_oneof![0..10_u32, 0..400_u32, 0..400_u32], any::<bool>()),
                500..4_000,
            ),
        ) {
            let mut contention = Contention::new();
            let mut truth: HashMap<String, u64> = HashMap::new();
            for (number, waits) in &happenings {
                let key = number.to_string();
                if *waits {
                    contention.wait_started(lock(&key));
                } else {
                    contention.refused(lock(&key));
                }
                *truth.entry(key).or_default() += 1;
            }
            let top = contention.top(CAPACITY);
            let shown = names(&top);
            for (entry, name) in top.iter().zip(&shown) {
                let real = truth[name];
                prop_assert!(entry.counted() <= real && real <= entry.at_most(), "{name}");
            }
            let sure = u64::try_from(happenings.len() / CAPACITY).unwrap();
            for (name, _) in truth.iter().filter(|(_, real)| **real > sure) {
                prop_assert!(shown.contains(name), "{name} is missing");
            }
        }
    }
}
