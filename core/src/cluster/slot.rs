//! A hash slot: one of the 16384 parts into which a cluster divides its keys.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(u16);

/// The start of a key that nobody uses. Without a `{`, the slot depends on the whole key.
const PREFIX: [u8; 15] = *b"leasehold:slot:";

/// The polynomial of CRC-16/XMODEM.
const POLYNOMIAL: u16 = 0x1021;

impl Slot {
    pub const COUNT: u16 = 16_384;

    pub fn new(number: u16) -> Option<Self> {
        (number < Self::COUNT).then_some(Self(number))
    }

    /// The slot that a word of a command names. Reads a word at least as leniently as the server, with the same
    /// result.
    pub fn read(word: &[u8]) -> Option<Self> {
        Self::new(str::from_utf8(word).ok()?.parse().ok()?)
    }

    /// The slot of a key: that of its hash tag, if it has one.
    pub fn of(key: &[u8]) -> Self {
        Self(crc16(0, hash_tag(key).unwrap_or(key)) % Self::COUNT)
    }

    pub const fn number(self) -> u16 {
        self.0
    }

    /// The name of a key in this slot that does not exist.
    ///
    /// The right choice of the last two bytes yields any 16-bit CRC.
    pub fn vacant_key(self) -> [u8; 17] {
        let [first, second] = (crc16(0, &PREFIX) ^ uncrc16(self.0)).to_be_bytes();
        let mut key = [0; 17];
        for (byte, value) in key.iter_mut().zip(PREFIX.into_iter().chain([first, second])) {
            *byte = value;
        }
        key
    }
}

/// The bytes between the first `{` and the next `}`, unless there are none.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let mut parts = key.splitn(2, |&byte| byte == b'{').skip(1);
    let rest = parts.next()?;
    let mut parts = rest.splitn(2, |&byte| byte == b'}');
    let tag = parts.next()?;
    (parts.next().is_some() && !tag.is_empty()).then_some(tag)
}

fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, &byte| {
        let high = (crc >> 8) ^ u16::from(byte);
        let high = high ^ (high >> 4);
        (crc << 8) ^ (high << 12) ^ (high << 5) ^ high
    })
}

/// The two bytes, as a number, that have this CRC.
fn uncrc16(crc: u16) -> u16 {
    (0..u16::BITS).fold(crc, |crc, _| {
        if crc & 1 == 1 { ((crc ^ POLYNOMIAL) >> 1) | 0x8000 } else { crc >> 1 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_key_is_in_the_slot_that_the_server_says() {
        // As CLUSTER KEYSLOT replies.
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("123456789", 12_739),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("foo{bar", 15_278),
        ] {
            assert_eq!(Slot::of(key.as_bytes()).number(), slot, "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_vacant_key_of_its_own() {
        let slots = (0..Slot::COUNT).map(|number| Slot::new(number).unwrap());
        let keys: HashSet<_> = slots
            .map(|slot| {
                let key = slot.vacant_key();
                assert_eq!(Slot::of(&key), slot, "{}", key.escape_ascii());
                key
            })
            .collect();
        assert_eq!(keys.len(), usize::from(Slot::COUNT));
    }

    #[test]
    fn what_is_no_slot_is_told_from_what_is() {
        assert_eq!(Slot::read(b"16383").map(Slot::number), Some(16_383));
        assert_eq!(Slot::read(b"0").map(Slot::number), Some(0));
        for word in ["16384", "-1", "65536", "99999999999999999999", "", "x", "1 "] {
            assert_eq!(Slot::read(word.as_bytes()), None, "{word:?}");
        }
    }
}
