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
mod page;
mod program;
mod workflows;

use std::fs;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

/// Where the project is.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The documents of a file. JSON is YAML too.
fn yaml(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The texts of a list.
fn words(list: &Yaml) -> Vec<&str> {
    list.as_vec().into_iter().flatten().filter_map(Yaml::as_str).collect()
}

/// The files below this folder whose names end so, by their paths from the root.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&name, ending));
        } else if name.ends_with(ending) {
            found.push(name);
        }
    }
    found.sort();
    found
}
