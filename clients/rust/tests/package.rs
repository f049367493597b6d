//! What is published: its README, what it depends on, and its features.

use crate::scene::{both_kinds, held, server, soon, url};
use leasehold_client::{Locks, Released};
use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use std::collections::BTreeSet;
use std::env;
use std::process::Command;

const README: &str = include_str!("../README.md");
const EXAMPLE: &str = include_str!("readme_example.rs");

/// How many crates a program that has no need for TLS builds, this one included.
const MOST_CRATES: usize = 70;

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
        itself.args([NAME, "--exact", "--nocapture"]).env("REDIS_URL", url(server.port()));
        let output = itself.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        for line in ["17 pages", "writing the report"] {
            assert!(said.contains(line), "{said}");
        }
        for lock in ["printer", "nightly-report"] {
            assert_eq!(held(&server, lock), None, "{lock}");
        }
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
fn the_crate_without_tls_is_at_most_seventy_crates() {
    let listed = cargo(
        "tree -p leasehold-client -e normal --no-default-features --no-dedupe --prefix none \
         --format {p}",
    );
    let crates: BTreeSet<_> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("leasehold-client"), "{listed}");
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

/// A program should not have to say twice where its server is and as whom it logs in.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_redis_crate_says_where_the_locks_are() {
    let server = server();
    // Characters that an address would have to have escaped.
    let password = "a/b:c@d #e?";
    server.cmd(["ACL", "SETUSER", "worker", "on", "~*", "&*", "+@all", &format!(">{password}")]);
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let user = RedisConnectionInfo::default().set_username("worker").set_password(password);
        let at = ConnectionAddr::Tcp("127.0.0.1".to_owned(), server.port());
        let info = at.into_connection_info().unwrap();
        let info = info.set_redis_settings(user.set_db(3).set_protocol(protocol));
        let client = redis::Client::open(info.clone()).unwrap();
        for locks in [Locks::new(&client).unwrap(), Locks::new(info).unwrap()] {
            let guard = locks.lock("printer").await.unwrap();
            let waiting = locks.lock("printer");
            let waiting = tokio::spawn(async move { waiting.await.unwrap() });
            let database = server.cmd("INFO keyspace");
            assert!(format!("{database:?}").contains("db3:keys="), "{database:?}");
            let who = format!("{:?}", server.cmd("CLIENT LIST"));
            assert!(who.contains("user=worker"), "{who}");
            assert_eq!(guard.release().await.unwrap(), Released::Released);
            let next = soon(waiting).await.unwrap();
            assert_eq!(next.release().await.unwrap(), Released::Released);
        }
    }
}
