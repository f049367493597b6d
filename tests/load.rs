//! Loading, refusing to load, unloading, and what an operator can set.

use crate::support::errors::{TTL_ABOVE_LIMIT, TTL_NOT_POSITIVE};
use crate::support::{
    Client, Clock, Server, clock::HOUR, error, eventually, field, int, lacks, misplaces_clients,
    module, start_pair, strings, wait_until_in_sync,
};
use redis::Value;

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
}

#[test]
fn a_server_without_set_or_del_is_refused() {
    for (name, why) in
        [("SET", "a grant is replicated as SET"), ("DEL", "a release is replicated as DEL")]
    {
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
fn arguments_that_make_no_sense_are_refused() {
    for args in [
        "max-ttl",
        "max-ttl 0",
        "max-ttl -1",
        "max-ttl 05",
        "max-ttl 1e3",
        "max-ttl 3153600000001",
        "max-ttl 18446744073709551617",
        "fence-margin",
        "fence-margin -1",
        "fence-margin 3600001",
        "max-ttl 1000 fence-margin",
        "max-ttl 1000 unheard-of 5",
        "unheard-of 5",
        "unheard-of",
    ] {
        let log = Server::builder().module_args(args).refuse();
        let complaint = log.lines().find(|line| line.contains("<leasehold> cannot load: "));
        let name =
            args.split(' ').rfind(|word| word.contains('-') && !word.starts_with('-')).unwrap();
        assert!(complaint.is_some_and(|line| line.contains(name)), "{args}:\n{log}");
    }
}

#[test]
fn arguments_set_the_limits_on_every_server() {
    for (args, limit) in [("max-ttl 1000", 1_000), ("fence-margin 7 MAX-TTL 2000", 2_000)] {
        let server = Server::builder().module_args(args).start();
        let mut client = server.client();
        client.grant("k", "alice", limit);
        let reply = client.cmd(format!("LOCK.ACQUIRE free alice {}", limit + 1));
        assert_eq!(reply, error(&TTL_ABOVE_LIMIT.replace("86400000", &limit.to_string())));
        let reply = client.cmd(format!("LOCK.EXTEND k alice {}", limit + 1));
        assert_eq!(reply, error(&TTL_ABOVE_LIMIT.replace("86400000", &limit.to_string())));
        assert_eq!(client.cmd("LOCK.ACQUIRE free alice 0"), error(TTL_NOT_POSITIVE));
    }
}

#[test]
fn a_limit_of_a_hundred_years_is_possible() {
    let server = Server::builder().module_args("max-ttl 3153600000000").start();
    let mut client = server.client();
    let before = client.now();
    client.grant("k", "alice", 3_153_600_000_000);
    assert!(client.info("k").unwrap().deadline >= before + 3_153_600_000_000);
    let reply = client.cmd("LOCK.EXTEND k alice 3153600000001");
    assert_eq!(reply, error(&TTL_ABOVE_LIMIT.replace("86400000", "3153600000000")));
}

fn setting(client: &mut Client, name: &str) -> String {
    let reply = client.cmd(["CONFIG", "GET", &format!("leasehold.{name}")]);
    strings(&reply).pop().unwrap_or_else(|| panic!("no setting {name}"))
}

#[test]
fn settings_are_seen_and_changed_while_the_server_runs() {
    if lacks((7, 0), "settings of modules") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "max-ttl"), "86400000");
    assert_eq!(setting(&mut client, "fence-margin"), "5000");
    assert_eq!(client.cmd("CONFIG SET leasehold.max-ttl 1000"), Value::Okay);
    assert_eq!(setting(&mut client, "max-ttl"), "1000");
    let reply = client.cmd("LOCK.ACQUIRE k alice 1001");
    assert_eq!(reply, error(&TTL_ABOVE_LIMIT.replace("86400000", "1000")));
    client.grant("k", "alice", 1_000);
}

#[test]
fn settings_out_of_range_are_refused_and_stay_as_they_were() {
    if lacks((7, 0), "settings of modules") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for (name, value) in [
        ("max-ttl", "0"),
        ("max-ttl", "3153600000001"),
        ("max-ttl", "abc"),
        ("fence-margin", "-1"),
        ("fence-margin", "3600001"),
    ] {
        let before = setting(&mut client, name);
        let reply = client.cmd(format!("CONFIG SET leasehold.{name} {value}"));
        assert!(matches!(reply, Value::ServerError(_)), "{name} {value}: {reply:?}");
        assert_eq!(setting(&mut client, name), before);
    }
    for (name, values) in [("max-ttl", ["1", "3153600000000"]), ("fence-margin", ["0", "3600000"])]
    {
        for value in values {
            client.cmd(format!("CONFIG SET leasehold.{name} {value}"));
            assert_eq!(setting(&mut client, name), value);
        }
    }
}

#[test]
fn settings_in_the_configuration_file_come_before_arguments() {
    if lacks((7, 0), "settings of modules") {
        return;
    }
    let setup = Server::builder().module_args("max-ttl 1000 fence-margin 7");
    let server = setup.config("leasehold.max-ttl", "2000").start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "max-ttl"), "2000");
    assert_eq!(setting(&mut client, "fence-margin"), "7");
}

#[test]
fn settings_out_of_range_in_the_configuration_file_are_refused() {
    if lacks((7, 0), "settings of modules") {
        return;
    }
    let log = Server::builder().config("leasehold.max-ttl", "0").refuse();
    assert!(log.contains("<leasehold> cannot load: "), "{log}");
}

#[test]
fn settings_survive_a_rewrite_of_the_configuration_and_a_restart() {
    if lacks((7, 0), "settings of modules") {
        return;
    }
    let mut server = Server::start();
    let mut client = server.client();
    client.cmd("CONFIG SET leasehold.max-ttl 1234");
    assert_eq!(client.cmd("CONFIG REWRITE"), Value::Okay);
    server.stop();
    server.start_again();
    assert_eq!(setting(&mut server.client(), "max-ttl"), "1234");
    assert_eq!(setting(&mut server.client(), "fence-margin"), "5000");
}

#[test]
fn unloaded_the_locks_stay_as_keys_and_loaded_again_they_are_locks() {
    let server = Server::start();
    let mut client = server.client();
    let held = client.grant("k", "alice", LONG);
    for _ in 0..3 {
        assert_eq!(client.cmd("MODULE UNLOAD leasehold"), Value::Okay);
        let Value::ServerError(error) = client.cmd("LOCK.INFO k") else { panic!("still there") };
        assert!(error.details().unwrap().starts_with("unknown command"), "{error}");
        assert_eq!(client.cmd("EXISTS k"), int(1));
        assert_eq!(client.cmd(module_load("")), Value::Okay);
        assert_eq!(client.check("k", "alice"), Some(held));
    }
    assert!(client.release("k", "alice"));
    assert!(client.grant("k", "bob", LONG) > held);
}

/// The server remembers the last command of each client, and would read what is said of it once it is gone.
#[test]
fn a_client_whose_last_command_was_ours_keeps_the_module_loaded() {
    let server = Server::start();
    let (mut client, mut user) = (server.client(), server.client());
    let Value::Int(id) = user.cmd("CLIENT ID") else { panic!("no id") };
    for _ in 0..3 {
        assert_eq!(user.cmd("LOCK.INFO k"), Value::Nil);
        let reply = client.cmd("MODULE UNLOAD leasehold");
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
        assert_eq!(user.cmd("LOCK.INFO k"), Value::Nil);

        user.cmd("PING");
        assert_eq!(client.cmd("MODULE UNLOAD leasehold"), Value::Okay);
        client.cmd("CLIENT LIST");
        let reply = user.cmd("LOCK.INFO k");
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
        assert_eq!(client.cmd(module_load("")), Value::Okay);
    }
    let line = format!("cannot unload: the last command of client id={id} is lock.info");
    assert_eq!(server.log().matches(&line).count(), 3, "{}", server.log());
}

/// What is queued would be executed, and there would be nothing to execute.
#[test]
fn an_open_transaction_keeps_the_module_loaded() {
    let server = Server::start();
    let (mut client, mut user) = (server.client(), server.client());
    user.pipeline(&["MULTI", "LOCK.INFO k", "PING"]);
    let reply = client.cmd("MODULE UNLOAD leasehold");
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    let Value::Array(replies) = user.cmd("EXEC") else { panic!("no replies") };
    assert_eq!(replies[0], Value::Nil);
    assert!(server.log().contains("is in a transaction"), "{}", server.log());
    user.cmd("PING");
    assert_eq!(client.cmd("MODULE UNLOAD leasehold"), Value::Okay);
    let reply = client.transaction(&["PING"]);
    assert_eq!(reply.len(), 1);
}

#[test]
fn a_client_that_has_gone_does_not_keep_the_module_loaded() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    eventually("it is unloaded", || match server.cmd("MODULE UNLOAD leasehold") {
        Value::Okay => Ok(()),
        refused => Err(refused),
    });
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
fn loaded_again_it_has_the_settings_of_that_load() {
    let server = Server::builder().module_args("max-ttl 1000").start();
    let mut client = server.client();
    assert_eq!(client.cmd("MODULE UNLOAD leasehold"), Value::Okay);
    assert_eq!(client.cmd(module_load("")), Value::Okay);
    client.grant("k", "alice", 86_400_000);
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
    behind.step_back(HOUR);
    let (primary, replica) = start_pair(Server::builder(), Server::builder().clock(&behind));
    let mut client = replica.client();
    assert_eq!(client.cmd("MODULE UNLOAD leasehold"), Value::Okay);
    primary.client().grant("meanwhile", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    assert_eq!(client.cmd(module_load("")), Value::Okay);
    let fence = primary.client().grant("k", "alice", LONG);
    assert!(primary.client().release("k", "alice"));
    wait_until_in_sync(&primary, &replica);
    client.cmd("REPLICAOF NO ONE");
    assert!(client.grant("k", "bob", LONG) > fence);
}
