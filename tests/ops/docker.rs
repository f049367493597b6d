//! The images and compose files: what they say fits the rest, and their scripts and commands do what they say, run as
//! they stand, without containers.

pub(crate) mod container;
mod health;
mod image;
mod stack;
mod starting;

use crate::ROOT;
use stack::Stack;
use std::fs;
use std::path::Path;
use testkit::find_cli;

const IMAGES: [(&str, &str); 2] = [("redis", "Redis"), ("valkey", "Valkey")];

/// Since when redis-cli knows all that is asked of it.
pub(crate) const CLI_SINCE: (u32, u32) = (5, 0);

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn images_have_the_oldest_compiler_that_is_promised_and_servers_that_are_tested() {
    let (manifest, readme) = (text("Cargo.toml"), text("README.md"));
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    for (name, product) in IMAGES {
        let file = text(&format!("docker/{name}.Dockerfile"));
        let bases: Vec<_> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
        let [builder, "scratch AS files", "${BASE}"] = bases[..] else { panic!("{bases:?}") };
        let server = file.lines().find_map(|line| line.strip_prefix("ARG BASE=")).unwrap();
        let server = server.split('@').next().unwrap();
        let builder = builder.split('@').next().unwrap().split(' ').next().unwrap();
        assert_eq!(builder, format!("rust:{}.0-slim-bookworm", rust.trim_matches('"')));
        let version = server.rsplit(':').next().unwrap();
        let is_its_row = |line: &str| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            cells.len() > 3
                && cells[1].starts_with(product)
                && cells[2].split(", ").any(|tested| tested == version)
        };
        assert!(readme.lines().any(is_its_row), "{server} is not tested, says README.md");
        assert!(file.lines().any(|line| line == format!("USER {name}")), "runs as root");
    }
}

#[test]
fn what_images_copy_is_there_and_not_ignored() {
    let ignored = text(".dockerignore");
    let kept: Vec<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(kept.iter().all(|name| Path::new(ROOT).join(name).exists()), "{kept:?}");
    // Cargo reads all members, whichever it builds.
    let workspace = text("Cargo.toml");
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    let members: Vec<_> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.len() > 5 && members.iter().all(|name| kept.contains(name)), "{members:?}");
    for (name, _) in IMAGES {
        let file = text(&format!("docker/{name}.Dockerfile"));
        let copied = file.split_whitespace().filter(|word| word.starts_with("docker/"));
        let copied: Vec<_> = copied.filter(|word| !word.ends_with(".Dockerfile")).collect();
        assert_eq!(copied, ["docker/entrypoint", "docker/healthcheck"]);
        assert!(copied.iter().all(|name| kept.contains(name)), "{copied:?}");
    }
}

#[test]
fn every_compose_file_names_images_and_files_that_are_there() {
    for name in ["compose.yaml", "compose.sentinel.yaml", "compose.cluster.yaml"] {
        Stack::read(name).assert_whole();
    }
}

#[test]
fn the_steps_of_the_page_kill_a_primary_and_its_lock_survives() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let mut stack = Stack::start("compose.sentinel.yaml");
    let acquire = "exec primary leasehold-entrypoint cli LOCK.ACQUIRE printer alice 600000";
    let fence = stack.eventually(acquire, is_number);
    stack.eventually("exec primary leasehold-entrypoint cli WAIT 2 1000", |heard| heard == "2");
    // A sentinel that has not heard of replicas and of the others cannot choose.
    for sentinel in ["sentinel-1", "sentinel-2", "sentinel-3"] {
        let ask =
            format!("exec {sentinel} leasehold-entrypoint cli -p 26379 SENTINEL MASTER locks");
        stack.eventually(&ask, |told| {
            told.contains("num-slaves\n2\n") && told.contains("num-other-sentinels\n2\n")
        });
    }
    stack.step("kill primary");
    let ask =
        "exec sentinel-1 leasehold-entrypoint cli -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME locks";
    let chosen = stack.eventually(ask, |address| {
        address.starts_with("172.28.7.1") && !address.starts_with("172.28.7.11\n")
    });
    let address = chosen.lines().next().unwrap();
    // The page has one of the two.
    stack.call("172.28.7.12", address);
    let there = "exec sentinel-1 leasehold-entrypoint cli -h 172.28.7.12";
    stack.eventually(&format!("{there} LOCK.CHECK printer alice"), |held| held == fence);
    assert_eq!(stack.step(&format!("{there} LOCK.ACQUIRE printer bob 600000")), "");
    assert_eq!(stack.step(&format!("{there} LOCK.RELEASE printer alice")), "1");
    let next = stack.step(&format!("{there} LOCK.ACQUIRE printer bob 600000"));
    assert!(number(&next) > number(&fence), "{next} after {fence}");
    stack.step("start primary");
    let role = "exec primary leasehold-entrypoint cli ROLE";
    stack.eventually(role, |role| role.starts_with("slave\n"));
    // Not only when a sentinel has seen it: its file says so now.
    stack.step("restart primary");
    let first = stack.eventually(role, |role| role.contains('\n'));
    assert!(first.starts_with("slave\n"), "{first}");
}

#[test]
fn the_steps_of_the_page_kill_a_node_and_its_lock_survives() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let mut stack = Stack::start("compose.cluster.yaml");
    let state = "exec node-1 leasehold-entrypoint cli CLUSTER INFO";
    stack.eventually(state, |info| {
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6")
    });
    // Other nodes may need a moment more.
    let acquire = "exec node-1 leasehold-entrypoint cli -c LOCK.ACQUIRE printer alice 600000";
    let fence = stack.eventually(acquire, is_number);
    let slot = stack.step("exec node-1 leasehold-entrypoint cli CLUSTER KEYSLOT printer");
    assert!(
        (10_923..=16_383).contains(&number(&slot)),
        "the page kills node-3, but the slot is {slot}"
    );
    // Whom the page kills has to have told its replica.
    let heard = "exec node-3 leasehold-entrypoint cli WAIT 1 1000";
    stack.eventually(heard, |heard| heard == "1");
    stack.step("kill node-3");
    let check = "exec node-1 leasehold-entrypoint cli -c LOCK.CHECK printer alice";
    stack.eventually(check, |held| held == fence);
    // Until all nodes agree, some say once more that the cluster is down.
    let release = "exec node-1 leasehold-entrypoint cli -c LOCK.RELEASE printer alice";
    stack.eventually(release, |released| released == "1");
    let acquire = "exec node-1 leasehold-entrypoint cli -c LOCK.ACQUIRE printer bob 600000";
    let next = stack.eventually(acquire, is_number);
    assert!(number(&next) > number(&fence), "{next} after {fence}");
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}
