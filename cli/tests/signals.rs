//! Signals are passed on to the command.

use crate::program::Program;
use crate::scene::{
    eventually_held, eventually_waiting, held, hold, ignoring, is_running, leasehold, server,
    start, url,
};
use std::os::unix::process::CommandExt;
use testkit::{eventually, signal};

/// Prints each signal, and ends when it reads a line.
const TELLS: &str = "for s in INT TERM HUP QUIT USR1 USR2 WINCH; do trap \"echo got $s\" $s; done
echo $$ .; until read line; do :; done; exit 3";

#[test]
fn signals_are_passed_on_to_the_command() {
    let server = server();
    let mut program = start(&server, &["run", "x", "--", "sh", "-c", TELLS]);
    program.prints(".\n");
    for name in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"] {
        program.signal(name);
        program.prints(&format!("got {name}\n"));
    }
    program.types("end\n");
    assert_eq!(program.ends().code, 3);
    assert_eq!(held(&server, "x"), None);
}

#[test]
fn a_command_that_ends_by_a_signal_gives_the_lock_back() {
    let server = server();
    let program = start(&server, &["run", "x", "--", "sh", "-c", "echo .; exec sleep 1000"]);
    program.prints(".\n");
    assert_eq!(program.ends_by("TERM").code, 128 + 15);
    assert_eq!(held(&server, "x"), None);
}

/// The state of a process according to the kernel; `T` means stopped.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

fn eventually_in_state(pid: u32, wanted: &[char]) {
    eventually("the process is in that state", || {
        let seen = state(pid);
        if wanted.contains(&seen) { Ok(()) } else { Err(seen) }
    });
}

#[test]
fn stopping_and_continuing_is_passed_on() {
    let server = server();
    let script = "echo $$ .; read line; exit 3";
    let words = ["run", "x", "--", "sh", "-c", script];
    let mut command = leasehold(&url(server.port()), &words);
    // In its own process group, so that no other process is stopped with it.
    command.process_group(0);
    let mut program = Program::start(command);
    let printed = program.prints(" .\n");
    let (command, leasehold) = (printed.split(' ').next().unwrap().parse().unwrap(), program.id());
    signal(leasehold, "TSTP").unwrap();
    eventually_in_state(command, &['T']);
    eventually_in_state(leasehold, &['T']);
    signal(leasehold, "CONT").unwrap();
    eventually_in_state(command, &['S', 'R']);
    program.types("end\n");
    assert_eq!(program.ends().code, 3);
}

#[test]
fn a_signal_while_one_waits_leaves_the_queue() {
    let server = server();
    hold(&server, "x", "alice");
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        let program = start(&server, &["run", "x", "--", "echo", "no"]);
        eventually_waiting(&server, "x", 1);
        let ended = program.ends_by(name);
        assert_eq!((ended.code, ended.printed.as_str()), (code, ""));
        eventually_waiting(&server, "x", 0);
    }
}

#[test]
fn what_is_ignored_by_whoever_starts_leasehold_stays_ignored() {
    let server = server();
    let script = "echo $$ .; read line; exit 3";
    let words = ["run", "x", "--", "sh", "-c", script];
    let mut program = Program::start(ignoring("HUP", leasehold(&url(server.port()), &words)));
    let printed = program.prints(" .\n");
    let pid: u32 = printed.split(' ').next().unwrap().parse().unwrap();
    eventually_held(&server, "x");
    program.signal("HUP");
    signal(pid, "HUP").unwrap();
    assert!(is_running(pid));
    program.types("end\n");
    assert_eq!(program.ends().code, 3);
}
