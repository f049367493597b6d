//! The locks that a request names.

use crate::lock::{Name, Names as EngineNames};
use std::fmt;
use std::ops::Deref;

/// A database and a key in it.
pub(super) type LockName = (i32, &'static str);

pub(super) const KEYS: [&str; 6] = ["k0", "k1", "k2", "k3", "k4", "k5"];

/// One lock or several, all of one database, in the order of the request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Names {
    all: [LockName; KEYS.len()],
    count: usize,
}

impl Names {
    pub(super) fn of(db: i32, keys: &[&'static str]) -> Self {
        let all = std::array::from_fn(|at| (db, *keys.get(at).unwrap_or(&keys[0])));
        Self { all, count: keys.len() }
    }

    pub(super) fn one(name: LockName) -> Self {
        Self::of(name.0, &[name.1])
    }

    pub(super) fn is_one(&self) -> bool {
        self.count == 1
    }

    pub(super) fn meet(&self, others: &Self) -> bool {
        self.iter().any(|name| others.contains(name))
    }

    /// Whether these are the same locks, in any order.
    pub(super) fn are(&self, others: &[LockName]) -> bool {
        self.count == others.len() && self.iter().all(|name| others.contains(name))
    }

    /// The keys after the first, as the engine knows them.
    pub(super) fn also(&self) -> Vec<&'static [u8]> {
        self[1..].iter().map(|name| name.1.as_bytes()).collect()
    }

    pub(super) fn for_the_engine<'a>(&self, also: &'a [&'static [u8]]) -> EngineNames<'a> {
        EngineNames { first: lock(self[0]), also }
    }
}

impl Deref for Names {
    type Target = [LockName];

    fn deref(&self) -> &[LockName] {
        &self.all[..self.count]
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
