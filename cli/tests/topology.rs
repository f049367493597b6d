//! Looking at locks through sentinels, on a cluster, and while a server dies.

use crate::program::{Ended, Program};
use crate::scene::{eventually_held, hold, leasehold, start, url, with_module};
use redis::Value;
use testkit::{Cluster, Sentinels};

fn ended(url: &str, words: &[&str]) -> Ended {
    Program::start(leasehold(url, words)).ends()
}

/// The exit code and standard output. Standard error must be empty.
fn printed(url: &str, words: &[&str]) -> (i32, String) {
    let ended = ended(url, words);
    assert_eq!(ended.said, "", "{words:?}");
    (ended.code, ended.printed)
}

fn hosts(ports: impl IntoIterator<Item = u16>) -> String {
    let hosts = ports.into_iter().map(|port| format!("127.0.0.1:{port}"));
    hosts.collect::<Vec<_>>().join(",")
}

#[test]
fn locks_are_looked_at_waited_for_and_released_through_sentinels_also_after_a_failover() {
    let mut sentinels = Sentinels::start();
    let ports = sentinels.ports();
    // Nothing listens at the first address.
    let url = format!("redis+sentinel://127.0.0.1:1,{}/locks", hosts(ports));
    for former in [None, Some(0)] {
        let primary = match former {
            None => 0,
            Some(former) => {
                sentinels.server_mut(former).kill();
                sentinels.wait_for_another_primary_than(former)
            }
        };
        let server = sentinels.server(primary);
        hold(server, "x", "alice");
        let (code, table) = printed(&url, &["ls"]);
        assert_eq!((code, table.lines().count()), (0, 2), "{table}");
        assert!(table.contains("x     alice "), "{table}");
        let (code, table) = printed(&url, &["show", "x"]);
        assert!(code == 0 && table.contains("alice"), "{table}");
        assert_eq!(ended(&url, &["wait", "--wait", "0", "x"]).code, 75);
        let waiting = Program::start(leasehold(&url, &["wait", "x"]));
        waiting.says("waiting for x: held by alice");
        let (code, told) = printed(&url, &["release", "x"]);
        assert!(code == 0 && told.starts_with("released x, held by alice"), "{told}");
        assert_eq!(waiting.ends().code, 0);
    }
}

#[test]
fn doctor_finds_the_primary_and_its_replicas_through_sentinels() {
    let sentinels = Sentinels::start();
    let url = format!("redis+sentinel://{}/locks", hosts(sentinels.ports()));
    let (code, told) = printed(&url, &["doctor"]);
    assert_eq!(code, 1, "{told}");
    assert_eq!(told.matches(", primary\n").count(), 1, "{told}");
    for index in [1, 2] {
        let line = format!("redis://127.0.0.1:{}/0: ", sentinels.server(index).port());
        let line = told.lines().find(|seen| seen.starts_with(&line));
        assert!(line.is_some_and(|line| line.ends_with(", replica")), "{told}");
    }
    assert!(told.contains("it goes on granting when it is cut off from its replicas"), "{told}");
}

#[test]
fn a_service_that_no_sentinel_knows_is_named() {
    let sentinels = Sentinels::start();
    let url = format!("redis+sentinel://{}/other", hosts(sentinels.ports()));
    for words in [&["ls"][..], &["doctor"]] {
        let ended = ended(&url, words);
        assert_eq!((ended.code, ended.printed.as_str()), (77, ""));
        assert!(ended.said.contains("knows no service other"), "{}", ended.said);
    }
}

#[test]
fn locks_of_a_cluster_are_looked_at_waited_for_and_released_wherever_they_are() {
    let cluster = Cluster::start();
    let ports: Vec<_> = cluster.nodes().iter().map(|node| node.port()).collect();
    let url = format!("redis+cluster://{}", hosts([1, ports[0]]));
    let mut nodes = [0; 3];
    for number in 0..9 {
        let name = format!("lock:{number}");
        cluster.client().cmd(["LOCK.ACQUIRE", &name, "alice", "60000"]);
        let node = cluster.nodes().iter().position(|node| node.cmd("DBSIZE") == Value::Int(1));
        let (code, table) = printed(&url, &["show", &name]);
        assert!(code == 0 && table.contains("alice"), "{table}");
        let waiting = Program::start(leasehold(&url, &["wait", &name]));
        waiting.says(&format!("waiting for {name}: held by alice"));
        let (code, told) = printed(&url, &["release", &name]);
        assert!(
            code == 0 && told.starts_with(&format!("released {name}, held by alice")),
            "{told}"
        );
        assert_eq!(waiting.ends().code, 0);
        assert_eq!(printed(&url, &["show", &name]), (1, format!("{name} is free\n")));
        nodes[node.unwrap()] += 1;
    }
    assert!(nodes.iter().all(|locks| *locks > 0), "all of them are in one place: {nodes:?}");
}

#[test]
fn doctor_examines_every_node_of_a_cluster_and_its_replicas() {
    let cluster = Cluster::of(3, 1);
    let url = format!("redis+cluster://{}", hosts([cluster.node(0).port()]));
    let (code, told) = printed(&url, &["doctor"]);
    assert_eq!(code, 1, "{told}");
    for node in cluster.nodes() {
        let line = format!("redis://127.0.0.1:{}: ", node.port());
        assert_eq!(told.lines().filter(|seen| seen.starts_with(&line)).count(), 1, "{told}");
    }
    assert_eq!(told.matches(", primary\n").count(), 3, "{told}");
    assert_eq!(told.matches(", replica\n").count(), 3, "{told}");
}

#[test]
fn doctor_says_that_it_has_looked_at_one_node_of_a_cluster_only() {
    let cluster = Cluster::of(1, 0);
    let (code, told) = printed(&url(cluster.node(0).port()), &["doctor"]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("a node of a cluster, and the others were not looked at"), "{told}");
}

#[test]
fn whoever_waits_for_a_lock_waits_on_while_the_server_is_away() {
    let mut server = with_module().aof().start();
    hold(&server, "x", "alice");
    let waiting = start(&server, &["wait", "x"]);
    waiting.says("waiting for x: held by alice");
    server.kill();
    waiting.says("waiting for x: no answer from ");
    server.start_again();
    eventually_held(&server, "x");
    // The server has reloaded the lock, so the program still waits.
    let shown = printed(&url(server.port()), &["show", "x"]);
    assert_eq!(shown.0, 0, "{}", shown.1);
    server.cmd("DEL x");
    let ended = waiting.ends();
    assert_eq!(ended.code, 0, "{}", ended.said);
}

#[test]
fn whoever_waits_for_a_lock_of_a_server_that_comes_back_empty_finds_it_free() {
    let mut server = with_module().start();
    hold(&server, "x", "alice");
    let waiting = start(&server, &["wait", "x"]);
    waiting.says("waiting for x: held by alice");
    server.kill();
    server.start_again();
    let ended = waiting.ends();
    assert_eq!(ended.code, 0, "{}", ended.said);
}

#[test]
fn locks_of_a_cluster_whose_nodes_do_not_know_their_names_are_listed() {
    // A node that does not know its own address.
    let cluster = Cluster::of(1, 0);
    let server = cluster.node(0);
    hold(server, "x", "alice");
    let url = format!("redis+cluster://{}", hosts([server.port()]));
    let (code, table) = printed(&url, &["ls"]);
    assert!(code == 0 && table.contains("x     alice "), "{table}");
    let (code, told) = printed(&url, &["doctor"]);
    assert!(code == 1 && told.contains(", primary\n"), "{told}");
}
