//! The core of Leasehold: what a lock is, and in which order things happen to it. The module in `src/`
//! is the host of the engine on a real server, the simulation its host on a virtual one.
//!
//! ```text
//!   engine      in which order things happen to a lock; it asks a host for keys and time
//!     │
//!   command     words in, an outcome, a reply out: a page for each command
//!     │   observe      what an operator sees      cluster     slots
//!     │     │
//!   lock ───┘   holds, leases, fences, queues
//! ```
//! Imports go down these lines, never up. The compiler refuses unsafe code here, and a test refuses
//! servers, clocks and randomness.

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
#[cfg(test)]
mod simulation;
