//! What an operator can set: arguments on every server, and `leasehold.*` where modules have settings (7.0 on).

mod refused;

use redis::Value;
use std::fs;
use testkit::errors::{TTL_ABOVE_LIMIT, TTL_NOT_POSITIVE};
use testkit::{Client, Server, error, is_older_than, lacks, module, strings};

const LONG: u64 = 60_000;

/// Name, least, most and default of each setting, as docs/configuration.md has them.
const SETTINGS: [(&str, i64, i64, i64); 6] = [
    ("max-ttl", 1, 3_153_600_000_000, 86_400_000),
    ("max-holders", 1, 99_999, 1_000),
    ("fence-margin", 0, 3_600_000, module::USUAL_FENCE_MARGIN.cast_signed()),
    ("max-waiters", 0, 1_000_000, 8_000),
    ("max-waiters-per-lock", 0, 1_000_000, 8_000),
    ("max-waiters-percent", 1, 100, 80),
];

fn ttl_above(limit: u64) -> Value {
    error(&TTL_ABOVE_LIMIT.replace("86400000", &limit.to_string()))
}

fn setting(client: &mut Client, name: &str) -> String {
    let reply = client.cmd(["CONFIG", "GET", &format!("leasehold.{name}")]);
    strings(&reply).pop().unwrap_or_else(|| panic!("no setting {name}"))
}

fn all_settings(client: &mut Client) -> Vec<String> {
    strings(&client.cmd("CONFIG GET leasehold.*"))
}

#[track_caller]
fn assert_refused(reply: &Value) {
    assert!(matches!(reply, Value::ServerError(_)), "not refused: {reply:?}");
}

/// The lines of a server's configuration file that begin so.
fn lines_of_file(server: &Server, start: &str) -> Vec<String> {
    let path = server.client().info_field("server", "config_file").unwrap();
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

// --- arguments ---------------------------------------------------------------------------------

#[test]
fn arguments_that_make_no_sense_are_refused_and_those_that_are_known_are_named() {
    for args in [
        "max-ttl",
        "max-ttl 0",
        "max-ttl -1",
        "max-ttl 05",
        "max-ttl 1e3",
        "max-ttl 3153600000001",
        "max-ttl 18446744073709551617",
        "fence-margin",
        "fence-margin 3600001",
        "max-holders 0",
        "max-holders 100000",
        "max-waiters -1",
        "max-waiters 1000001",
        "max-waiters-per-lock 1k",
        "max-ttl 1000 fence-margin",
        "max-ttl 1000 max-waiters-per-lock 1000001",
    ] {
        let log = Server::builder().module_args(args).refuse();
        let name =
            args.split(' ').rfind(|word| word.contains('-') && !word.starts_with('-')).unwrap();
        let (_, least, most, _) = SETTINGS.iter().find(|setting| setting.0 == name).unwrap();
        let line =
            format!("<leasehold> cannot load: argument {name} must be from {least} to {most}");
        assert!(log.lines().any(|said| said.ends_with(&line)), "{args}: no {line:?} in:\n{log}");
    }
    for args in ["max-ttl 1000 unheard-of 5", "unheard-of 5", "unheard-of"] {
        let log = Server::builder().module_args(args).refuse();
        let line = log.lines().find_map(|line| line.split_once("<leasehold> cannot load: "));
        let (_, said) = line.unwrap_or_else(|| panic!("{args}:\n{log}"));
        assert!(said.starts_with("unknown argument 'unheard-of', expected "), "{said}");
        assert!(SETTINGS.iter().all(|(name, ..)| said.contains(name)), "{said}");
    }
}

/// Up to a hundred years.
#[test]
fn arguments_set_the_limits_on_every_server() {
    for (args, limit) in [
        ("max-ttl 1000", 1_000),
        ("fence-margin 7 MAX-TTL 2000", 2_000),
        ("max-ttl 3153600000000", 3_153_600_000_000),
    ] {
        let server = Server::builder().module_args(args).start();
        let mut client = server.client();
        let before = client.now();
        client.grant("k", "alice", limit);
        assert!(client.info("k").unwrap().deadline >= before + limit.cast_signed());
        for command in ["LOCK.ACQUIRE free alice", "LOCK.EXTEND k alice"] {
            assert_eq!(client.cmd(format!("{command} {}", limit + 1)), ttl_above(limit));
        }
        assert_eq!(client.cmd("LOCK.ACQUIRE free alice 0"), error(TTL_NOT_POSITIVE));
    }
}

/// Has the server write its configuration, and start with it.
fn restart(server: &mut Server) {
    assert_eq!(server.cmd("CONFIG REWRITE"), Value::Okay);
    server.stop();
    server.start_again();
}

// --- settings ----------------------------------------------------------------------------------

#[test]
fn settings_are_seen_and_changed_while_the_server_runs() {
    if lacks((7, 0), "settings of modules") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for (name, _, _, default) in SETTINGS {
        assert_eq!(setting(&mut client, name), default.to_string());
        assert!(all_settings(&mut client).contains(&format!("leasehold.{name}")));
    }
    client.grant("k", "alice", LONG);
    assert_eq!(client.cmd("CONFIG SET leasehold.max-ttl 1000"), Value::Okay);
    assert_eq!(setting(&mut client, "max-ttl"), "1000");
    assert_eq!(client.cmd("LOCK.ACQUIRE free alice 1001"), ttl_above(1_000));
    client.grant("free", "alice", 1_000);
    assert!(client.info("k").unwrap().ttl > 1_000, "a lease already granted keeps its end");
    assert_eq!(client.cmd("CONFIG SET LEASEHOLD.Max-TTL 2000"), Value::Okay);
    assert_eq!(setting(&mut client, "max-ttl"), "2000");
}

/// The argument is the setting's default: what equals it needs no line, and what equals the module's own does.
#[test]
fn settings_survive_a_rewrite_of_the_configuration_and_a_restart() {
    if lacks((7, 0), "settings of modules") {
        return;
    }
    let mut server = Server::builder().module_args("max-ttl 1000 max-waiters 7").start();
    server.cmd("CONFIG SET leasehold.max-waiters-per-lock 3");
    let margin = module::USUAL_FENCE_MARGIN.to_string();
    for ttl in ["1234", "86400000", "1000"] {
        assert_eq!(server.cmd(format!("CONFIG SET leasehold.max-ttl {ttl}")), Value::Okay);
        for _ in 0..2 {
            restart(&mut server);
            let mut client = server.client();
            let found = SETTINGS.map(|(name, ..)| setting(&mut client, name));
            assert_eq!(found, [ttl, "1000", &margin, "7", "3", "80"]);
            let limit: u64 = ttl.parse().unwrap();
            let reply = client.cmd(format!("LOCK.ACQUIRE k alice {}", limit + 1));
            assert_eq!(reply, ttl_above(limit));
            assert_eq!(lines_of_file(&server, "loadmodule").len(), 1);
            let lines = lines_of_file(&server, "leasehold.max-ttl");
            assert!(lines.is_empty() || lines == [format!("leasehold.max-ttl {ttl}")], "{lines:?}");
        }
    }
}

/// The server itself sees to settings that are not there. All but Redis 7.0 say which line it is.
#[test]
fn lines_of_the_configuration_file_come_before_arguments_and_are_refused_if_they_make_no_sense() {
    let unheard = ("leasehold.unheard-of", "5");
    let known = ("leasehold.max-ttl", "1000");
    let line = |(name, value)| Server::builder().config(name, value);
    let mut refused = vec![(unheard, line(unheard)), (known, line(known).without_module())];
    if is_older_than((7, 0)) {
        refused.push((known, line(known)));
    }
    for ((name, value), setup) in refused {
        let log = setup.refuse();
        let which = format!(">>> '{name} {value}'");
        let some = "Module Configuration detected without loadmodule directive";
        assert!(log.contains(&which) || log.contains(some), "{log}");
    }
    if lacks((7, 0), "settings of modules") {
        return;
    }
    for (name, least, most, _) in SETTINGS {
        for value in [least - 1, most + 1] {
            let name = format!("leasehold.{name}");
            let log = Server::builder().config(&name, &value.to_string()).refuse();
            let ours = "<leasehold> cannot load: the configuration file has a leasehold.* line \
                        that is not valid";
            assert!(log.contains(ours) && log.contains(&name), "{name} {value}:\n{log}");
        }
    }
    let setup = Server::builder().module_args("max-ttl 1000 fence-margin 7");
    let server = setup.config("leasehold.max-ttl", "2000").start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "max-ttl"), "2000");
    assert_eq!(setting(&mut client, "fence-margin"), "7");
}

#[test]
fn a_module_loaded_at_run_time_takes_settings_and_arguments_together() {
    if lacks((7, 0), "MODULE LOADEX") {
        return;
    }
    let mut server = Server::builder().without_module().start();
    let mut client = server.client();
    let path = module::path().to_str().unwrap();
    let load = |client: &mut Client, rest: &str| client.cmd(format!("MODULE LOADEX {path} {rest}"));
    let mut wrongs = vec![
        "CONFIG leasehold.max-ttl 0",
        "CONFIG leasehold.max-ttl 3153600000001",
        "CONFIG leasehold.max-ttl 1000 ARGS max-waiters -1",
        "ARGS unheard-of 5",
    ];
    // Redis 7.0 notices these when the module is loaded, and it stays.
    if !is_older_than((7, 2)) {
        wrongs.push("CONFIG leasehold.unheard-of 5");
        wrongs.push("CONFIG leasehold.max-ttl 1000 CONFIG other.name 5");
    }
    for wrong in wrongs {
        assert_refused(&load(&mut client, wrong));
        assert_refused(&client.cmd("LOCK.INFO k"));
        assert_eq!(all_settings(&mut client), [""; 0], "{wrong}");
    }
    let both = "CONFIG leasehold.max-ttl 1000 CONFIG leasehold.max-waiters 7 \
                ARGS max-waiters 8 fence-margin 3";
    assert_eq!(load(&mut client, both), Value::Okay);
    let seen = |client: &mut Client| SETTINGS.map(|(name, ..)| setting(client, name));
    assert_eq!(seen(&mut client), ["1000", "1000", "3", "7", "8000", "80"]);
    client.grant("k", "alice", 1_000);
    restart(&mut server);
    assert_eq!(seen(&mut server.client()), ["1000", "1000", "3", "7", "8000", "80"]);
}
