//! The names of locks.

use std::rc::Rc;

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

/// The locks that one request names: at least one, each once, all in one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<'k> {
    pub first: Name<'k>,
    pub also: &'k [&'k [u8]],
}

impl<'k> Names<'k> {
    pub fn iter(self) -> impl Iterator<Item = Name<'k>> {
        let Name { db, .. } = self.first;
        std::iter::once(self.first).chain(self.also.iter().map(move |key| Name { db, key }))
    }

    pub const fn count(self) -> usize {
        self.also.len().saturating_add(1)
    }
}

impl<'k> From<Name<'k>> for Names<'k> {
    fn from(first: Name<'k>) -> Self {
        Self { first, also: &[] }
    }
}

/// [`Names`] as a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptNames {
    pub first: KeptName,
    pub also: Box<[KeptName]>,
}

impl KeptNames {
    pub fn iter(&self) -> impl Iterator<Item = &KeptName> {
        std::iter::once(&self.first).chain(&self.also)
    }
}

/// A [`Name`] as a copy. A clone shares the bytes of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
