//! What the module has the server do by itself: nothing while nothing happens, and little
//! otherwise.
//!
//! A command that the module calls shows up where an operator looks: in MONITOR, in the statistics
//! of commands, and in `instantaneous_ops_per_sec`.

use super::Waiter;
use redis::Value;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};
use testkit::contended::Contended;
use testkit::{Client, Cluster, Server, announce, is_older_than, lacks};

/// The servers that can check a command without executing it.
const DRY_RUNS: (u32, u32) = (7, 2);

/// Enough for a routine of once a second to show, however rare it is for each lock.
const LOCKS: usize = 1_000;

/// What must not happen is given so long to happen.
const A_WHILE: Duration = Duration::from_millis(3_500);

/// Which commands were executed since then, and how often, but for those of the test.
fn executed_since(before: &BTreeMap<String, u64>, client: &mut Client) -> BTreeMap<String, u64> {
    let mut now = client.executed();
    now.iter_mut().for_each(|(name, calls)| *calls -= before.get(name).unwrap_or(&0));
    now.retain(|name, calls| *calls > 0 && name != "info");
    now
}

/// All commands that the server has executed, whoever called them.
fn processed(client: &mut Client) -> u64 {
    client.info_number("stats", "total_commands_processed")
}

/// Looks at a server with many contended locks on which nobody does anything, in each way in which
/// an operator would.
fn assert_idle(server: &Server, prefix: &str) {
    let _contended = Contended::hold(server, prefix, LOCKS);
    let mut client = server.client();
    let mut monitor = server.client();
    // Whatever the waiters' coming has left to do has been done by then.
    thread::sleep(A_WHILE / 3);
    assert_eq!(monitor.cmd("MONITOR"), Value::Okay);
    let (before, count) = (client.executed(), processed(&mut client));
    thread::sleep(A_WHILE);
    let after = processed(&mut client);
    let rate = client.info_field("stats", "instantaneous_ops_per_sec").unwrap();
    let calls = executed_since(&before, &mut client);
    client.cmd("PING");
    let mut seen = Vec::new();
    loop {
        let line = format!("{:?}", monitor.receive());
        if line.contains("PING") {
            break;
        }
        if !line.to_lowercase().contains("\\\"info\\\"") {
            seen.push(line);
        }
    }
    let per_second = (after - count) as f64 / A_WHILE.as_secs_f64();
    announce(&format!(
        "{LOCKS} contended locks, idle: {per_second:.1} ops/s, by INFO {rate}, {calls:?}"
    ));
    assert!(calls.is_empty(), "nobody asked for {calls:?}");
    assert!(seen.is_empty(), "MONITOR shows {} commands, such as {:?}", seen.len(), seen[0]);
    // One that asks for these very figures.
    assert!(after - count <= 5, "{per_second} commands per second, and nobody asks");
    assert!(rate.parse::<u64>().unwrap() <= 5, "instantaneous_ops_per_sec is {rate}");
}

#[test]
fn an_idle_server_with_many_contended_locks_executes_nothing_by_itself() {
    assert_idle(&Server::start(), "lock:");
}

#[test]
fn an_idle_node_of_a_cluster_with_many_contended_locks_executes_nothing_by_itself() {
    let cluster = Cluster::of(1, 0);
    if lacks(DRY_RUNS, "questions of the module that nobody sees") {
        return assert_asks_seldom(cluster.node(0));
    }
    // In many slots.
    assert_idle(cluster.node(0), "lock:");
}

/// A node that cannot check a command without executing it is asked about a few slots at a time.
fn assert_asks_seldom(server: &Server) {
    let _contended = Contended::hold(server, "lock:", LOCKS);
    let mut client = server.client();
    let (before, begun) = (client.executed(), Instant::now());
    thread::sleep(A_WHILE);
    let mut calls = executed_since(&before, &mut client);
    let questions = calls.remove("exists").unwrap_or(0);
    let per_second = questions as f64 / begun.elapsed().as_secs_f64();
    announce(&format!("{LOCKS} contended locks of a cluster, idle: {per_second:.1} questions/s"));
    assert!(calls.is_empty(), "nobody asked for {calls:?}");
    assert!(per_second < 280.0, "{per_second} questions per second");
}

/// Clients that have not logged in can name slots as often as they like. Newer servers answer questions that nobody sees.
#[test]
fn who_names_slots_and_moves_none_has_no_locks_looked_at() {
    let cluster = Cluster::of(1, 0);
    if !is_older_than(DRY_RUNS) {
        return;
    }
    let server = cluster.node(0);
    let _contended = Contended::hold(server, "lock:", LOCKS);
    let mut client = server.client();
    let mut stranger = server.user("stranger", "-@all");
    let (before, begun) = (client.executed(), Instant::now());
    while begun.elapsed() < A_WHILE {
        for command in [
            "CLUSTER SETSLOT 7 NODE nobody",
            "CLUSTER DELSLOTS 7",
            "CLUSTER ADDSLOTS 7",
            "CLUSTER FLUSHSLOT 7",
            "SFLUSH 7 7",
        ] {
            assert!(matches!(stranger.cmd(command), Value::ServerError(_)), "{command}");
        }
        thread::sleep(Duration::from_millis(50));
    }
    let calls = executed_since(&before, &mut client);
    let questions = calls.get("exists").copied().unwrap_or(0);
    // One for each command that may bring a slot, and those of the rounds.
    let per_second = questions as f64 / begun.elapsed().as_secs_f64();
    assert!(per_second < 400.0, "{per_second} questions per second");
}

/// The server has checked a client's command already. Newer servers answer questions that nobody sees.
#[test]
fn a_release_that_hands_the_lock_on_asks_the_server_for_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    let before = client.executed();
    for (holder, next) in [("alice", "bob"), ("bob", "alice")].into_iter().cycle().take(20) {
        let mut waiter = Waiter::of(&server, "k", next);
        assert!(client.release("k", holder));
        waiter.fence();
    }
    let calls = executed_since(&before, &mut client);
    assert!(!calls.contains_key("setrange"), "nobody asked for {calls:?}");
}
