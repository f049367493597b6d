//! The identity that a client presents.

use std::borrow::Borrow;
use std::rc::Rc;

/// 1 to 255 bytes of anything; nothing assumes text. An owner is an identity, not a secret: the server's ACL decides
/// who may run the commands at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a>(&'a [u8]);

impl<'a> Owner<'a> {
    pub const LONGEST: usize = 255;

    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (1..=Self::LONGEST).contains(&bytes.len()).then_some(Self(bytes))
    }

    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// An owner that outlives its request, such as a waiter's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeptOwner(Rc<[u8]>);

impl KeptOwner {
    pub fn as_owner(&self) -> Owner<'_> {
        Owner(&self.0)
    }
}

impl From<Owner<'_>> for KeptOwner {
    fn from(owner: Owner<'_>) -> Self {
        Self(owner.0.into())
    }
}

/// Lets a map of kept owners be searched by plain bytes.
impl Borrow<[u8]> for KeptOwner {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}
