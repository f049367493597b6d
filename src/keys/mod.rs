//! One key: opened and changed, suspected, watched, evicted, and applied from elsewhere.
//!
//! May import `cluster` and what is below it.

pub(crate) mod command_filter;
pub(crate) mod eviction;
pub(crate) mod fence_observer;
pub(crate) mod flushes;
pub(crate) mod open_key;
