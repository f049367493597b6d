//! Identifies locks in tables of fixed size, by 64 bits.

use crate::lock::Name;

impl Name<'_> {
    /// Identifies the lock. Computed once for each event.
    pub(super) fn hash(self) -> u64 {
        hash(self.key, u64::from(self.db.cast_unsigned()).wrapping_add(1))
    }
}

/// Identifies an owner. Half as wide, because it is only compared with the two owners of an entry.
pub(super) fn hash_of_owner(owner: &[u8]) -> u32 {
    u32::try_from(hash(owner, 0) >> 32).unwrap_or_default()
}

/// One multiplication for every sixteen bytes, without a secret. An attacker can find two locks with one hash, and
/// gains nothing: their figures are added up, or a late release goes unnoticed. No lock is decided by a hash.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let start = folded(seed.rotate_left(32) ^ len, FACTOR);
    let (blocks, _) = bytes.as_chunks::<16>();
    let state = blocks.iter().fold(start, |state, &block| mixed(state, u128::from_le_bytes(block)));
    folded(mixed(state, end(bytes)), FACTOR)
}

/// The last sixteen bytes, or all bytes if there are fewer. Some bytes may be hashed twice, which is harmless because
/// the length is hashed too. Copying the rest byte by byte would take longer than everything else.
fn end(bytes: &[u8]) -> u128 {
    if let Some(&last) = bytes.last_chunk::<16>() {
        u128::from_le_bytes(last)
    } else if let (Some(&first), Some(&last)) = (bytes.first_chunk::<8>(), bytes.last_chunk()) {
        u128::from(u64::from_le_bytes(first)) << 64 | u128::from(u64::from_le_bytes(last))
    } else if let (Some(&first), Some(&last)) = (bytes.first_chunk::<4>(), bytes.last_chunk()) {
        u128::from(u32::from_le_bytes(first)) << 64 | u128::from(u32::from_le_bytes(last))
    } else {
        bytes.iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte))
    }
}

/// The golden ratio, whose bits have no pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(state: u64, block: u128) -> u64 {
    folded(state ^ low(block), FACTOR ^ high(block))
}

/// Both halves of a product, folded into one: every bit influences every other.
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one).wrapping_mul(u128::from(other));
    low(product) ^ high(product)
}

fn low(wide: u128) -> u64 {
    u64::try_from(wide & u128::from(u64::MAX)).unwrap_or_default()
}

fn high(wide: u128) -> u64 {
    u64::try_from(wide >> 64).unwrap_or_default()
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
                    Name { db, key: key.as_bytes() }.hash()
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
        // 60,000 random values leave 5 of 8,192 places empty.
        let places: HashSet<_> = locks().map(|hash| hash >> 51).collect();
        assert!(places.len() > 8_192 - 30, "{} of 8192 places", places.len());
    }

    #[test]
    fn every_byte_counts_and_so_does_the_length() {
        let mut all = HashSet::new();
        for len in 0..70 {
            let mut key = vec![0; len];
            assert!(all.insert(Name { db: 0, key: &key }.hash()), "{len} zeros");
            for position in 0..len {
                for bit in 0..8 {
                    key[position] = 1 << bit;
                    let hash = Name { db: 0, key: &key }.hash();
                    assert!(all.insert(hash), "bit {bit} of byte {position} of {len}");
                }
                key[position] = 0;
            }
        }
        assert_ne!(hash_of_owner(b"a"), hash_of_owner(b"b"));
    }
}
