//! The keys of the virtual server.

use super::names::LockName;
use crate::lock::{Deadline, Stored};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone)]
pub(super) enum Kept {
    Text { value: Box<[u8]>, deadline: Option<u64> },
    OtherType,
}

impl Kept {
    pub(super) fn stored(&self) -> Stored<'_> {
        match self {
            Self::OtherType => Stored::OtherType,
            Self::Text { value, deadline } => {
                Stored::Text { value, deadline: deadline.map(Deadline::from_millis) }
            }
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { value, deadline: None } => write!(f, "{}", value.escape_ascii()),
            Self::Text { value, deadline: Some(deadline) } => {
                write!(f, "{} until {deadline}", value.escape_ascii())
            }
            Self::OtherType => write!(f, "another type"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Keyspace {
    pub(super) kept: BTreeMap<LockName, Kept>,
}

impl Keyspace {
    pub(super) fn stored(&self, name: LockName) -> Stored<'_> {
        self.kept.get(&name).map_or(Stored::Nothing, Kept::stored)
    }

    pub(super) fn put(&mut self, name: LockName, value: &[u8], deadline: Option<u64>) {
        self.kept.insert(name, Kept::Text { value: value.into(), deadline });
    }

    pub(super) fn has_expired(&self, name: LockName, at_millis: u64) -> bool {
        let kept = self.kept.get(&name);
        matches!(kept, Some(Kept::Text { deadline: Some(deadline), .. }) if at_millis > *deadline)
    }
}

pub(super) fn swap_entries<T>(map: &mut BTreeMap<LockName, T>, one: LockName, other: LockName) {
    let (from_one, from_other) = (map.remove(&one), map.remove(&other));
    map.extend(from_one.map(|entry| (other, entry)));
    map.extend(from_other.map(|entry| (one, entry)));
}
