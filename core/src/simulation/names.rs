//! The locks that a request names, and the names of owners.

use crate::lock::Name;
use std::fmt;
use std::ops::Deref;
use std::sync::LazyLock;

/// A database and a key in it.
pub(super) type LockName = (i32, &'static str);

pub(super) const KEYS: [&str; 6] = ["k0", "k1", "k2", "k3", "k4", "k5"];

/// One lock or several, all of one database, in the order of the request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Names {
    all: [LockName; KEYS.len()],
    len: usize,
}

impl Names {
    pub(super) fn of(db: i32, keys: &[&'static str]) -> Self {
        let mut all = [(0, ""); KEYS.len()];
        all.iter_mut().zip(keys).for_each(|(name, &key)| *name = (db, key));
        Self { all, len: keys.len() }
    }

    pub(super) fn one(name: LockName) -> Self {
        Self::of(name.0, &[name.1])
    }

    pub(super) fn is_one(&self) -> bool {
        self.len() == 1
    }

    pub(super) fn meet(&self, others: &Self) -> bool {
        self.iter().any(|name| others.contains(name))
    }

    /// Whether these are the same locks, in any order.
    pub(super) fn are(&self, others: &[LockName]) -> bool {
        self.len() == others.len() && self.iter().all(|name| others.contains(name))
    }
}

impl Deref for Names {
    type Target = [LockName];

    fn deref(&self) -> &[LockName] {
        &self.all[..self.len]
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The name as the module knows it.
pub(super) fn lock(name: LockName) -> Name<'static> {
    Name::new(name.0, name.1.as_bytes())
}

pub(super) fn lock_name(name: Name<'_>) -> LockName {
    let key = KEYS.into_iter().find(|key| key.as_bytes() == name.key);
    (name.db, key.expect("a key that there is"))
}

pub(super) const CROWD: usize = 400;

pub(super) static OWNERS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| (0..CROWD).map(|number| &*format!("owner{number}").leak()).collect());

/// An owner's name, from `owner` and its number.
pub(super) fn owner_named(name: &[u8]) -> &'static str {
    let number =
        str::from_utf8(name).ok().and_then(|name| name.strip_prefix("owner")?.parse().ok());
    OWNERS[number.unwrap_or(usize::MAX)]
}
