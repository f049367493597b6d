//! What the command line promises, tested on real servers.
//!
//! The server and the build are chosen by the same variables as in the tests of the module.

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
mod completing;
mod dispositions;
mod docs;
mod doctor;
mod electing;
mod ending;
mod faults;
mod hardships;
mod installing;
mod looking;
mod manual;
mod mcp;
mod program;
mod refused;
mod running;
mod scene;
mod signals;
mod tls;
mod tmux;
mod top;
mod top_ending;
mod top_once;
mod top_servers;
mod topology;
mod waiting;
mod walk;
mod watching;
mod words;
