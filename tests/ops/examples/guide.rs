//! docs/guide.md gives fences to each kind of store, and each refuses whom it should. The README shows how to talk to a
//! server without a client.

use super::server;
use super::stores::{Store, mariadb, objects, postgres};
use crate::page;
use crate::program::{available, find, run};
use std::process::Command;
use testkit::bulk;

const PAGE: &str = "docs/guide.md";
const LONG: u64 = 60_000;

/// Runs the guide's `store` for one who is too late, one who asks again, and many at once. `seen` is what shows in `sh`
/// what is stored.
fn refuses_who_is_late(store: &Store, heading: &str, seen: &str) {
    let snippet = page::shown(PAGE, heading, "sh");
    let [alice, bob] = fences_of_two_holders();
    let racing = bob + 1;
    let story = format!(
        "attempt() {{ if store \"$@\"; then echo stored; else echo refused $?; fi; }}
        attempt {alice} one
        attempt {alice} one
        attempt {bob} two
        attempt {alice} late
        {seen}
        attempt {bob} three
        attempt {alice} late
        {seen}
        for n in $(seq 0 7 | sort -R); do store $(({racing} + n)) racer-$n & done
        wait
        attempt {bob} late
        {seen}"
    );
    let told = store.run(&snippet, &story).output();
    let wanted = "stored|stored|stored|refused 1|two|stored|refused 1|three|refused 1|racer-7";
    assert_eq!(told.lines().collect::<Vec<_>>().join("|"), wanted, "{heading}");
}

/// Of one whose lock is lost, and of the next one.
fn fences_of_two_holders() -> [u64; 2] {
    let server = server();
    let mut client = server.client();
    let alice = client.grant("page:front", "alice", LONG);
    client.cmd("DEL page:front");
    [alice, client.grant("page:front", "bob", LONG)]
}

#[test]
fn postgres_refuses_who_is_late() {
    if let Some(store) = available(postgres()) {
        refuses_who_is_late(&store, "Postgres", "psql -qAt -c 'SELECT body FROM page'");
    }
}

#[test]
fn mariadb_refuses_who_is_late() {
    if let Some(store) = available(mariadb()) {
        let seen = "mariadb pages --skip-column-names -e 'SELECT body FROM page'";
        refuses_who_is_late(&store, "MySQL and MariaDB", seen);
    }
}

#[test]
fn sqlite_refuses_who_is_late() {
    if available(find("sqlite3")).is_some() {
        let seen = "sqlite3 pages.db 'SELECT body FROM page'";
        refuses_who_is_late(&Store::of_files(), "SQLite", seen);
    }
}

#[test]
fn a_store_of_objects_refuses_who_is_late() {
    if let (Some(_), Some(store)) = (available(find("curl")), objects()) {
        let seen = r#"s3 --write-out '\n' "$PAGES/front""#;
        refuses_who_is_late(&store, "Object stores with conditional writes", seen);
    }
}

#[test]
fn another_redis_refuses_who_is_late() {
    let server = server();
    if let Some(store) = Store::of_redis(&server) {
        refuses_who_is_late(&store, "Redis, another server", "redis HGET page:front body");
    }
}

#[test]
fn the_redis_of_the_lock_refuses_who_does_not_hold_it() {
    let server = server();
    let Some(store) = Store::of_redis(&server) else { return };
    let mut client = server.client();
    let snippet = page::shown(PAGE, "Redis, the server of the lock", "sh");
    let stores = |owner: &str, fence: u64, body: &str| {
        let story = format!("if store_as {owner} {fence} {body}; then echo yes; else echo no; fi");
        store.run(&snippet, &story).output() == "yes\n"
    };
    let alice = client.grant("{page}:lock", "alice", LONG);
    assert!(stores("alice", alice, "one"));
    client.cmd("DEL {page}:lock");
    assert!(!stores("alice", alice, "late"), "nobody has it");
    let bob = client.grant("{page}:lock", "bob", LONG);
    assert!(!stores("alice", alice, "late"));
    assert!(!stores("bob", alice, "late"), "by another fence");
    assert!(stores("bob", bob, "two"));
    assert_eq!(client.cmd("GET {page}:front"), bulk("two"));
}

#[test]
fn readers_of_the_cache_see_what_one_writer_wrote() {
    let server = server();
    let Some(store) = Store::of_redis(&server) else { return };
    let snippet = page::shown(PAGE, "Readers and a writer", "sh");
    let story = "
        renew first 0
        for n in $(seq 1 6); do renew writer-$n $n & done
        for n in $(seq 1 12); do { look reader-$n | paste -s -d ' '; } & done
        wait";
    let told = store.run(&snippet, story).output();
    assert_eq!(told.lines().count(), 12, "{told}");
    for line in told.lines() {
        let (version, body) = line.split_once(' ').unwrap();
        assert_eq!(version, body, "{told}");
    }
}

#[test]
fn the_pool_of_five_lets_no_sixth_call_the_service() {
    if available(find("sqlite3")).is_none() {
        return;
    }
    let server = server();
    let Some(store) = Store::of_redis(&server) else { return };
    let snippet = page::shown(PAGE, "A pool of five", "sh");
    let story = "
        for n in $(seq 1 20); do call worker-$n & done
        wait
        service 'SELECT now FROM calls'";
    assert_eq!(store.run(&snippet, story).output(), "0\n");
}

#[test]
fn the_readme_says_how_to_talk_to_a_server_without_a_client() {
    if available(find("curl")).is_none() {
        return;
    }
    let server = server();
    let shown = page::shown("README.md", "Start", "");
    let line = shown.lines().find(|line| line.contains("| curl ")).unwrap();
    let line = line.replace(":6379", &format!(":{}", server.port()));
    let told = run(Command::new("sh").args(["-c", &line])).output();
    let fence = server.client().check("printer", "alice").expect("alice has it");
    assert_eq!(told, format!(":{fence}\r\n+OK\r\n"));
}
