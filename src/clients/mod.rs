//! Who waits, and on which connection; the host of the engine.
//!
//! May import `keys` and what is below it.

pub(crate) mod capacity;
pub(crate) mod channel;
pub(crate) mod closing;
pub(crate) mod connections;
pub(crate) mod host;
pub(crate) mod wait;
