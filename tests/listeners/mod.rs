//! Whoever begins to listen to the server's changes, a replica or a file, misses none, although none is told while nobody
//! listens: see `src/replication/listeners.rs`.

mod filing;
mod joining;
mod load;
mod storm;

use redis::Value;
use testkit::{
    Client, Cluster, Server, Snapshot, announce, bulk_text, eventually, server_name, start_pair,
    wait_until_in_sync,
};

/// The servers of which it was shown that nobody misses anything. All others are told every change.
const SHOWN: [&str; 6] =
    ["redis 7.0", "redis 8.0", "redis 8.6", "valkey 8.0", "valkey 8.1", "valkey 9.1"];

/// Whether this server is told every change. If so, prints what goes untested.
fn is_always_told() -> bool {
    let is_shown = SHOWN.contains(&&*server_name());
    if !is_shown {
        announce(&format!("skipped on {}: changes that are not told", server_name()));
    }
    !is_shown
}

/// How many changes the server counts while it executes a grant and a release in one transaction. What it is told it counts at
/// once, and else a moment later.
fn counted_at_once(client: &mut Client) -> i64 {
    let probe = ["INFO persistence", "LOCK.ACQUIRE probe me 60000", "LOCK.RELEASE probe me"];
    let replies = client.transaction(&[&probe[..], &["INFO persistence"]].concat());
    assert!(matches!(replies[1..3], [Value::Int(_), Value::Int(1)]), "{replies:?}");
    changes_in(&replies[3]) - changes_in(&replies[0])
}

/// Whether the server is told of changes.
fn is_told(client: &mut Client) -> bool {
    match counted_at_once(client) {
        0 => false,
        2 => true,
        other => panic!("{other} changes were counted"),
    }
}

fn changes_in(info: &Value) -> i64 {
    let text = bulk_text(info);
    let field = text.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    field.unwrap().parse().unwrap()
}

fn changes(client: &mut Client) -> i64 {
    changes_in(&client.cmd("INFO persistence"))
}

/// Waits until changes are not told any more, on a server on which this ever comes.
#[track_caller]
fn wait_until_nobody_listens(server: &Server) {
    if is_always_told() {
        return;
    }
    let mut client = server.client();
    eventually("nobody is told", || if is_told(&mut client) { Err(()) } else { Ok(()) });
}

#[test]
fn changes_are_not_told_where_nobody_listens() {
    if is_always_told() {
        return;
    }
    wait_until_nobody_listens(&Server::start());
}

#[test]
fn every_change_is_told_in_a_cluster() {
    let cluster = Cluster::of(1, 0);
    assert_always_told(cluster.node(0));
}

#[test]
fn every_change_is_told_to_a_server_that_is_not_known() {
    if SHOWN.contains(&&*server_name()) {
        return;
    }
    assert_always_told(&Server::start());
}

#[test]
fn every_change_is_told_after_a_restart_with_the_history_of_replicas() {
    let (mut primary, replica) = start_pair(Server::builder(), Server::builder());
    primary.client().cmd("LOCK.ACQUIRE k alice 60000000");
    wait_until_in_sync(&primary, &replica);
    assert_eq!(primary.cmd("SAVE"), Value::Okay);
    primary.kill();
    primary.start_again();
    if primary.client().info_field("replication", "repl_backlog_active").unwrap() == "1" {
        assert_always_told(&primary);
    }
    wait_until_in_sync(&primary, &replica);
    assert_eq!(Snapshot::of(&primary), Snapshot::of(&replica));
}

/// Probes for longer than the module takes to look for listeners.
#[track_caller]
fn assert_always_told(server: &Server) {
    let mut client = server.client();
    let begun = client.now();
    while client.now() < begun + 500 {
        assert!(is_told(&mut client));
    }
}
