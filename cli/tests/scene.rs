//! What most tests begin with.

use crate::dispositions::begin_as_usual;
use crate::program::Program;
use redis::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Server, Setup, eventually};

/// Longer than any test: a lease that must not end.
pub(crate) const LONG: u64 = 60_000;

pub(crate) fn with_module() -> Setup {
    begin_as_usual();
    Server::builder().tcp()
}

pub(crate) fn server() -> Server {
    with_module().start()
}

pub(crate) fn both_kinds() -> [Server; 2] {
    [server(), with_module().without_module().start()]
}

pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// The program with these arguments, without the settings of this process.
pub(crate) fn leasehold(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    for (name, _) in std::env::vars() {
        if name.starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.env("LEASEHOLD_URL", url).args(words);
    command
}

/// The program, started by a process that ignores this signal.
pub(crate) fn ignoring(signal: &str, program: Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' {signal}; exec \"$0\" \"$@\"")]);
    shell.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

pub(crate) fn start(server: &Server, words: &[&str]) -> Program {
    Program::start(leasehold(&url(server.port()), words))
}

/// Runs the program to its end; returns its exit code and standard error.
pub(crate) fn run(server: &Server, words: &[&str]) -> (i32, String) {
    let ended = start(server, words).ends();
    (ended.code, ended.said)
}

/// The value that the server holds under this key.
pub(crate) fn held(server: &Server, key: &str) -> Option<String> {
    match server.cmd(["GET", key]) {
        Value::Nil => None,
        Value::BulkString(value) => Some(String::from_utf8(value).unwrap()),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn eventually_held(server: &Server, key: &str) -> String {
    eventually("the lock is held", || held(server, key).ok_or(()))
}

pub(crate) fn eventually_free(server: &Server, key: &str) {
    eventually("the lock is free", || held(server, key).map_or(Ok(()), Err));
}

/// How long the key has left on the server.
pub(crate) fn left(server: &Server, key: &str) -> Duration {
    match server.cmd(["PTTL", key]) {
        Value::Int(left) => Duration::from_millis(left.try_into().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Holds the lock for an unrelated owner, on a server with or without the module.
pub(crate) fn hold(server: &Server, key: &str, owner: &str) {
    let value = format!("{}:{owner}", testkit::unix_micros());
    server.cmd(["SET", key, &value, "PX", &LONG.to_string()]);
}

/// Waits until the queue of the lock has this length.
pub(crate) fn eventually_waiting(server: &Server, key: &str, count: i64) {
    eventually("so many wait", || {
        let seen = server.client().info(key).map_or(0, |info| info.waiters);
        if seen == count { Ok(()) } else { Err(seen) }
    });
}

/// Waits for an effect that no command can ask about.
pub(crate) fn let_pass(time: Duration, what: &str) {
    let end = Instant::now() + time;
    eventually(what, || if Instant::now() < end { Err(()) } else { Ok(()) });
}

/// Whether the process exists and has not ended.
pub(crate) fn is_running(pid: u32) -> bool {
    !matches!(state(pid), None | Some('Z'))
}

pub(crate) fn eventually_stopped(pid: u32) {
    eventually("the process is stopped", || match state(pid) {
        Some('T') => Ok(()),
        other => Err(other),
    });
}

/// None if the process does not exist.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the name, which is in parentheses.
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn eventually_gone(pid: u32) {
    eventually("the process has ended", || if is_running(pid) { Err(pid) } else { Ok(()) });
}
