//! The users of docs/operating.md, each tried on a server: what it is said to be able to do, and no more.

use super::{item, page, registered, text};
use redis::Value;
use std::collections::BTreeSet;
use testkit::{Client, Server, field, lacks, strings};

struct User {
    name: &'static str,
    may: &'static [&'static str],
    may_not: &'static [&'static str],
}

const USERS: [User; 5] = [
    User {
        name: "worker",
        may: &[
            "PING",
            "SELECT 0",
            "LOCK.ACQUIRE lock:a w 60000",
            "LOCK.ACQUIRE lock:a w 60000 BLOCK 1",
            "LOCK.EXTEND lock:a w 60000",
            "LOCK.CHECK lock:a w",
            "LOCK.INFO lock:a",
            "LOCK.WAITERS lock:a",
            "LOCK.RELEASE lock:a w",
            "LOCK.HELP",
        ],
        may_not: &[
            "LOCK.ACQUIRE data:a w 60000",
            "LOCK.INFO data:a",
            "GET lock:a",
            "DEL lock:a",
            "SET lock:a x",
            "CLIENT LIST",
            "CONFIG GET leasehold.*",
        ],
    },
    User {
        name: "observer",
        may: &[
            "PING",
            "LOCK.CHECK lock:a w",
            "LOCK.INFO lock:a",
            "LOCK.WAITERS lock:a",
            "LOCK.HELP",
        ],
        may_not: &[
            "LOCK.ACQUIRE lock:a w 60000",
            "LOCK.EXTEND lock:a w 60000",
            "LOCK.RELEASE lock:a w",
            "LOCK.INFO data:a",
            "GET lock:a",
            "DEL lock:a",
        ],
    },
    User {
        name: "operator",
        may: &[
            "LOCK.INFO data:a",
            "LOCK.WAITERS lock:a",
            "LOCK.RELEASE lock:a w",
            "DEL lock:a",
            "CLIENT LIST",
            "CLIENT UNBLOCK 1000000",
            "CLIENT KILL ID 1000000",
            "INFO leasehold",
            "CONFIG GET leasehold.*",
            "ROLE",
            "TIME",
            "MODULE LIST",
            "ACL LIST",
        ],
        may_not: &[
            "SET lock:a x",
            "CONFIG SET maxmemory 0",
            "FLUSHALL",
            "ACL SETUSER operator +@all",
            "MODULE UNLOAD leasehold",
        ],
    },
    User {
        name: "maintainer",
        may: &["LOCK.INFO data:a", "CONFIG GET maxmemory", "CONFIG SET maxmemory 0", "CLIENT LIST"],
        may_not: &["SET lock:a x", "FLUSHALL", "ACL SETUSER maintainer +@all", "CONFIG REWRITE"],
    },
    User {
        name: "app",
        may: &[
            "SET data:a x",
            "GET data:a",
            "DEL data:a",
            "LOCK.ACQUIRE lock:a w 60000",
            "LOCK.RELEASE lock:a w",
        ],
        may_not: &["SET lock:a x", "GET lock:a", "DEL lock:a", "LOCK.INFO other", "KEYS *"],
    },
];

#[test]
fn every_user_shown_may_do_what_is_said_of_it_and_no_more() {
    let page = page("docs/operating.md");
    let blocks = page.blocks();
    let lines = blocks.iter().flat_map(|block| &block.lines);
    let mut shown = BTreeSet::new();
    for line in lines.filter(|line| line.starts_with("ACL SETUSER ")) {
        let name = line.split(' ').nth(2).unwrap();
        let user = USERS.iter().find(|user| user.name == name);
        let user = user.unwrap_or_else(|| panic!("nothing is known of {name}"));
        shown.insert(name);
        if !is_beyond_the_server(line) {
            try_out(user, line);
        }
    }
    assert_eq!(shown, USERS.iter().map(|user| user.name).collect());
}

fn is_beyond_the_server(line: &str) -> bool {
    line.contains("@lock") && lacks((7, 4), "a category of our own")
        || line.contains(['%', '(']) && lacks((7, 0), "rights and selectors")
}

fn try_out(user: &User, line: &str) {
    let server = Server::start();
    assert_eq!(server.cmd(line), Value::Okay, "{line}");
    let password = line.split(' ').find_map(|word| word.strip_prefix('>')).unwrap();
    let mut client = server.client();
    assert_eq!(client.cmd(["AUTH", user.name, password]), Value::Okay, "{line}");
    for request in user.may {
        let reply = client.cmd(*request);
        assert!(!matches!(reply, Value::ServerError(_)), "{line}\n{request}: {reply:?}");
    }
    for request in user.may_not {
        let reply = client.cmd(*request);
        let Value::ServerError(error) = &reply else { panic!("{line}\n{request}: {reply:?}") };
        assert_eq!(error.code(), "NOPERM", "{line}\n{request}");
    }
}

#[test]
fn the_rights_to_keys_and_the_categories_are_those_of_the_server_and_the_reverse() {
    if lacks((7, 4), "categories of a module's own") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let page = page("docs/operating.md");
    let mut shown = BTreeSet::new();
    for row in page.table("Command") {
        for name in row[0].split(", ").map(|name| name.trim_matches('`').to_lowercase()) {
            let (right, categories) = told(&mut client, &name);
            assert_eq!(row[1], right, "{name}");
            let said: BTreeSet<_> = row[2].split(' ').map(|word| word.replace('`', "")).collect();
            assert_eq!(said, categories, "{name}");
            shown.insert(name);
        }
    }
    assert_eq!(shown, registered(&mut client));
}

/// What COMMAND INFO says of a command: the right to its key, and its categories.
fn told(client: &mut Client, name: &str) -> (&'static str, BTreeSet<String>) {
    let reply = client.cmd(["COMMAND", "INFO", name]);
    let parts = item(&reply, 0);
    assert_eq!(text(item(parts, 0)), name);
    let Value::Array(keys) = item(parts, 8) else { panic!("{parts:?}") };
    let has = |key, flag: &str| strings(field(key, "flags").unwrap()).contains(&flag.to_owned());
    let right = match &keys[..] {
        [] => "none",
        [key] if has(key, "RO") => "read",
        [key, others] if has(key, "RO") && has(others, "variable_flags") => {
            "read, and what the guarded command needs"
        }
        _ => "read and write",
    };
    (right, strings(item(parts, 6)).into_iter().collect())
}
