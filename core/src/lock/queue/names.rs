//! The names of contended locks: which queue each belongs to, and whether a word is one of them.

use super::QueueId;
use crate::lock::name::Name;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Debug, Default)]
pub(super) struct QueueNames {
    /// Few entries, usually one, so the search is short.
    dbs: Vec<(i32, Keys)>,
    sieve: Sieve,
}

/// Words of every client's commands are looked up here, so the hash is a fast one.
type Keys = HashMap<Rc<[u8]>, QueueId, RandomState>;

impl QueueNames {
    pub(super) fn get(&self, name: Name<'_>) -> Option<QueueId> {
        let (_, keys) = self.dbs.iter().find(|(known, _)| *known == name.db)?;
        keys.get(name.key).copied()
    }

    pub(super) fn insert(&mut self, db: i32, key: Rc<[u8]>, id: QueueId) {
        let names = self.count().saturating_add(1);
        if self.sieve.is_too_small_for(names) {
            self.sieve = Sieve::for_names(names);
            for name in self.dbs.iter().flat_map(|(_, keys)| keys.keys()) {
                self.sieve.add(name);
            }
        }
        self.sieve.add(&key);
        match self.dbs.iter_mut().find(|(known, _)| *known == db) {
            Some((_, keys)) => drop(keys.insert(key, id)),
            None => self.dbs.push((db, Keys::from_iter([(key, id)]))),
        }
    }

    pub(super) fn remove(&mut self, name: Name<'_>) {
        let Name { db, key } = name;
        let Some((_, keys)) = self.dbs.iter_mut().find(|(known, _)| *known == db) else { return };
        if keys.remove(key).is_some() {
            self.sieve.take(key);
        }
        self.dbs.retain(|(_, keys)| !keys.is_empty());
        if self.dbs.is_empty() {
            // Frees the room of a crowd that has gone.
            *self = Self::default();
        }
    }

    /// The queues of the locks with this key, in any database. Every word of every command is looked up here, so the
    /// sieve rejects nearly all words first.
    pub(super) fn in_any_db(&self, key: &[u8]) -> impl Iterator<Item = QueueId> {
        let dbs = if self.sieve.may_have(key) { &*self.dbs } else { &[] };
        dbs.iter().filter_map(move |(_, keys)| keys.get(key).copied())
    }

    pub(super) fn count(&self) -> usize {
        self.dbs.iter().map(|(_, keys)| keys.len()).sum()
    }
}

/// Rejects most words that are not names, in a time that does not depend on their length: each name is counted in one
/// of many holes, and a word that falls into an empty hole is not a name.
#[derive(Debug, Default)]
struct Sieve {
    /// The length is a power of two. A hole that has reached [`Sieve::FULL`] is not counted any more, and stays full.
    holes: Vec<u8>,
    /// No name was longer since the sieve was last empty.
    longest: usize,
}

impl Sieve {
    const FEWEST: usize = 4_096;
    /// Holes per name, so that no more than one word in this many is looked up in vain.
    const HOLES_FOR_EACH: usize = 8;
    const FULL: u8 = u8::MAX;

    /// Whether there are too few holes for this many names.
    fn is_too_small_for(&self, names: usize) -> bool {
        self.holes.len() < names.saturating_mul(Self::HOLES_FOR_EACH).max(Self::FEWEST)
    }

    /// An empty sieve for this many names, and as many again.
    fn for_names(names: usize) -> Self {
        let holes = names.saturating_mul(2 * Self::HOLES_FOR_EACH).max(Self::FEWEST);
        Self { holes: vec![0; holes.next_power_of_two()], longest: 0 }
    }

    fn add(&mut self, name: &[u8]) {
        self.longest = self.longest.max(name.len());
        let at = self.hole(name);
        if let Some(names) = self.holes.get_mut(at) {
            *names = names.saturating_add(1);
        }
    }

    fn take(&mut self, name: &[u8]) {
        let at = self.hole(name);
        if let Some(names) = self.holes.get_mut(at).filter(|names| **names != Self::FULL) {
            *names = names.saturating_sub(1);
        }
    }

    fn may_have(&self, word: &[u8]) -> bool {
        word.len() <= self.longest
            && self.holes.get(self.hole(word)).is_some_and(|&names| names > 0)
    }

    /// By the length and both ends, where the names of locks differ.
    fn hole(&self, word: &[u8]) -> usize {
        let packed = || word.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let head = word.first_chunk().map_or_else(packed, |head| u64::from_le_bytes(*head));
        let tail = word.last_chunk().map_or(0, |tail| u64::from_le_bytes(*tail));
        let length = u64::try_from(word.len()).unwrap_or(u64::MAX);
        // Fibonacci hashing: the product spreads any difference to the upper bits.
        let mixed = (head ^ tail.rotate_left(29) ^ length.rotate_left(56))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.holes.len().trailing_zeros();
        let hole = mixed.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0);
        usize::try_from(hole).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn insert(names: &mut QueueNames, db: i32, key: &str, id: usize) {
        names.insert(db, key.as_bytes().into(), QueueId(id.into()));
    }

    #[test]
    fn a_name_that_is_gone_falls_through_no_hole_although_others_are_there() {
        let mut names = QueueNames::default();
        insert(&mut names, 0, "orders:1", 1);
        insert(&mut names, 0, "orders:2", 2);
        names.remove(Name::new(0, b"orders:1"));
        assert!(!names.sieve.may_have(b"orders:1") && names.sieve.may_have(b"orders:2"));
    }

    #[test]
    fn names_that_differ_anywhere_near_an_end_fall_into_different_holes() {
        let families: [fn(usize) -> String; 4] = [
            |number| format!("{number}"),
            |number| format!("{number:06}:the-same-for-all-of-them"),
            |number| format!("the-same-for-all-of-them:{number:06}"),
            |number| "x".repeat(8 + number % 256),
        ];
        for (family, most) in families.into_iter().zip([500, 500, 500, 256]) {
            let sieve = Sieve::for_names(1);
            let holes: HashSet<_> =
                (0..most).map(|number| sieve.hole(family(number).as_bytes())).collect();
            // By chance alone, one word in seventeen would share a hole.
            assert!(holes.len() * 10 > most * 8, "{}: {} of {most}", family(7), holes.len());
        }
    }

    #[test]
    fn the_sieve_lets_every_name_through_until_it_is_gone_everywhere() {
        let mut names = QueueNames::default();
        let keys: Vec<String> = (0..500).map(|number| format!("orders:{number}")).collect();
        for (id, key) in keys.iter().enumerate() {
            insert(&mut names, 0, key, id);
            insert(&mut names, 1, key, id);
        }
        for key in &keys {
            names.remove(Name::new(0, key.as_bytes()));
            assert_eq!(names.in_any_db(key.as_bytes()).count(), 1, "{key}");
            names.remove(Name::new(1, key.as_bytes()));
            assert_eq!(names.in_any_db(key.as_bytes()).count(), 0, "{key}");
        }
        assert!(names.sieve.holes.is_empty(), "an empty sieve keeps no memory");
    }

    #[test]
    fn the_sieve_turns_most_other_words_away_however_many_names_there_are() {
        for count in [1, 500, 30_000] {
            let mut names = QueueNames::default();
            (0..count).for_each(|id| insert(&mut names, 0, &format!("orders:{id}"), id));
            assert!((0..count).all(|id| names.sieve.may_have(format!("orders:{id}").as_bytes())));
            let words = (100_000..110_000).map(|number| format!("orders:{number}"));
            let through = words.filter(|word| names.sieve.may_have(word.as_bytes())).count();
            assert!(through < 10_000 / 6, "{count}: {through}");
            assert!(!names.sieve.may_have(&[b'x'; 1_000]), "it is longer than any name");
        }
    }

    #[test]
    fn a_hole_that_is_full_lets_every_name_through() {
        let mut names = QueueNames::default();
        // The names differ only in the middle, which the sieve ignores.
        let key = |number: usize| format!("orders:1{number:04}1:orders");
        (0..300).for_each(|id| insert(&mut names, 0, &key(id), id));
        for id in 0..299 {
            names.remove(Name::new(0, key(id).as_bytes()));
        }
        assert_eq!(names.in_any_db(key(299).as_bytes()).count(), 1);
    }
}
