//! What stands beside the module: that documents, examples, images, manifests, packages, alerts and workflows are true.
//!
//! A binary of its own, because whoever changes the module need not run it: `cargo test --test ops`, as CI does. Like the
//! integration tests it starts real servers, and heeds the same variables; see `tests/main.rs`.

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

mod docker;
mod docs;
mod examples;
mod kubernetes;
mod monitoring;
mod packaging;
mod workflows;

/// Where the project is.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
