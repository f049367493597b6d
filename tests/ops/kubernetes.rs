//! The manifests for Kubernetes: what they say fits the rest, and the scripts and probes in them do what they say, run as
//! they stand, without a cluster.

mod group;
mod manifests;
mod secret;
mod single;
mod surviving;

use crate::ROOT;
use std::fs;
use std::path::Path;

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
