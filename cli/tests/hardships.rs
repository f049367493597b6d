//! Adverse conditions: the program's file is replaced while it waits, variables choose the lease, the program is PID 1
//! of a container, a disk is full.

use crate::ending::{STUBBORN, both};
use crate::program::Program;
use crate::scene::{
    LONG, both_kinds, eventually_free, eventually_held, eventually_waiting, held, hold, is_running,
    leasehold, left, server, start, url,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::eventually;

#[test]
fn the_lease_of_the_variable_bounds_the_time_to_end_when_leasehold_is_killed() {
    let server = server();
    let mut command = leasehold(&url(server.port()), &["run", "x", "--", "sh", "-c", STUBBORN]);
    command.env("LEASEHOLD_TTL_MS", "6000");
    let program = Program::start(command);
    let pids = both(&program);
    program.signal("KILL");
    eventually("the command or the lock is gone", || {
        let is_held = held(&server, "x").is_some();
        let is_there = pids.iter().any(|pid| is_running(*pid));
        assert!(is_held || !is_there, "the command outlived the lock");
        if is_there { Err(()) } else { Ok(()) }
    });
}

#[test]
fn the_lease_is_no_shorter_than_the_least_time_nor_than_the_variable_says() {
    let server = server();
    for (variable, least, shortest) in [("2000", "20s", 12), ("200000", "40s", 120)] {
        let words = ["run", "--at-least", least, "x", "--", "sh", "-c", "echo held; read line"];
        let mut command = leasehold(&url(server.port()), &words);
        command.env("LEASEHOLD_TTL_MS", variable);
        let program = Program::start(command);
        program.prints("held\n");
        let left = left(&server, "x");
        assert!(left > Duration::from_secs(shortest), "{variable} {least}: {left:?}");
        program.ends();
        server.cmd("DEL x");
    }
}

#[test]
fn a_program_whose_file_was_replaced_while_it_waited_runs_its_command() {
    let server = server();
    server.client().grant("x", "alice", LONG);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leasehold");
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), &file).unwrap();
    let mut command = Command::new(&file);
    command.args(["run", "x", "--", "echo", "done"]).env("LEASEHOLD_URL", url(server.port()));
    let program = Program::start(command);
    eventually_waiting(&server, "x", 1);
    fs::remove_file(&file).unwrap();
    assert!(server.client().release("x", "alice"));
    let ended = program.ends();
    assert_eq!((ended.code, ended.printed.as_str()), (0, "done\n"), "{}", ended.said);
}

/// Not a test, but the process that the next test starts. Inherits the orphans below it, as PID 1 of a container does,
/// and becomes the program.
#[test]
#[ignore = "it becomes another program"]
fn with_the_orphans() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let script = "(sleep 1000 & echo $! .); exec sleep 1000";
    let words = ["run", "--ttl", "600ms", "--grace", "200ms", "x", "--", "sh", "-c", script];
    let address = std::env::var("LEASEHOLD_URL").unwrap();
    panic!("{}", leasehold(&address, &words).exec());
}

#[test]
fn orphans_that_it_inherits_do_not_keep_it_from_ending() {
    let server = server();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "hardships::with_the_orphans", "--ignored", "--nocapture"]);
    command.env("LEASEHOLD_URL", url(server.port()));
    let program = Program::start(command);
    program.prints(" .\n");
    server.cmd("DEL x");
    let ended = program.ends();
    assert_eq!(ended.code, 79, "{}", ended.said);
    assert!(!ended.said.contains("has not ended"), "{}", ended.said);
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    for server in both_kinds() {
        hold(&server, "x", "alice");
        for words in [&["ls"][..], &["ls", "--json"], &["show", "x"], &["top", "--once"]] {
            let mut command = leasehold(&url(server.port()), words);
            command.stdout(File::options().write(true).open("/dev/full").unwrap());
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(70), "{words:?}: {said}");
            assert!(said.contains("No space left on device"), "{words:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        }
    }
}

/// Dying of the signal tells a shell to end its script instead of going on with the next line.
#[test]
fn an_interrupt_ends_the_program_itself() {
    let server = server();
    let program = start(&server, &["run", "x", "--", "sleep", "1000"]);
    eventually_held(&server, "x");
    let waiting = start(&server, &["run", "x", "--", "true"]);
    eventually_waiting(&server, "x", 1);
    assert_eq!(waiting.ends_by("INT").signal, Some(2));
    assert_eq!(program.ends_by("INT").signal, Some(2));
    eventually_free(&server, "x");
    // An exit code of 130 from the command stays an exit code.
    let ended = start(&server, &["run", "x", "--", "sh", "-c", "exit 130"]).ends();
    assert_eq!((ended.code, ended.signal), (130, None));
}

#[test]
fn no_password_is_shown_of_an_address_that_is_written_in_another_way() {
    for address in [
        "worker:s3cret@127.0.0.1:1",
        "redis:worker:s3cret@127.0.0.1:1",
        "unix:///nowhere.sock?user=worker&pass=s3cret",
        "unix:///nowhere.sock?pass=s3@cret",
    ] {
        for words in [&["run", "--wait", "0", "x", "--", "true"][..], &["ls"], &["top", "--once"]] {
            let mut command = leasehold(address, words);
            command.env("LEASEHOLD_RETRY_FOR_MS", "200");
            let ended = Program::start(command).ends();
            let told = ended.printed + &ended.said;
            assert!(ended.code == 64 || ended.code == 69, "{address} {words:?}: {told}");
            assert!(!told.contains("cret"), "{address} {words:?}: {told}");
            assert!(!told.contains("worker"), "{address} {words:?}: {told}");
        }
    }
}

/// A full socket that nobody reads, and its other end.
fn unread() -> (UnixStream, Stdio) {
    let (reader, mut full) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b'.'; 512]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    (reader, Stdio::from(OwnedFd::from(full)))
}

#[test]
fn a_lease_is_renewed_though_nobody_reads_what_is_said() {
    let mut server = server();
    let words = ["run", "--ttl", "4s", "x", "--", "sh", "-c", "read line; exit 5"];
    let (reader, full) = unread();
    let mut command = leasehold(&url(server.port()), &words);
    let mut program = command.stdin(Stdio::piped()).stderr(full).spawn().unwrap();
    eventually_held(&server, "x");
    server.freeze();
    // Longer than the timeout of a renewal, and shorter than the lease.
    std::thread::sleep(Duration::from_millis(2_600));
    server.thaw();
    // Longer than an unrenewed lease.
    let thawed = Instant::now();
    while thawed.elapsed() < Duration::from_secs(5) {
        assert!(held(&server, "x").is_some(), "{:?}", thawed.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((program.stdin.take(), reader));
    assert_eq!(program.wait().unwrap().code(), Some(5));
}
