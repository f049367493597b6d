//! The users of docs/operating.md, each tried on a server: what it is said to be able to do, and no more.

use super::{item, registered};
use crate::page::page;
use redis::Value;
use std::collections::BTreeSet;
use testkit::{Client, Server, bulk_text, code, field, items, lacks, strings};

/// Who may run what, and what not.
const USERS: [(&str, &str, &str); 5] = [
    (
        "worker",
        "PING; SELECT 0; LOCK.ACQUIRE lock:a w 60000; LOCK.ACQUIRE lock:a w 60000 BLOCK 1; \
         LOCK.EXTEND lock:a w 60000; LOCK.CHECK lock:a w; LOCK.INFO lock:a; LOCK.WAITERS lock:a; \
         LOCK.RELEASE lock:a w; LOCK.HELP",
        "LOCK.ACQUIRE data:a w 60000; LOCK.INFO data:a; GET lock:a; DEL lock:a; SET lock:a x; \
         CLIENT LIST; CONFIG GET leasehold.*",
    ),
    (
        "observer",
        "PING; LOCK.CHECK lock:a w; LOCK.INFO lock:a; LOCK.WAITERS lock:a; LOCK.HELP",
        "LOCK.ACQUIRE lock:a w 60000; LOCK.EXTEND lock:a w 60000; LOCK.RELEASE lock:a w; \
         LOCK.INFO data:a; GET lock:a; DEL lock:a",
    ),
    (
        "operator",
        "LOCK.INFO data:a; LOCK.WAITERS lock:a; LOCK.RELEASE lock:a w; DEL lock:a; CLIENT LIST; \
         CLIENT UNBLOCK 1000000; CLIENT KILL ID 1000000; INFO leasehold; CONFIG GET leasehold.*; \
         ROLE; TIME; MODULE LIST; ACL LIST",
        "SET lock:a x; CONFIG SET maxmemory 0; FLUSHALL; ACL SETUSER operator +@all; \
         MODULE UNLOAD leasehold",
    ),
    (
        "maintainer",
        "LOCK.INFO data:a; CONFIG GET maxmemory; CONFIG SET maxmemory 0; CLIENT LIST",
        "SET lock:a x; FLUSHALL; ACL SETUSER maintainer +@all; CONFIG REWRITE",
    ),
    (
        "app",
        "SET data:a x; GET data:a; DEL data:a; LOCK.ACQUIRE lock:a w 60000; LOCK.RELEASE lock:a w",
        "SET lock:a x; GET lock:a; DEL lock:a; LOCK.INFO other; KEYS *",
    ),
];

#[test]
fn every_user_shown_may_do_what_is_said_of_it_and_no_more() {
    let page = page("docs/operating.md");
    let blocks = page.blocks();
    let lines = blocks.iter().flat_map(|block| &block.lines);
    let mut shown = BTreeSet::new();
    for line in lines.filter(|line| line.starts_with("ACL SETUSER ")) {
        let name = line.split(' ').nth(2).unwrap();
        shown.insert(name);
        let (_, may, may_not) = USERS.iter().find(|user| user.0 == name).expect(name);
        if line.contains("@lock") && lacks((7, 4), "a category of our own")
            || line.contains(['%', '(']) && lacks((7, 0), "rights and selectors")
        {
            continue;
        }
        let server = Server::start();
        assert_eq!(server.cmd(*line), Value::Okay, "{line}");
        let password = line.split(' ').find_map(|word| word.strip_prefix('>')).unwrap();
        let mut client = server.client();
        assert_eq!(client.cmd(["AUTH", name, password]), Value::Okay, "{line}");
        for request in may.split("; ") {
            let reply = client.cmd(request);
            assert!(!matches!(reply, Value::ServerError(_)), "{line}\n{request}: {reply:?}");
        }
        for request in may_not.split("; ") {
            assert_eq!(code(client.cmd(request)), "NOPERM", "{line}\n{request}");
        }
    }
    assert_eq!(shown, USERS.iter().map(|user| user.0).collect());
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
    assert_eq!(bulk_text(item(parts, 0)), name);
    let has = |key, flag: &str| strings(field(key, "flags").unwrap()).contains(&flag.to_owned());
    let right = match items(item(parts, 8)) {
        [] => "none",
        [key] if has(key, "RO") => "read",
        [key, others] if has(key, "RO") && has(others, "variable_flags") => {
            "read, and what the guarded command needs"
        }
        _ => "read and write",
    };
    (right, strings(item(parts, 6)).into_iter().collect())
}
