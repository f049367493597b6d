//! The programs do what they say, on real servers and through their faults.

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

mod leader;
mod nightly;
mod program;
mod tickets;
