//! Slots that come and go.
//!
//! May import `replication` and what is below it.

pub(crate) mod slot_probe;
pub(crate) mod slots;
