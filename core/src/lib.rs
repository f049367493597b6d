//! The core of Leasehold: what a lock is, and in which order things happen to it.
//!
//! ```text
//!   command     bytes in, reply out: a page for each command
//!     │   observe      what an operator sees      cluster     slots
//!     │     │
//!   lock ───┘   holds, leases, fences, queues
//! ```
//! Imports go down these lines, never up. The compiler sees to what is deliberately absent: unsafe code. The rest is seen
//! to by a test: no server, no clock, no randomness.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "nobody but the module uses it; names say what comments would repeat"
)]
#![allow(clippy::new_without_default, reason = "each `new` is const, which `Default` cannot be")]

pub mod cluster;
pub mod command;
pub mod engine;
pub mod lock;
pub mod observe;
pub mod plant;
#[cfg(test)]
mod simulation;
