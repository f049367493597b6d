//! The core of Leasehold: what a lock is, and in which order things happen to it. The engine has three hosts: the module
//! in `src/` on a real server, the Rust client's server in memory, and the simulation on a virtual one.
//!
//! ```text
//!   engine      the order of what happens to a lock; asks a host for keys and time
//!     │
//!   command     words in, an outcome, a reply out: a page for each command
//!     │   observe      what an operator sees      cluster     slots
//!     │     │
//!   lock ───┘   holds, leases, fences, queues
//! ```
//! Imports go down these lines, never up. The compiler forbids unsafe code here, and a test forbids servers, clocks
//! and randomness.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "only the module and the client use it; names say what comments would repeat"
)]
#![allow(clippy::new_without_default, reason = "each `new` is const, which `Default` cannot be")]

pub mod cluster;
pub mod command;
pub mod engine;
pub mod lock;
pub mod observe;
#[cfg(test)]
mod simulation;
