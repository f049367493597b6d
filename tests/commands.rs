//! What the server tells about the commands: flags, keys, rights, documentation.

use crate::support::{Client, Server, field, int, lacks, strings};
use redis::Value;

struct Expected {
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    /// Of the one key, as COMMAND GETKEYSANDFLAGS tells them; empty for a command without a key.
    rights: &'static [&'static str],
    args: &'static [&'static str],
    example: &'static str,
}

const COMMANDS: [Expected; 7] = [
    Expected {
        name: "lock.acquire",
        arity: -4,
        flags: &["write", "denyoom", "fast", "blocking"],
        rights: &["RW", "access", "insert"],
        args: &["key", "owner", "ttl", "milliseconds"],
        example: "LOCK.ACQUIRE the-key alice 5000",
    },
    Expected {
        name: "lock.release",
        arity: -3,
        flags: &["write", "fast"],
        rights: &["RM", "access", "delete"],
        args: &["key", "owner", "fence"],
        example: "LOCK.RELEASE the-key alice 7",
    },
    Expected {
        name: "lock.extend",
        arity: -4,
        flags: &["write", "fast"],
        rights: &["RW", "access", "update"],
        args: &["key", "owner", "ttl", "fence"],
        example: "LOCK.EXTEND the-key alice 5000",
    },
    Expected {
        name: "lock.check",
        arity: -3,
        flags: &["readonly", "fast"],
        rights: &["RO", "access"],
        args: &["key", "owner", "fence"],
        example: "LOCK.CHECK the-key alice",
    },
    Expected {
        name: "lock.info",
        arity: 2,
        flags: &["readonly", "fast"],
        rights: &["RO", "access"],
        args: &["key"],
        example: "LOCK.INFO the-key",
    },
    Expected {
        name: "lock.waiters",
        arity: -2,
        flags: &["readonly", "fast"],
        rights: &["RO", "access"],
        args: &["key", "count"],
        example: "LOCK.WAITERS the-key",
    },
    Expected {
        name: "lock.help",
        arity: 1,
        flags: &["fast"],
        rights: &[],
        args: &[],
        example: "LOCK.HELP",
    },
];

/// What the server says of one command in COMMAND INFO: name, arity, flags, first key, last key, step, …
fn command_info(client: &mut Client, name: &str) -> Vec<Value> {
    let reply = client.cmd(["COMMAND", "INFO", name]);
    let Value::Array(mut commands) = reply else { panic!("{reply:?}") };
    match commands.remove(0) {
        Value::Array(parts) => parts,
        other => panic!("{name}: {other:?}"),
    }
}

/// The flags that decide when a command may run.
fn telling_flags(parts: &[Value]) -> Vec<String> {
    let telling =
        ["write", "readonly", "denyoom", "fast", "blocking", "admin", "noscript", "random"];
    strings(&parts[2]).into_iter().filter(|flag| telling.contains(&flag.as_str())).collect()
}

#[test]
fn the_flags_say_what_a_command_does_and_when_it_may_run() {
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        let mut flags = telling_flags(&parts);
        let mut expected = command.flags.to_vec();
        if lacks((7, 0), "the flag of commands that block") {
            expected.retain(|flag| *flag != "blocking");
        }
        flags.sort_unstable();
        expected.sort_unstable();
        assert_eq!(flags, expected, "{}", command.name);
    }
}

#[test]
fn every_command_with_a_key_has_it_first() {
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        let key = i64::from(!command.rights.is_empty());
        assert_eq!(parts[3..6], [int(key), int(key), int(key)], "{}", command.name);
        let reply = client.cmd(format!("COMMAND GETKEYS {}", command.example));
        if command.rights.is_empty() {
            assert!(matches!(reply, Value::ServerError(_)), "{}: {reply:?}", command.name);
        } else {
            assert_eq!(strings(&reply), ["the-key"], "{}", command.name);
        }
    }
}

#[test]
fn the_server_knows_how_many_words_a_command_takes() {
    if lacks((7, 0), "the arity of a module's command") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        assert_eq!(parts[1], int(command.arity), "{}", command.name);
    }
}

#[test]
fn a_command_short_of_words_spoils_its_transaction_when_it_is_queued() {
    if lacks((7, 0), "the arity of a module's command") {
        return;
    }
    let server = Server::start();
    let replies = server.client().pipeline(&["MULTI", "LOCK.ACQUIRE k alice", "EXEC"]);
    let Value::ServerError(error) = &replies[2] else { panic!("{replies:?}") };
    assert_eq!(error.code(), "EXECABORT");
}

#[test]
fn the_key_specifications_say_what_becomes_of_the_key() {
    if lacks((7, 0), "key specifications") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in COMMANDS.iter().filter(|command| !command.rights.is_empty()) {
        let reply = client.cmd(format!("COMMAND GETKEYSANDFLAGS {}", command.example));
        let Value::Array(keys) = &reply else { panic!("{reply:?}") };
        let [Value::Array(key)] = &keys[..] else { panic!("{reply:?}") };
        assert_eq!(strings(&Value::Array(vec![key[0].clone()])), ["the-key"]);
        let mut rights = strings(&key[1]);
        let mut expected = command.rights.to_vec();
        rights.sort_unstable();
        expected.sort_unstable();
        assert_eq!(rights, expected, "{}", command.name);
    }
}

#[test]
fn every_command_is_documented() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let reply = client.cmd(["COMMAND", "DOCS", command.name]);
        let docs = field(&reply, command.name).unwrap_or_else(|| panic!("no {}", command.name));
        for name in ["summary", "since", "complexity"] {
            let Some(Value::BulkString(text)) = field(docs, name) else {
                panic!("{} has no {name}: {docs:?}", command.name)
            };
            assert!(!text.is_empty(), "the {name} of {} is empty", command.name);
        }
        let Value::Array(args) = field(docs, "arguments").cloned().unwrap_or(Value::Array(vec![]))
        else {
            panic!("{docs:?}")
        };
        let names = args.iter().map(|arg| field(arg, "name").unwrap().clone()).collect();
        assert_eq!(strings(&Value::Array(names)), command.args, "{}", command.name);
    }
}

#[test]
fn the_fence_and_what_has_a_keyword_may_be_left_out() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let reply = client.cmd(["COMMAND", "DOCS", command.name]);
        let Some(Value::Array(args)) = field(field(&reply, command.name).unwrap(), "arguments")
        else {
            continue;
        };
        for arg in args {
            let name = strings(&Value::Array(vec![field(arg, "name").unwrap().clone()]));
            let may_be_left_out = ["fence", "milliseconds", "count"].contains(&name[0].as_str());
            let flags = field(arg, "flags").map(strings).unwrap_or_default();
            assert_eq!(
                flags.contains(&"optional".to_owned()),
                may_be_left_out,
                "{} {arg:?}",
                command.name
            );
        }
    }
}
