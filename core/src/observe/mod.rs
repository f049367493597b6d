//! What an operator can see, as data. Nothing here knows a server.
//!
//! ```text
//!   what happens to a lock          Observer                           what an operator asks
//!   (identity: which lock)
//!                             ┌► counters, histogram, tries ────────► INFO leasehold (info_fields)
//!    granted, refused, waits, │
//!    released, extended, lost ┼► contention ────────────────────────► LOCK.TOP
//!                             │
//!                             └► recent: was it late? ──► log ──────► LOCK.LOG
//! ```
//!
//! Nothing here grows with the number of locks, and nothing here decides about a lock.

mod contention;
mod counters;
mod event;
mod histogram;
mod identity;
mod info_fields;
mod log;
mod observer;
mod recent;
mod tries;
mod truncated;

pub use event::Event;
pub use info_fields::ServerGauges;
pub use log::Log;
pub use observer::{Given, Observer, USUAL_LONG_WAIT_MILLIS, WaitEnd};

#[cfg(test)]
impl Observer {
    /// For the simulation, which counts what clients are told.
    pub(crate) fn counters(&self) -> &counters::Counters {
        &self.counters
    }
}
