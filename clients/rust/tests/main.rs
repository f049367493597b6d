//! What the client promises beyond what `clients/conformance` asks of every client, tested on real servers.
//!
//! The same variables choose the server and the build as for the tests of the module.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::undocumented_unsafe_blocks,
    reason = "a test stops at the first surprise"
)]

mod durable;
mod election;
mod endurance;
mod ephemeral;
mod events;
mod guarding;
mod keeping;
mod measures;
mod memory;
mod package;
mod places;
mod quorum;
mod runtimes;
mod scene;
mod several;
mod suspend;
mod tickets;
mod topology;
mod waiting;
