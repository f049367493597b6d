//! What Leasehold promises, tested over the wire on real servers.
//!
//! One binary, so that it links once and its tests run side by side. Each test starts servers of its
//! own, in a temporary directory, and is named by the sentence it proves. `tests/ops/` has what looks at
//! documents, images, manifests and the like.
//!
//! - `LEASEHOLD_SERVER` names the server's binary; else it is the redis-server or valkey-server in PATH.
//! - `LEASEHOLD_MODULE` names another build of the module than the one made for this run.
//! - `LEASEHOLD_OTHER_MODULE` names the build to upgrade from and to go back to; else it is the
//!   same one.
//! - `LEASEHOLD_SOAK` makes some tests as long as it takes to be sure (`scripts/test-long`), and `LEASEHOLD_FIGURES` names a file
//!   for what they measure.
//! - `LEASEHOLD_SEED` repeats the random tests of an earlier run.

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

mod acl;
mod beyond;
mod commands;
mod config;
mod contracts;
mod dropping;
mod ephemeral;
mod eviction;
mod faults;
mod fencing;
mod guarding;
mod harness;
mod hostile;
mod innocent;
mod instructions;
mod listeners;
mod load;
mod observing;
mod panics;
mod promotion;
mod quarantine;
mod replication;
mod restarts;
mod settings;
mod several;
mod shared;
mod silent;
mod tickets;
mod tidy;
mod tracking;
mod upgrading;
mod waiting;

/// Where the project is.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
