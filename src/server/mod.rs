//! What the server tells the module as a whole: loading, changes, the timer, settings, INFO.
//!
//! May import all other folders.

pub(crate) mod cron;
pub(crate) mod info;
pub(crate) mod lifecycle;
pub(crate) mod load;
pub(crate) mod patches;
pub(crate) mod settings;
