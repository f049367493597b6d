//! What docs/clients.md shows for shells, run as printed, and for Rust.

use super::stores::Store;
use super::{CLI_SINCE, address_of, server};
use crate::page::shown;
use crate::program::{Told, run};
use std::process::Command;
use std::thread;
use testkit::{Server, find_cli};

const PAGE: &str = "docs/clients.md";
const LONG: u64 = 60_000;

/// What is shown for `redis-cli`, for this server.
struct Recipe {
    server: Server,
    store: Store,
}

impl Recipe {
    fn new() -> Option<Self> {
        let server = server();
        let store = Store::of_redis(&server)?;
        Some(Self { server, store })
    }

    fn run(&self, expression: &str) -> Told {
        self.store.run(&shown(PAGE, "redis-cli", "sh"), expression)
    }

    fn says(&self, expression: &str) -> String {
        self.run(expression).output().trim_end().to_owned()
    }

    fn fence_of(&self, owner: &str) -> Option<String> {
        self.server.client().check("k", owner).map(|fence| fence.to_string())
    }

    /// What this says that waits until alice releases the lock.
    fn says_after_alice(&self, expression: &str) -> String {
        thread::scope(|scope| {
            let waits = scope.spawn(|| self.says(expression));
            let mut client = self.server.client();
            client.wait_until_waiters(1);
            assert!(client.release("k", "alice"));
            waits.join().unwrap()
        })
    }
}

#[test]
fn the_recipe_for_redis_cli_does_what_it_says() {
    let Some(recipe) = Recipe::new() else { return };
    let fence = recipe.says(&format!("acquire k alice {LONG}"));
    assert_eq!(Some(&fence), recipe.fence_of("alice").as_ref());
    for (expression, wanted) in [
        (format!("acquire k bob {LONG}"), ""),
        (format!("acquire k bob {LONG} 50"), ""),
        (format!("extend k alice 500000 {fence}"), "1"),
        (format!("extend k bob {LONG} {fence}"), "0"),
        (format!("extend k alice {LONG} 1"), "0"),
        ("release k alice 1".to_owned(), "0"),
    ] {
        assert_eq!(recipe.says(&expression), wanted, "{expression}");
    }
    let mut client = recipe.server.client();
    assert_eq!(client.counter("waits_timed_out"), 1);
    assert!(client.info("k").unwrap().ttl > LONG.cast_signed(), "it was extended");
    let later = recipe.says_after_alice(&format!("acquire k bob {LONG} 30000"));
    assert_eq!(Some(&later), recipe.fence_of("bob").as_ref());
    assert!(later > fence, "{later} after {fence}");
    for released in ["1", "0"] {
        assert_eq!(recipe.says(&format!("release k bob {later}")), released);
    }
    assert!(!recipe.run("acquire k alice 0").success, "an error is no nil");
}

#[test]
fn the_recipe_for_redis_cli_shares_a_lock_among_as_many_as_it_says() {
    let Some(recipe) = Recipe::new() else { return };
    for reader in ["alice", "bob"] {
        let fence = recipe.says(&format!("acquire k {reader} {LONG} 0 0"));
        assert_eq!(Some(fence), recipe.fence_of(reader));
    }
    assert_eq!(recipe.says(&format!("acquire k carol {LONG}")), "", "it would be alone");
    assert_eq!(recipe.says(&format!("acquire k carol {LONG} 50 2")), "", "one of two");
    let later = recipe.says_after_alice(&format!("acquire k carol {LONG} 30000 2"));
    assert_eq!(Some(later), recipe.fence_of("carol"));
    let info = recipe.server.client().info("k").unwrap();
    assert_eq!((info.holders, info.share), (2, 2));
}

/// The second host's clock is a second late, and the work takes half of that.
#[test]
fn the_nightly_recipe_runs_once_on_two_hosts_whose_clocks_differ() {
    let Some(recipe) = Recipe::new() else { return };
    let told = recipe.says("nightly && sleep 0.5");
    assert!(told.starts_with("tidying up, fence ") && told.lines().count() == 1, "{told}");
    assert_eq!(recipe.says("sleep 0.5; nightly"), "", "on the other host");
    let mut client = recipe.server.client();
    assert_eq!((client.counter("grants"), client.counter("tries_refused")), (1, 1));
    assert!(client.info("lock:table:nightly").unwrap().ttl > 590_000, "it keeps its lease");
}

#[test]
fn redis_cli_shows_the_locks_that_are_held_by_their_prefix() {
    let Some(client) = find_cli(CLI_SINCE) else { return };
    let server = server();
    for name in ["table:3", "table:7", "table:9", "chair:3"] {
        server.client().grant(format!("lock:{name}"), "alice", LONG);
    }
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
    let readme = shown("clients/rust/README.md", "Use", "rust");
    let mut lines = readme.lines().map(str::trim);
    for line in shown(PAGE, "Rust", "rust").lines().map(str::trim).filter(|line| !line.is_empty()) {
        assert!(lines.any(|other| other == line), "not in the README, or not there: {line}");
    }
}
