//! What an operator can see, as data. Nothing here knows a server.

use std::ffi::CStr;

/// The figures behind `INFO leasehold`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Panics turned into error replies. Any is a defect of the module.
    pub(crate) panics_caught: u64,
    /// Fences met in values that were too far ahead of the clock to be learned.
    pub(crate) fences_refused: u64,
    /// By how many microseconds the next fence is ahead of the wall clock.
    pub(crate) fence_ahead_us: u64,
    /// How many wait now.
    pub(crate) waiters: u64,
    /// Locks that the server evicted while somebody waited for them, and that were put back.
    pub(crate) evictions_restored: u64,
}

impl Figures {
    pub(crate) const fn rows(&self) -> [(&'static CStr, u64); 5] {
        [
            (c"panics_caught", self.panics_caught),
            (c"fences_refused", self.fences_refused),
            (c"fence_ahead_us", self.fence_ahead_us),
            (c"waiters", self.waiters),
            (c"evictions_restored", self.evictions_restored),
        ]
    }
}
