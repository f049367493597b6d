//! Loading, refusing to load, and unloading.

mod fences;
mod parsed;

use redis::Value;
use testkit::{
    Clock, Server, UNLOAD, clock::HOUR, field, int, misplaces_clients, module, start_pair,
    wait_until_in_sync,
};

const LONG: u64 = 60_000;

/// The warnings in a log, without process and time: `123:M 21 Nov 2026 04:00:05.123 # text`.
fn warnings(log: &str) -> Vec<&str> {
    let texts = log.lines().filter_map(|line| line.split_once(" # ")).map(|(_, text)| text);
    texts.filter(|text| !text.contains("pid=")).collect()
}

fn module_load(args: &str) -> String {
    format!("MODULE LOAD {}{args}", module::path().display())
}

#[test]
fn an_ordinary_load_warns_of_nothing() {
    let (with, without) = (Server::start(), Server::builder().without_module().start());
    let (with, without) = (with.log(), without.log());
    assert_eq!(warnings(&with), warnings(&without));
    let ready = format!("<leasehold> version {} is ready", env!("CARGO_PKG_VERSION"));
    assert_eq!(with.matches(&ready).count(), 1, "{with}");
}

#[test]
fn the_server_lists_the_module_with_its_version() {
    let server = Server::start();
    let reply = server.cmd("MODULE LIST");
    let Value::Array(modules) = &reply else { panic!("{reply:?}") };
    let ours = modules.iter().find(|module| {
        field(module, "name")
            .is_some_and(|name| matches!(name, Value::BulkString(name) if name == b"leasehold"))
    });
    let part = |part: &str| part.parse::<i64>().unwrap();
    let version = 10_000 * part(env!("CARGO_PKG_VERSION_MAJOR"))
        + 100 * part(env!("CARGO_PKG_VERSION_MINOR"))
        + part(env!("CARGO_PKG_VERSION_PATCH"));
    assert_eq!(field(ours.unwrap(), "ver"), Some(&int(version)));
    let told = server.client().info_field("leasehold", "leasehold_version");
    assert_eq!(told, Some(version.to_string()));
}

#[test]
fn a_server_without_a_command_that_locks_are_replicated_as_is_refused() {
    for (name, why) in [
        ("SET", "a grant is replicated as SET"),
        ("DEL", "a release is replicated as DEL"),
        ("APPEND", "a grant beside others is replicated as APPEND"),
        ("SETRANGE", "a change beside others is replicated as SETRANGE"),
        ("PEXPIREAT", "a change beside others is replicated as PEXPIREAT"),
    ] {
        for renamed in ["\"\"", "SOMETHING-ELSE"] {
            let setup = Server::builder().config("rename-command", &format!("{name} {renamed}"));
            let log = setup.refuse();
            let line = format!(
                "<leasehold> cannot load: the command {name} is renamed or disabled (rename-command), \
                 and {why}"
            );
            assert!(log.contains(&line), "no {line:?} in:\n{log}");
        }
    }
}

#[test]
fn another_renamed_command_is_no_obstacle() {
    let server = Server::builder().config("rename-command", "FLUSHALL \"\"").start();
    server.client().grant("k", "alice", LONG);
}

#[test]
fn unloaded_the_locks_stay_as_keys_and_loaded_again_they_are_locks() {
    let server = Server::start();
    let mut client = server.client();
    let held = client.grant("k", "alice", LONG);
    for _ in 0..3 {
        client.cmd("PING");
        server.unload();
        let Value::ServerError(error) = client.cmd("LOCK.INFO k") else { panic!("still there") };
        assert!(error.details().unwrap().starts_with("unknown command"), "{error}");
        assert_eq!(client.cmd("EXISTS k"), int(1));
        server.load(&[]);
        assert_eq!(client.check("k", "alice"), Some(held));
    }
    assert!(client.release("k", "alice"));
    assert!(client.grant("k", "bob", LONG) > held);
}

/// The server remembers the last command of each client, and would read what is said of it once it is gone.
#[test]
fn a_client_whose_last_command_was_ours_keeps_the_module_loaded() {
    let server = Server::start();
    let mut user = server.client();
    let Value::Int(id) = user.cmd("CLIENT ID") else { panic!("no id") };
    for _ in 0..3 {
        assert_eq!(user.cmd("LOCK.INFO k"), Value::Nil);
        let reply = server.cmd(UNLOAD);
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
        assert_eq!(user.cmd("LOCK.INFO k"), Value::Nil);

        user.cmd("PING");
        server.unload();
        server.cmd("CLIENT LIST");
        let reply = user.cmd("LOCK.INFO k");
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
        server.load(&[]);
    }
    let line = format!("cannot unload: the last command of client id={id} is lock.info");
    assert_eq!(server.log().matches(&line).count(), 3, "{}", server.log());
}

/// What is queued would be executed, and there would be nothing to execute.
#[test]
fn an_open_transaction_keeps_the_module_loaded() {
    let server = Server::start();
    let mut user = server.client();
    user.pipeline(&["MULTI", "LOCK.INFO k", "PING"]);
    let reply = server.cmd(UNLOAD);
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    let Value::Array(replies) = user.cmd("EXEC") else { panic!("no replies") };
    assert_eq!(replies[0], Value::Nil);
    assert!(server.log().contains("is in a transaction"), "{}", server.log());
    user.cmd("PING");
    server.unload();
    let reply = user.transaction(&["PING"]);
    assert_eq!(reply.len(), 1);
}

#[test]
fn a_client_that_has_gone_does_not_keep_the_module_loaded() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    server.unload();
}

#[test]
fn a_client_whose_last_command_was_ours_does_not_keep_the_server_from_stopping() {
    let mut server = Server::start();
    let mut user = server.client();
    user.grant("k", "alice", LONG);
    server.stop();
    let log = server.log();
    assert!(!log.contains("cannot unload"), "{log}");
}

#[test]
fn a_second_load_is_refused_and_the_first_goes_on() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    for _ in 0..3 {
        let reply = client.cmd(module_load(""));
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
        assert_eq!(client.check("k", "alice"), Some(fence));
        assert!(client.extend("k", "alice", LONG));
    }
}

#[test]
fn a_load_refused_at_run_time_leaves_nothing_behind() {
    let server = Server::builder().without_module().start();
    let mut client = server.client();
    for _ in 0..3 {
        let reply = client.cmd(module_load(" max-ttl 0"));
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    }
    assert_eq!(client.cmd(module_load("")), Value::Okay);
    client.grant("k", "alice", 86_400_000);
}

#[test]
fn a_replica_that_loads_again_still_follows_its_primarys_fences() {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    let (primary, replica) = start_pair(Server::builder(), Server::builder().clock(&behind));
    replica.unload();
    primary.client().grant("meanwhile", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    replica.load(&[]);
    behind.step_back(HOUR);
    behind.wait_until_known(&mut replica.client());
    let fence = primary.client().grant("k", "alice", LONG);
    assert!(primary.client().release("k", "alice"));
    wait_until_in_sync(&primary, &replica);
    let mut client = replica.client();
    client.cmd("REPLICAOF NO ONE");
    assert!(client.grant("k", "bob", LONG) > fence);
}
