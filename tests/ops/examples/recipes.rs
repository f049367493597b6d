//! What docs/clients.md shows for shells, run as printed, and for Rust.

use super::program::{Told, run};
use super::{ADDRESS, address_of, page, server};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use testkit::find_cli;

const PAGE: &str = "docs/clients.md";
const LONG: u64 = 60_000;

/// Since when redis-cli fails on an error, if told to.
const CLI_SINCE: (u32, u32) = (7, 0);

struct Shell {
    /// Where `redis-cli` is found under this very name.
    path: PathBuf,
}

impl Shell {
    fn run(&self, expression: &str, address: &str) -> Told {
        let text = page::blocks(PAGE, "redis-cli", "sh");
        assert!(text.contains(ADDRESS), "a recipe for no server: {text}");
        let text = text.replace(ADDRESS, address);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.path.display());
        run(Command::new("sh").arg("-ec").arg(format!("{text}\n{expression}\n")).env("PATH", path))
    }

    fn says(&self, expression: &str, address: &str) -> String {
        self.run(expression, address).output().trim_end().to_owned()
    }
}

fn shell(folder: &tempfile::TempDir) -> Option<Shell> {
    let client = find_cli(CLI_SINCE)?;
    std::os::unix::fs::symlink(client, folder.path().join("redis-cli")).unwrap();
    Some(Shell { path: folder.path().to_owned() })
}

#[test]
fn the_recipe_for_redis_cli_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shell) = shell(&folder) else { return };
    let server = server();
    let (mut client, address) = (server.client(), address_of(&server));
    let says = |expression: &str| shell.says(expression, &address);

    let fence = says(&format!("acquire k alice {LONG}"));
    assert_eq!(Some(&fence), client.check("k", "alice").map(|fence| fence.to_string()).as_ref());
    assert_eq!(says(&format!("acquire k bob {LONG}")), "", "busy");
    assert_eq!(says(&format!("acquire k bob {LONG} 50")), "", "its patience ended");
    assert_eq!(client.counter("waits_timed_out"), 1);

    assert_eq!(says(&format!("extend k alice 500000 {fence}")), "1");
    assert!(client.info("k").unwrap().ttl > LONG.cast_signed(), "it was extended");
    assert_eq!(says(&format!("extend k bob {LONG} {fence}")), "0");
    assert_eq!(says(&format!("extend k alice {LONG} 1")), "0", "another fence");
    assert_eq!(says("release k alice 1"), "0", "another fence");

    let later = thread::scope(|scope| {
        let waits = scope.spawn(|| says(&format!("acquire k bob {LONG} 30000")));
        client.wait_until_waiters(1);
        assert!(client.release("k", "alice"));
        waits.join().unwrap()
    });
    assert_eq!(Some(&later), client.check("k", "bob").map(|fence| fence.to_string()).as_ref());
    assert!(later > fence, "{later} after {fence}");
    assert_eq!(says(&format!("release k bob {later}")), "1");
    assert_eq!(says(&format!("release k bob {later}")), "0", "it is free");
    assert!(!shell.run("acquire k alice 0", &address).success, "an error is no nil");
}

#[test]
fn the_recipe_for_redis_cli_shares_a_lock_among_as_many_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shell) = shell(&folder) else { return };
    let server = server();
    let (mut client, address) = (server.client(), address_of(&server));
    let says = |expression: &str| shell.says(expression, &address);
    for reader in ["alice", "bob"] {
        let fence = says(&format!("acquire k {reader} {LONG} 0 0"));
        assert_eq!(Some(fence), client.check("k", reader).map(|fence| fence.to_string()));
    }
    assert_eq!(says(&format!("acquire k carol {LONG}")), "", "it would be alone");
    assert_eq!(says(&format!("acquire k carol {LONG} 50 2")), "", "one of two");
    let later = thread::scope(|scope| {
        let waits = scope.spawn(|| says(&format!("acquire k carol {LONG} 30000 2")));
        client.wait_until_waiters(1);
        assert!(client.release("k", "alice"));
        waits.join().unwrap()
    });
    assert_eq!(Some(later), client.check("k", "carol").map(|fence| fence.to_string()));
    let info = client.info("k").unwrap();
    assert_eq!((info.holders, info.share), (2, 2));
}

/// The second host's clock is a second late, and the work takes half of that.
#[test]
fn the_nightly_recipe_runs_once_on_two_hosts_whose_clocks_differ() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shell) = shell(&folder) else { return };
    let server = server();
    let address = address_of(&server);
    let told = shell.says("nightly && sleep 0.5", &address);
    assert!(told.starts_with("tidying up, fence "), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!(shell.says("sleep 0.5; nightly", &address), "", "on the other host");
    let mut client = server.client();
    assert_eq!((client.counter("grants"), client.counter("tries_refused")), (1, 1));
    assert!(client.info("lock:table:nightly").unwrap().ttl > 590_000, "it keeps its lease");
}

#[test]
fn redis_cli_shows_the_locks_that_are_held_by_their_prefix() {
    let Some(client) = find_cli(CLI_SINCE) else { return };
    let server = server();
    for table in ["3", "7", "9"] {
        server.client().grant(format!("lock:table:{table}"), "alice", LONG);
    }
    server.client().grant("lock:chair:3", "alice", LONG);
    assert!(server.client().release("lock:table:9", "alice"));
    let mut scan = Command::new(client);
    scan.args(["-u", &address_of(&server), "--scan", "--pattern", "lock:table:*"]);
    let told = run(&mut scan).output();
    let mut found: Vec<_> = told.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["lock:table:3", "lock:table:7"]);
}

/// The tests of the crate run its README.
#[test]
fn the_lines_for_rust_are_those_of_the_readme_of_the_crate() {
    let readme = page::blocks("clients/rust/README.md", "Use", "rust");
    let mut lines = readme.lines().map(str::trim);
    let shown = page::blocks(PAGE, "Rust", "rust");
    let shown = shown.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in shown {
        assert!(
            lines.any(|of_readme| of_readme == line),
            "not in the README, or not there: {line}"
        );
    }
}
