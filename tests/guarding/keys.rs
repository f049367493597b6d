//! Which keys the server takes a request to name: that of the lock, and those of the command behind it.

use super::held;
use redis::Value;
use testkit::{error, field, int, lacks, strings};

#[test]
fn the_keys_of_the_command_are_keys_of_the_request() {
    let (_server, mut client, _) = held();
    let table: [(&str, &[&str]); 9] = [
        ("GET k", &["the-lock", "k"]),
        ("MSET k 1 other 2", &["the-lock", "k", "other"]),
        ("SORT k STORE other", &["the-lock", "k", "other"]),
        ("XREAD COUNT 1 STREAMS one two 0 0", &["the-lock", "one", "two"]),
        ("OBJECT ENCODING k", &["the-lock", "k"]),
        ("LOCK.RELEASE the-lock alice", &["the-lock", "the-lock"]),
        ("PUBLISH channel message", &["the-lock"]),
        ("NOSUCH k", &["the-lock"]),
        ("LOCK.GUARD inner alice 1 GET k", &["the-lock"]),
    ];
    for (command, keys) in table {
        let reply = client.cmd(format!("COMMAND GETKEYS {}", super::guarded(1, command)));
        assert_eq!(strings(&reply), keys, "{command}");
    }
}

#[test]
fn what_becomes_of_each_key_is_what_the_command_does_to_it() {
    if lacks((7, 0), "COMMAND GETKEYSANDFLAGS") {
        return;
    }
    let (_server, mut client, _) = held();
    let mut flags = |command: &str| {
        let request = format!("COMMAND GETKEYSANDFLAGS {}", super::guarded(1, command));
        let Value::Array(keys) = client.cmd(request) else { panic!("no keys of {command}") };
        keys.iter()
            .map(|key| {
                let Value::Array(parts) = key else { panic!("{key:?}") };
                strings(&parts[1]).join(" ")
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(flags("SET k v"), ["RO access", "OW update"]);
    assert_eq!(flags("BITFIELD k GET u8 0"), ["RO access", "RO access"]);
    assert_eq!(
        flags("LMPOP 2 k other LEFT"),
        ["RO access", "RW access delete", "RW access delete"]
    );
    assert_eq!(
        flags("GET k"),
        ["RO access", ""],
        "what modules are not told is for the call to check"
    );
}

#[test]
fn the_server_says_that_there_are_more_keys_than_the_first() {
    let (_server, mut client, _) = held();
    let Value::Array(infos) = client.cmd("COMMAND INFO LOCK.GUARD") else { panic!("no list") };
    let Value::Array(info) = &infos[0] else { panic!("{infos:?}") };
    assert!(strings(&info[2]).contains(&"movablekeys".to_owned()), "{info:?}");
    assert_eq!(info[3..6], [int(1), int(1), int(1)]);
    if lacks((7, 0), "key specifications") {
        return;
    }
    let Value::Array(specs) = &info[8] else { panic!("{info:?}") };
    let [_, others] = &specs[..] else { panic!("{specs:?}") };
    assert!(strings(field(others, "flags").unwrap()).contains(&"variable_flags".to_owned()));
}

#[test]
fn a_request_that_names_no_command_has_no_keys_beyond_the_locks() {
    let (_server, mut client, _) = held();
    let reply = client.cmd("COMMAND GETKEYS LOCK.GUARD the-lock alice 1");
    if !lacks((7, 0), "the arity of a module's command") {
        assert_eq!(reply, error("ERR Invalid number of arguments specified for command"));
    } else {
        assert_eq!(strings(&reply), ["the-lock"]);
    }
}
