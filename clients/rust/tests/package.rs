//! What is published: its README, what it depends on, and that all of it can be sent between threads.

use crate::scene::{both_kinds, held};
use std::collections::BTreeSet;
use std::env;
use std::process::Command;

const README: &str = include_str!("../README.md");
const EXAMPLE: &str = include_str!("readme_example.rs");

/// How many crates a program that has no need for TLS builds, this one included.
const MOST_CRATES: usize = 85;

mod readme {
    include!("readme_example.rs");

    pub(super) fn run() {
        main().unwrap();
    }
}

/// In a process of its own, whose environment nobody else reads.
#[test]
fn the_example_of_the_readme_runs_and_leaves_no_lock() {
    const NAME: &str = "package::the_example_of_the_readme_runs_and_leaves_no_lock";
    if env::var_os("REDIS_URL").is_some() {
        return readme::run();
    }
    assert!(README.contains(&format!("```rust\n{EXAMPLE}```\n")), "{README}");
    for server in both_kinds() {
        let mut itself = Command::new(env::current_exe().unwrap());
        let url = format!("redis://127.0.0.1:{}", server.port());
        itself.args([NAME, "--exact", "--nocapture"]).env("REDIS_URL", url);
        let output = itself.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("printing, with fence "), "{said}");
        assert_eq!(held(&server, "printer"), None);
    }
}

fn cargo(arguments: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments.split(' ')).args(["--offline", "--locked"]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_crate_without_tls_depends_on_few() {
    let listed = cargo(
        "tree -p leasehold-client -e normal --no-default-features --no-dedupe --prefix none \
         --format {p}",
    );
    let crates: BTreeSet<_> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("leasehold-client"), "{listed}");
    assert!(!crates.contains("leasehold-core"), "it is for the feature `testing`");
    assert!(crates.len() <= MOST_CRATES, "{}: {crates:#?}", crates.len());
}

/// `cargo update` could bring one in: it builds with the newest compiler, and not with the oldest
/// that is promised.
#[test]
fn nothing_that_is_depended_on_needs_a_newer_compiler_than_the_crate() {
    let minor = |version: &str| version.split('.').nth(1).unwrap().parse::<u32>().unwrap();
    let promised = minor(env!("CARGO_PKG_RUST_VERSION"));
    // What other systems need may not have been downloaded.
    let versions = cargo("-vV");
    let host = versions.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let known = cargo(&format!("metadata --format-version 1 --filter-platform {host}"));
    let needed = known.split("\"rust_version\":\"").skip(1).map(|rest| rest.split('"').next());
    let needed: BTreeSet<_> = needed.flatten().collect();
    let newer: Vec<_> = needed.iter().filter(|version| minor(version) > promised).collect();
    assert!(needed.len() > 3 && newer.is_empty(), "{newer:?} of {needed:?}");
}

/// Futures that hold a guard are spawned on runtimes with several threads.
#[test]
fn everything_can_be_sent_and_shared_between_threads() {
    fn is_sent_and_shared<T: Send + Sync>() {}
    is_sent_and_shared::<leasehold_client::blocking::Locks>();
    is_sent_and_shared::<leasehold_client::Detached>();
    is_sent_and_shared::<leasehold_client::Election>();
    is_sent_and_shared::<leasehold_client::Error>();
    is_sent_and_shared::<leasehold_client::Guard>();
    is_sent_and_shared::<leasehold_client::Leaders>();
    is_sent_and_shared::<leasehold_client::Locks>();
    is_sent_and_shared::<leasehold_client::Request>();
    is_sent_and_shared::<leasehold_client::Server>();
    is_sent_and_shared::<leasehold_client::Settings>();
}
