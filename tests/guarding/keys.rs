//! Which keys the server takes a request to name: that of the lock, and those of the command behind it.

use super::{guarded, held, names_of_commands};
use redis::Value;
use testkit::{Client, Seed, Server, lacks, strings};

#[test]
fn the_keys_of_the_command_are_keys_of_the_request() {
    let (_server, mut client, _) = held();
    let table: [(&str, &[&str]); 12] = [
        ("GET k", &["the-lock", "k"]),
        ("MSET k 1 other 2", &["the-lock", "k", "other"]),
        ("SORT k STORE other", &["the-lock", "k", "other"]),
        ("XREAD COUNT 1 STREAMS one two 0 0", &["the-lock", "one", "two"]),
        ("OBJECT ENCODING k", &["the-lock", "k"]),
        ("LOCK.RELEASE the-lock alice", &["the-lock", "the-lock"]),
        ("PUBLISH channel message", &["the-lock"]),
        ("NOSUCH k", &["the-lock"]),
        ("LOCK.GUARD inner alice 1 GET k", &["the-lock"]),
        ("LOCK.ACQUIRE a alice 1 ALSO 2 b c BLOCK 1", &["the-lock", "a", "b", "c"]),
        ("lock.release a alice 7 also 2 b c", &["the-lock", "a", "b", "c"]),
        ("LOCK.EXTEND a alice 1 ALSO 2 b c", &["the-lock", "a", "b", "c"]),
    ];
    for (command, keys) in table {
        let reply = client.cmd(format!("COMMAND GETKEYS {}", guarded(1, command)));
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
        let request = format!("COMMAND GETKEYSANDFLAGS {}", guarded(1, command));
        let Value::Array(keys) = client.cmd(request) else { panic!("no keys of {command}") };
        keys.iter()
            .map(|key| {
                let Value::Array(parts) = key else { panic!("{key:?}") };
                strings(&parts[1]).join(" ")
            })
            .collect::<Vec<_>>()
    };
    // A server tells a module what becomes of a key only where that depends on the words. What it does not tell is for
    // the call to check.
    assert_eq!(flags("SET k v"), ["RO access", "OW update"]);
    assert_eq!(flags("SET k v GET"), ["RO access", "RW access update"]);
    assert_eq!(flags("BITFIELD k GET u8 0"), ["RO access", "RO access"]);
    assert_eq!(flags("BITFIELD k SET u8 0 1"), ["RO access", "RW access update"]);
    assert_eq!(flags("GET k"), ["RO access", ""]);
    assert_eq!(flags("LMPOP 2 k other LEFT"), ["RO access", "", ""]);
}

/// The keys, or none if the server finds none.
fn keys_of(client: &mut Client, request: &str) -> Vec<String> {
    match client.cmd(format!("COMMAND GETKEYS {request}")) {
        Value::ServerError(_) => Vec::new(),
        keys => strings(&keys),
    }
}

fn sorted(keys: &[String]) -> Vec<String> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys
}

/// A server has two ways to find keys. For these they differ where something is wrong about the request.
const AMBIGUOUS: [&str; 6] =
    ["georadius", "georadiusbymember", "migrate", "pfmerge", "xread", "xreadgroup"];

#[track_caller]
fn assert_same_keys(client: &mut Client, command: &str) -> usize {
    let bare = keys_of(client, command);
    let guarded = keys_of(client, &guarded(1, command));
    assert_eq!(guarded[0], "the-lock");
    // The two ways also have them in different orders.
    assert_eq!(sorted(&guarded[1..]), sorted(&bare), "{command}");
    bare.len()
}

#[test]
fn the_keys_are_those_that_the_server_finds_in_the_bare_command() {
    let server = Server::start();
    let mut client = server.client();
    let mut seed = Seed::announced();
    let junk = ["k", "l", "0", "1", "2", "STREAMS", "STORE", "GET", "KEYS", "\"\""];
    let mut found = 0;
    for name in names_of_commands(&mut client) {
        if name == "lock.guard" || AMBIGUOUS.contains(&&*name) {
            continue;
        }
        for count in 0..24 {
            let words: Vec<&str> = (0..count % 8).map(|_| *seed.pick(&junk)).collect();
            let command = format!("{name} {}", words.join(" "));
            found += assert_same_keys(&mut client, command.trim_end());
        }
    }
    for command in [
        "GEORADIUS k 1 2 3 m STORE l",
        "MIGRATE host 1 k 0 1",
        "MIGRATE host 1 \"\" 0 1 KEYS k l",
        "PFMERGE k l m",
        "XREAD STREAMS k l 0 0",
        "XREADGROUP GROUP g c STREAMS k >",
        "MSETEX 2 k v l w EX 5",
    ] {
        if !keys_of(&mut client, command).is_empty() {
            found += assert_same_keys(&mut client, command);
        }
    }
    assert!(found > 1_000, "{found}");
}

/// Within the deadline of the client: the time that it takes grows as the number of keys does, and not faster.
#[test]
fn there_may_be_hundreds_of_thousands() {
    const PAIRS: usize = 400_000;
    let (_server, mut client, _) = held();
    let request = guarded(1, &format!("MSETEX {PAIRS}{}", " k v".repeat(PAIRS)));
    let keys = strings(&client.cmd(format!("COMMAND GETKEYS {request}")));
    assert_eq!(keys.len(), PAIRS + 1);
}
