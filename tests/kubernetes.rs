//! The manifests for Kubernetes: what they say fits the rest, and the scripts and probes in them do what they say, run as
//! they stand, without a cluster.

mod group;
mod manifests;
mod single;
mod surviving;

use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
