//! Which lock something happened to, and 64 bits that stand for it in tables of fixed size.

/// A lock's database and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock<'k> {
    pub(crate) db: i32,
    pub(crate) key: &'k [u8],
}

impl Lock<'_> {
    /// Stands for the lock. Computed once for each happening.
    pub(super) fn hash(self) -> u64 {
        hash(self.key, u64::from(self.db.cast_unsigned()).wrapping_add(1))
    }
}

/// Stands for an owner; half as wide, because it is only compared among the two of an entry.
pub(super) fn hash_of_owner(owner: &[u8]) -> u32 {
    u32::try_from(hash(owner, 0) >> 32).unwrap_or_default()
}

/// A multiplication for every eight bytes, without a secret. Somebody can look for two locks that fall
/// together, and gains nothing: their figures are then added up, or a late release goes unnoticed. No lock is
/// decided by any of it.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    // The length, so that a key is not taken for the same with zeros behind it.
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let start = mixed(seed.rotate_left(32) ^ len);
    let state = words.iter().fold(start, |state, &word| mixed(state ^ u64::from_le_bytes(word)));
    mixed(state ^ u64::from_le_bytes(last))
}

/// Both halves of a product, folded into one: every bit has a say in every other.
fn mixed(word: u64) -> u64 {
    // The golden ratio, whose bits are in no order.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let product = u128::from(word).wrapping_mul(u128::from(FACTOR));
    let high = u64::try_from(product >> 64).unwrap_or_default();
    high ^ word.wrapping_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn locks() -> impl Iterator<Item = u64> {
        (0..4).flat_map(|db| {
            (0..5_000).flat_map(move |number| {
                ["lock:{}", "orders:{}:payment", "{}"].map(|pattern| {
                    let key = pattern.replace("{}", &number.to_string());
                    Lock { db, key: key.as_bytes() }.hash()
                })
            })
        })
    }

    #[test]
    fn locks_with_like_names_in_other_databases_are_told_apart() {
        let all: Vec<_> = locks().collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    fn the_leading_bits_spread_them() {
        // 60,000 thrown into 8,192 places leave 5 empty if chance throws them.
        let places: HashSet<_> = locks().map(|hash| hash >> 51).collect();
        assert!(places.len() > 8_192 - 30, "{} of 8192 places", places.len());
    }

    #[test]
    fn every_byte_counts_and_so_does_the_length() {
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"\0\0", b"12345678", b"12345678\0", b"12345679", b"a2345678", b"8"];
        let all: HashSet<_> = keys.map(|key| Lock { db: 0, key }.hash()).into();
        assert_eq!(all.len(), keys.len());
        assert_ne!(hash_of_owner(b"a"), hash_of_owner(b"b"));
    }
}
