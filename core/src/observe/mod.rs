//! What an operator can see, as data. Nothing here knows a server.
//!
//! ```text
//!   what happens to a lock          Observer                           what an operator asks
//!   (identity: which lock)
//!                             ┌► counters, histogram, tries ► figures ─► INFO leasehold
//!    granted, refused, waits, │
//!    released, extended, lost ┼► contention ────────────────────────► LOCK.TOP
//!                             │
//!                             └► recent: was it late? ──► log ──────► LOCK.LOG
//! ```
//!
//! Nothing here grows with the number of locks, and no lock is decided by any of it.

mod contention;
mod counters;
mod event;
mod figures;
mod histogram;
mod identity;
mod log;
mod observer;
mod recent;
mod shown;
mod tries;

pub use event::Event;
pub use figures::Elsewhere;
pub use log::Log;
pub use observer::{Given, Loss, Observer, USUAL_LONG_WAIT_MILLIS, WaitEnd};
