//! The ACL is the boundary: who may run which command on which locks.

mod categories;
mod files;
mod keys;
mod waiting;

use redis::Value;
use testkit::{Client, Server, field, int, lacks, unchanged};

const LONG: u64 = 60_000;

/// Every command, in an order in which a holder can run them all.
const ALL: [&str; 7] = [
    "LOCK.ACQUIRE",
    "LOCK.EXTEND",
    "LOCK.CHECK",
    "LOCK.INFO",
    "LOCK.WAITERS",
    "LOCK.HELP",
    "LOCK.RELEASE",
];
const CHANGES: [&str; 3] = ["LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.RELEASE"];
const READS: [&str; 3] = ["LOCK.CHECK", "LOCK.INFO", "LOCK.WAITERS"];
const HELP: [&str; 1] = ["LOCK.HELP"];
const READS_AND_HELP: [&str; 4] = ["LOCK.CHECK", "LOCK.INFO", "LOCK.WAITERS", "LOCK.HELP"];
const ALL_BUT_ACQUIRE: [&str; 6] =
    ["LOCK.EXTEND", "LOCK.CHECK", "LOCK.INFO", "LOCK.WAITERS", "LOCK.HELP", "LOCK.RELEASE"];
const NONE: [&str; 0] = [];

/// What grants all commands on a server of any version.
fn all_commands() -> String {
    if lacks((7, 4), "a category of our own") {
        ALL.map(|name| format!("+{}", name.to_lowercase())).join(" ")
    } else {
        "+@lock".to_owned()
    }
}

/// Gives the user `worker` these rules and no others; its connection.
fn log_in(server: &Server, rules: &str) -> Client {
    let reply = server.cmd(format!("ACL SETUSER worker reset on nopass {rules}").trim_end());
    assert_eq!(reply, Value::Okay, "{rules}");
    authenticated(server)
}

fn authenticated(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(client.cmd("AUTH worker x"), Value::Okay);
    client
}

fn request(name: &str, key: &str) -> String {
    match name {
        "LOCK.ACQUIRE" | "LOCK.EXTEND" => format!("{name} {key} worker {LONG}"),
        "LOCK.CHECK" | "LOCK.RELEASE" => format!("{name} {key} worker"),
        "LOCK.INFO" | "LOCK.WAITERS" => format!("{name} {key}"),
        "LOCK.HELP" => name.to_owned(),
        other => panic!("{other}?"),
    }
}

/// The user runs these commands on this lock, which it holds, and no others: those change nothing.
#[track_caller]
fn assert_may_run(server: &Server, worker: &mut Client, key: &str, allowed: &[&str], why: &str) {
    let fence = server.client().grant(key, "worker", LONG);
    for name in ALL {
        let request = request(name, key);
        if !allowed.contains(&name) {
            assert_no_permission(server, worker, &request, why);
            continue;
        }
        let reply = worker.cmd(request);
        let right = match name {
            "LOCK.ACQUIRE" | "LOCK.CHECK" => reply == int(fence),
            "LOCK.EXTEND" | "LOCK.RELEASE" => reply == int(1),
            "LOCK.INFO" => field(&reply, "fence") == Some(&int(fence)),
            "LOCK.WAITERS" => reply == Value::Array(Vec::new()),
            _ => matches!(reply, Value::Array(_)),
        };
        assert!(right, "{name} {key} with {why:?}: {reply:?}");
    }
}

#[track_caller]
fn assert_no_permission(server: &Server, client: &mut Client, request: &str, why: &str) {
    let reply = unchanged(server, || client.cmd(request));
    let Value::ServerError(error) = &reply else { panic!("{request} with {why:?}: {reply:?}") };
    assert_eq!(error.code(), "NOPERM", "{request} with {why:?}");
}
