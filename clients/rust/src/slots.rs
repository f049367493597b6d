//! Which slot a key is in, and which node has it. Pure.

use redis::Value;
use std::collections::HashMap;

const SLOTS: u16 = 16_384;

/// The slot of a key: a checksum of its hash tag, or of all of it.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) & (SLOTS - 1)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// Addresses of the nodes that have the slots.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    ranges: Vec<(u16, u16, String)>,
    /// Where single ones went since.
    moved: HashMap<u16, String>,
}

impl Slots {
    pub(crate) fn address(&self, slot: u16) -> Option<&str> {
        let range = || self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        self.moved.get(&slot).or_else(|| range().map(|(_, _, address)| address)).map(String::as_str)
    }

    pub(crate) fn moved(&mut self, slot: u16, address: String) {
        self.moved.insert(slot, address);
    }

    /// Every node known, once.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let ranges = self.ranges.iter().map(|(_, _, address)| address);
        let mut all: Vec<_> = ranges.chain(self.moved.values()).cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    /// The reply to `CLUSTER SLOTS` of a node on this host: none if it says nothing of any slot.
    pub(crate) fn parse(reply: &Value, host: &str) -> Option<Self> {
        let Value::Array(rows) = reply else { return None };
        let ranges: Vec<_> = rows.iter().filter_map(|row| range(row, host)).collect();
        (!ranges.is_empty()).then(|| Self { ranges, moved: HashMap::new() })
    }
}

/// First slot, last slot, and the nodes: the primary is the first.
fn range(row: &Value, host: &str) -> Option<(u16, u16, String)> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = row.as_slice() else {
        return None;
    };
    let [named, Value::Int(port), ..] = primary.as_slice() else { return None };
    let named = match named {
        Value::BulkString(named) => std::str::from_utf8(named).ok()?,
        _ => "",
    };
    let host = if named.is_empty() || named == "?" { host } else { named };
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, format!("{host}:{port}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{foo}.lock"), slot_of("foo"));
        assert_eq!(slot_of("{}foo"), crc16(b"{}foo") & (SLOTS - 1));
    }

    #[test]
    fn a_slot_that_moved_is_elsewhere_until_all_are_asked_for_again() {
        let node = |host: &[u8], port| {
            Value::Array(vec![Value::BulkString(host.to_vec()), Value::Int(port)])
        };
        let row = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let reply = Value::Array(vec![row(0, 99, node(b"a", 1)), row(100, 16_383, node(b"", 2))]);
        let mut slots = Slots::parse(&reply, "here").unwrap();
        assert_eq!(slots.address(99), Some("a:1"));
        assert_eq!(slots.address(100), Some("here:2"));
        slots.moved(99, "c:3".to_owned());
        assert_eq!(slots.address(99), Some("c:3"));
        assert_eq!(slots.addresses(), ["a:1", "c:3", "here:2"]);
        assert!(Slots::parse(&Value::Array(Vec::new()), "here").is_none());
    }
}
