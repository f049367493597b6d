//! Judges what clients of a lock server were told.
//!
//! ```text
//!   record      one operation: who asked for what and when, and the reply
//!   lateness    whether a server that answers is late with something
//!   checker     a hundred million records: can a server that keeps L1 to L5 have answered so?
//!   report      the few that contradict each other, for people
//!   transcript  all of them, for checkers of others
//! ```
//!
//! Nothing here knows a server. The campaign itself is `run/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a test stops at the first surprise"
)]

mod checker;
#[cfg(test)]
mod histories;
mod lateness;
mod record;
mod report;
mod transcript;

pub use checker::{History, Law, Rules, Span, Verdict, Violation};
pub use lateness::Lateness;
pub use record::{EVERY_LOCK, Op, Outcome, Record};
pub use transcript::Shape;
