//! Scenario `silent`: while nobody asks for anything, the module executes nothing and replicates
//! nothing.

use crate::runner::Totals;
use redis::Value;
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use testkit::contended::Contended;
use testkit::{Client, Seed, Server, wait_until_in_sync};

const LOCKS: usize = 300;

/// Longer than the period of a server's routines.
const A_WHILE: Duration = Duration::from_millis(1_200);

/// Commands that servers send to each other, and those of this scenario.
const USUAL: [&str; 9] =
    ["info", "ping", "replconf", "psync", "sync", "auth", "monitor", "client", "replicaof"];

pub(crate) fn silent(seed: u64, length: Duration) -> Totals {
    let mut seed = Seed::of(seed);
    let mut totals = Totals::default();
    let begin = Instant::now();
    let server = Server::builder().tcp().config("repl-ping-replica-period", "3600").start();
    // A replica that hears nothing for this long connects anew, and is told of the fence clock then.
    let replica = Server::builder().config("repl-timeout", "3600").replica_of(&server).start();
    wait_until_in_sync(&server, &replica);
    let _contended = Contended::hold(&server, "lock:", LOCKS);
    thread::sleep(A_WHILE);
    totals.grants = LOCKS as u64;
    totals.waited = LOCKS as u64;
    while begin.elapsed() < length && totals.wrong.is_empty() {
        totals.wrong.extend(match seed.below(2) {
            0 => idle(&server),
            _ => unused(seed.below(2) == 0),
        });
        totals.operations += 1;
        totals.faults += 1;
    }
    totals.micros = begin.elapsed().as_micros();
    totals
}

/// Locks are held and waited for, and nothing happens to them.
fn idle(server: &Server) -> Option<String> {
    let mut client = server.client();
    let mut monitor = server.client();
    assert_eq!(monitor.cmd("MONITOR"), Value::Okay);
    let (offset, executed) = (offset(&mut client), executed(&mut client));
    thread::sleep(A_WHILE);
    let mut calls = self::executed(&mut client);
    calls.iter_mut().for_each(|(name, calls)| *calls -= executed.get(name).unwrap_or(&0));
    calls.retain(|_, calls| *calls > 0);
    if !calls.is_empty() {
        return Some(format!("L6: an idle server with {LOCKS} contended locks executes {calls:?}"));
    }
    let told = self::offset(&mut client) - offset;
    if told != 0 {
        return Some(format!(
            "L7: an idle server with {LOCKS} contended locks told its replica {told} bytes"
        ));
    }
    client.cmd("PING");
    let mut seen = Vec::new();
    loop {
        let line = format!("{:?}", monitor.receive());
        if line.contains("PING") {
            break;
        }
        seen.extend((!line.contains("INFO")).then_some(line));
    }
    let first = seen.first()?;
    Some(format!("L6: MONITOR of an idle server shows {} commands, such as {first}", seen.len()))
}

/// No lock was ever used. Replicas and the append-only file hear nothing of the module.
fn unused(with_file: bool) -> Option<String> {
    let setup = Server::builder().tcp().config("repl-ping-replica-period", "3600");
    let server = if with_file { setup.aof() } else { setup }.start();
    let replica = Server::builder().tcp().replica_of(&server).start();
    wait_until_in_sync(&server, &replica);
    // Another replica joins, and the first becomes its primary.
    let second = Server::builder().replica_of(&server).start();
    wait_until_in_sync(&server, &second);
    server.cmd("SET v x");
    thread::sleep(A_WHILE / 4);
    wait_until_in_sync(&server, &replica);
    let mut client = replica.client();
    let mut told = executed(&mut client);
    told.retain(|name, calls| {
        // A module reads its settings by a command.
        let is_own = name == "select" || name.starts_with("config");
        !is_own && (name != "set" || *calls > 1)
    });
    if !told.is_empty() {
        return Some(format!(
            "L7: a server without locks told its replica more than one SET: {told:?}"
        ));
    }
    let files = ["appendonlydir", "."].map(|folder| server.dir().join(folder));
    let files =
        files.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let named = |path: &std::path::Path| path.to_string_lossy().contains("aof");
    for file in files.map(|entry| entry.path()).filter(|path| named(path) && path.is_file()) {
        let text = fs::read(&file).unwrap_or_default();
        if text.windows(10).any(|part| part == b"leasehold:") {
            return Some(format!(
                "L7: a server without locks wrote of fences to {}",
                file.display()
            ));
        }
    }
    None
}

fn offset(client: &mut Client) -> u64 {
    client.info_number("replication", "master_repl_offset")
}

/// How often each command was executed, without the usual ones.
fn executed(client: &mut Client) -> BTreeMap<String, u64> {
    let mut calls = client.executed();
    calls.retain(|name, _| !USUAL.iter().any(|usual| name.split('|').next() == Some(usual)));
    calls
}
