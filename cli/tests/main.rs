//! What the command line promises, tested on real servers.
//!
//! The same variables choose the server and the build as for the tests of the module.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a test stops at the first surprise"
)]

mod asking;
mod at_terminal;
mod dispositions;
mod docs;
mod doctor;
mod electing;
mod ending;
mod faults;
mod looking;
mod program;
mod running;
mod scene;
mod signals;
mod tmux;
mod top;
mod top_ending;
mod top_once;
mod top_servers;
mod waiting;
