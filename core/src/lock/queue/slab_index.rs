//! An index into a slab, in four bytes even if it may be missing: each ticket has a dozen of them.

use std::num::NonZeroU32;

/// Kept as one more. There is memory for far fewer waiters than it can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlabIndex(NonZeroU32);

impl SlabIndex {
    pub(super) const FIRST: Self = Self(NonZeroU32::MIN);

    pub(super) fn get(self) -> usize {
        usize::try_from(self.0.get().saturating_sub(1)).unwrap_or(usize::MAX)
    }
}

impl From<usize> for SlabIndex {
    fn from(index: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)))
    }
}
