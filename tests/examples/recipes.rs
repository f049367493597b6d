//! The recipes of docs/clients.md, run by their clients: what each says of a free lock, of a busy one, and of one
//! that it waits for.

use super::node::{IOREDIS, Installed, NODE_REDIS};
use super::program::{Told, run};
use super::python::REDIS_PY;
use super::{ADDRESS, ROOT, address_of, page, server};
use crate::support::{Client, bulk_text, eventually, find_cli};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

const PAGE: &str = "docs/clients.md";
const LONG: u64 = 60_000;

/// Since when redis-cli fails on an error, if told to.
const CLI_SINCE: (u32, u32) = (7, 0);

/// A client that a recipe is for. What it is asked is written in its language.
trait Speaker: Sync {
    /// Runs the recipe, and prints what this comes to.
    fn run(&self, expression: &str, address: &str) -> Told;

    /// A call of one of the recipe's functions.
    fn call(&self, function: &str, arguments: &[&str]) -> String;

    /// Nil, as it prints it.
    fn nothing(&self) -> &str;

    /// Whether all of a program use the same connection, but for waiting.
    fn shares_a_connection(&self) -> bool {
        true
    }

    fn says(&self, function: &str, arguments: &[&str], address: &str) -> String {
        let told = self.run(&self.call(function, arguments), address);
        told.output().trim_end().to_owned()
    }
}

pub(super) struct Script {
    package: &'static Installed,
    heading: &'static str,
}

struct Python {
    interpreter: PathBuf,
}

struct Shell {
    /// Where `redis-cli` is found under this very name.
    path: PathBuf,
}

impl Script {
    pub(super) fn program(&self, headings: &[&str], expression: &str, address: &str) -> Told {
        let mut text = page::blocks(PAGE, self.heading, "js");
        for heading in headings {
            text.push_str(&page::blocks(PAGE, heading, "js"));
        }
        writeln!(text, "console.log(await ({expression}));\nprocess.exit(0);").unwrap();
        self.package.program(&at(&text, address))
    }
}

impl Speaker for Script {
    fn run(&self, expression: &str, address: &str) -> Told {
        self.program(&[], expression, address)
    }

    fn call(&self, function: &str, arguments: &[&str]) -> String {
        called(function, arguments)
    }

    fn nothing(&self) -> &str {
        "null"
    }
}

impl Speaker for Python {
    fn run(&self, expression: &str, address: &str) -> Told {
        let text = at(&page::blocks(PAGE, "redis-py", "python"), address);
        let text = format!("{text}\nprint({expression})\n");
        run(Command::new(&self.interpreter).arg("-c").arg(text))
    }

    fn call(&self, function: &str, arguments: &[&str]) -> String {
        called(function, arguments)
    }

    fn nothing(&self) -> &str {
        "None"
    }
}

impl Speaker for Shell {
    fn run(&self, expression: &str, address: &str) -> Told {
        let text = at(&page::blocks(PAGE, "redis-cli", "sh"), address);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.path.display());
        run(Command::new("sh").arg("-ec").arg(format!("{text}\n{expression}\n")).env("PATH", path))
    }

    fn call(&self, function: &str, arguments: &[&str]) -> String {
        format!("{function} {}", arguments.join(" "))
    }

    fn nothing(&self) -> &str {
        ""
    }

    fn shares_a_connection(&self) -> bool {
        false
    }
}

pub(super) fn wait_until_waiters(client: &mut Client, wanted: u64) {
    eventually("so many wait", || match client.counter("waiters") {
        waiters if waiters == wanted => Ok(()),
        waiters => Err(waiters),
    });
}

fn connections_that_do_not_wait(client: &mut Client) -> usize {
    let connections = bulk_text(&client.cmd("CLIENT LIST"));
    let flags = connections.lines().map(|line| line.split(" flags=").nth(1).unwrap());
    flags.filter(|flags| !flags.split(' ').next().unwrap().contains('b')).count()
}

/// In languages that write this alike.
fn called(function: &str, arguments: &[&str]) -> String {
    let is_number = |word: &&str| word.chars().all(|c| c.is_ascii_digit());
    let quoted =
        |word: &&str| if is_number(word) { (*word).to_owned() } else { format!("'{word}'") };
    let arguments: Vec<_> = arguments.iter().map(quoted).collect();
    format!("{function}({})", arguments.join(", "))
}

/// The recipe for this server instead of the usual one.
fn at(text: &str, address: &str) -> String {
    assert!(text.contains(ADDRESS), "a recipe for no server: {text}");
    text.replace(ADDRESS, address)
}

pub(super) fn script(package: Option<&'static Installed>, heading: &'static str) -> Option<Script> {
    Some(Script { package: package?, heading })
}

fn shell(folder: &tempfile::TempDir) -> Option<Shell> {
    let client = find_cli(CLI_SINCE)?;
    std::os::unix::fs::symlink(client, folder.path().join("redis-cli")).unwrap();
    Some(Shell { path: folder.path().to_owned() })
}

#[test]
fn the_recipe_for_ioredis_does_what_it_says() {
    script(IOREDIS.installed(), "ioredis").iter().for_each(does_what_it_says);
}

#[test]
fn the_recipe_for_node_redis_does_what_it_says() {
    script(NODE_REDIS.installed(), "node-redis").iter().for_each(does_what_it_says);
}

#[test]
fn the_recipe_for_redis_py_does_what_it_says() {
    let python =
        REDIS_PY.programs().map(|programs| Python { interpreter: programs.join("python") });
    python.iter().for_each(does_what_it_says);
}

#[test]
fn the_recipe_for_redis_cli_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shell) = shell(&folder) else { return };
    does_what_it_says(&shell);

    let server = server();
    let address = address_of(&server);
    let told = shell.says("nightly", &[], &address);
    assert!(told.starts_with("tidying up, fence "), "{told}");
    assert_eq!(server.client().counter("releases"), 1);
    server.client().grant("lock:table:nightly", "another", LONG);
    assert_eq!(shell.says("nightly", &[], &address), "");
    assert!(!shell.run("acquire k alice 0", &address).success, "an error is no nil");
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

/// `cargo test` runs the example of the crate; lines that begin with `#` are not shown there either.
#[test]
fn the_recipe_for_rust_is_the_example_of_the_crate() {
    let source = fs::read_to_string(Path::new(ROOT).join("client/src/lib.rs")).unwrap();
    let example = source.split("//! ```\n").nth(1).unwrap();
    let lines = example.lines().map(|line| line.trim_start_matches("//!"));
    let shown = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let shown: Vec<_> = shown.filter(|line| !line.starts_with('#')).collect();
    assert!(shown.len() > 10, "this test no longer understands client/src/lib.rs");
    assert_eq!(page::blocks(PAGE, "Rust", "rust").trim(), shown.join("\n").trim());
}

fn does_what_it_says(speaker: &impl Speaker) {
    let server = server();
    let (mut client, address) = (server.client(), address_of(&server));
    let long = LONG.to_string();
    let says = |function, arguments: &[&str]| speaker.says(function, arguments, &address);

    let fence = says("acquire", &["k", "alice", &long]);
    assert_eq!(Some(&fence), client.check("k", "alice").map(|fence| fence.to_string()).as_ref());
    assert_eq!(says("acquire", &["k", "bob", &long]), speaker.nothing(), "busy");
    assert_eq!(
        says("acquire", &["k", "bob", &long, "50"]),
        speaker.nothing(),
        "its patience ended"
    );
    assert_eq!(client.counter("waits_timed_out"), 1);

    assert_eq!(says("extend", &["k", "alice", "500000", &fence]), "1");
    assert!(client.info("k").unwrap().ttl > LONG.cast_signed(), "it was extended");
    assert_eq!(says("extend", &["k", "bob", &long, &fence]), "0");
    assert_eq!(says("extend", &["k", "alice", &long, "1"]), "0", "another fence");
    assert_eq!(says("release", &["k", "alice", "1"]), "0", "another fence");

    let later = thread::scope(|scope| {
        let waits = scope.spawn(|| says("acquire", &["k", "bob", &long, "30000"]));
        wait_until_waiters(&mut client, 1);
        let idle = connections_that_do_not_wait(&mut client);
        assert_eq!(
            idle,
            1 + usize::from(speaker.shares_a_connection()),
            "ours, and the one it shares"
        );
        assert!(client.release("k", "alice"));
        waits.join().unwrap()
    });
    assert_eq!(Some(&later), client.check("k", "bob").map(|fence| fence.to_string()).as_ref());
    assert!(later > fence, "{later} after {fence}");
    assert_eq!(says("release", &["k", "bob", &later]), "1");
    assert_eq!(says("release", &["k", "bob", &later]), "0", "it is free");
}
