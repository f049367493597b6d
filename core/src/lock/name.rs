//! Which lock.

use std::rc::Rc;

/// A lock's database and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'k> {
    pub db: i32,
    pub key: &'k [u8],
}

impl<'k> Name<'k> {
    pub const fn new(db: i32, key: &'k [u8]) -> Self {
        Self { db, key }
    }
}

/// The same, kept. A copy shares the bytes of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptName {
    pub db: i32,
    pub key: Rc<[u8]>,
}

impl KeptName {
    pub fn as_name(&self) -> Name<'_> {
        Name { db: self.db, key: &self.key }
    }
}

impl From<Name<'_>> for KeptName {
    fn from(Name { db, key }: Name<'_>) -> Self {
        Self { db, key: key.into() }
    }
}
