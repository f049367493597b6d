//! A set of slots: one bit for each.

use super::Slot;

const BITS: u16 = 64;
const WORDS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSet([u64; WORDS]);

impl SlotSet {
    pub const fn new() -> Self {
        Self([0; WORDS])
    }

    pub fn insert(&mut self, slot: Slot) {
        if let Some(word) = self.0.get_mut(usize::from(slot.number() / BITS)) {
            *word |= bit(slot.number());
        }
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.word(slot.number()) & bit(slot.number()) != 0
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    pub fn insert_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word |= other);
    }

    /// Removes these slots. Returns whether any of them was in the set.
    pub fn remove_all(&mut self, others: &Self) -> bool {
        let mut removed = false;
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            removed |= *word & other != 0;
            *word &= !other;
        }
        removed
    }

    /// The first slot from `first` to `last` that is not in the set.
    pub fn first_missing(&self, first: Slot, last: Slot) -> Option<Slot> {
        let mut number = first.number();
        while number <= last.number() {
            let from_here = u64::MAX << (number % BITS);
            let missing = !self.word(number) & from_here;
            number &= !(BITS - 1);
            if missing != 0 {
                let position = u16::try_from(missing.trailing_zeros()).ok()?;
                return Slot::new(number.saturating_add(position)).filter(|slot| *slot <= last);
            }
            number = number.saturating_add(BITS);
        }
        None
    }

    fn word(&self, number: u16) -> u64 {
        self.0.get(usize::from(number / BITS)).copied().unwrap_or(0)
    }
}

fn bit(number: u16) -> u64 {
    1 << (number % BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn set(numbers: &BTreeSet<u16>) -> SlotSet {
        let mut set = SlotSet::new();
        numbers.iter().for_each(|&number| set.insert(slot(number)));
        set
    }

    #[test]
    fn what_is_missing_from_a_full_set_is_nothing() {
        let all = set(&(0..Slot::COUNT).collect());
        assert_eq!(all.first_missing(slot(0), slot(Slot::COUNT - 1)), None);
        assert_eq!(SlotSet::new().first_missing(slot(7), slot(6)), None);
    }

    proptest! {
        #[test]
        fn a_set_is_what_a_set_is(
            some in prop::collection::btree_set(0..200u16, 0..200),
            others in prop::collection::btree_set(0..200u16, 0..200),
            first in 0..200u16,
            last in 0..200u16,
        ) {
            let (mut both, mut less) = (set(&some), set(&some));
            both.insert_all(&set(&others));
            prop_assert_eq!(both.clone(), set(&some.union(&others).copied().collect()));
            let removed = less.remove_all(&set(&others));
            prop_assert_eq!(removed, !some.is_disjoint(&others));
            prop_assert_eq!(less.is_empty(), some.is_subset(&others));
            prop_assert_eq!(less, set(&some.difference(&others).copied().collect()));
            both.clear();
            prop_assert_eq!(both, SlotSet::new());
            let missing = (first..=last).find(|number| !some.contains(number));
            prop_assert_eq!(set(&some).first_missing(slot(first), slot(last)), missing.map(slot));
            prop_assert_eq!(set(&some).contains(slot(first)), some.contains(&first));
        }
    }
}
