//! What the client promises, tested on real servers.
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

mod blocking;
mod closing;
mod crowds;
mod durable;
mod election;
mod endurance;
mod ephemeral;
mod events;
mod guarding;
mod guarding_faults;
mod health;
mod holding;
mod info;
mod interface;
mod keeping;
mod late;
mod leftovers;
mod listing;
mod losing;
mod measures;
mod package;
mod plain;
mod quorum;
mod quorum_storm;
mod renewing;
mod runtimes;
mod scene;
mod scope;
mod scripted_sentinel;
mod several;
mod sharing;
mod stories;
mod suspend;
mod tickets;
mod tls;
mod topology;
mod waiting;
mod wakers;
