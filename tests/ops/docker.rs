//! The images and compose files: their scripts and commands do what they say, run as they stand, without containers.

pub(crate) mod container;
mod health;
mod image;
mod stack;
mod starting;

use crate::{ROOT, files, text};
use stack::Stack;
use std::path::Path;

#[test]
fn every_compose_file_names_files_that_are_there() {
    for name in files("docker", ".yaml") {
        let text = text(&name).replace("${SERVER:-redis}", "redis");
        let built = text.lines().filter_map(|line| line.trim().strip_prefix("dockerfile: "));
        let mounted = text.lines().filter_map(|line| line.split_once("\"./")?.1.split_once(":/"));
        let mounted = mounted.map(|(file, _)| format!("docker/{file}"));
        let mut named = built.map(str::to_owned).chain(mounted);
        assert_eq!(named.find(|file| !Path::new(ROOT).join(file).exists()), None, "{name}");
    }
}

#[test]
fn the_steps_of_the_page_kill_a_primary_and_its_lock_survives() {
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
    let mut stack = Stack::start("compose.cluster.yaml");
    let node = "exec node-1 leasehold-entrypoint cli";
    stack.eventually(&format!("{node} CLUSTER INFO"), |info| {
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6")
    });
    // Other nodes may need a moment more.
    let fence =
        stack.eventually(&format!("{node} -c LOCK.ACQUIRE printer alice 600000"), is_number);
    let slot = number(&stack.step(&format!("{node} CLUSTER KEYSLOT printer")));
    assert!((10_923..=16_383).contains(&slot), "the page kills node-3, but the slot is {slot}");
    // Whom the page kills has to have told its replica.
    let heard = "exec node-3 leasehold-entrypoint cli WAIT 1 1000";
    stack.eventually(heard, |heard| heard == "1");
    stack.step("kill node-3");
    stack.eventually(&format!("{node} -c LOCK.CHECK printer alice"), |held| held == fence);
    // Until all nodes agree, some say once more that the cluster is down.
    stack.eventually(&format!("{node} -c LOCK.RELEASE printer alice"), |released| released == "1");
    let next = stack.eventually(&format!("{node} -c LOCK.ACQUIRE printer bob 600000"), is_number);
    assert!(number(&next) > number(&fence), "{next} after {fence}");
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}
