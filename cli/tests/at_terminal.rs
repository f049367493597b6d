//! At a terminal: the line that shows a wait, and the keyboard, which belongs to the command.

use crate::scene::{
    eventually_free, eventually_held, eventually_stopped, held, leasehold, server, url, with_module,
};
use nix::libc::SIGTTOU;
use std::process::Command;
use testkit::{Server, Terminal, signal};

const CONTROL_C: &str = "\x03";
const CONTROL_Z: &str = "\x1a";

/// A shell with job control, at its prompt.
fn shell(server: &Server) -> Terminal {
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "--noediting", "-i"]);
    shell.env("LEASEHOLD_URL", url(server.port())).env("PS1", "ready> ").env("TERM", "dumb");
    shell.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
    let mut terminal = Terminal::run(shell);
    terminal.shows("ready> ");
    terminal
}

/// The process id that is shown between this text and " .".
fn number_behind(text: &str, terminal: &mut Terminal) -> u32 {
    terminal.shows(text);
    terminal.shows(" .\r\n").parse().unwrap()
}

#[test]
fn one_line_tells_who_holds_it_and_goes_away() {
    // Without a margin, fences equal the time from the start.
    let server = with_module().module_args("fence-margin 0").start();
    server.client().grant("x", "alice", 60_000);
    let program = leasehold(&url(server.port()), &["run", "x", "--", "echo", "done"]);
    let mut terminal = Terminal::run(program);
    terminal.shows("\r\x1b[?7lleasehold: waiting for x: held by alice for ");
    terminal.shows(", we are next\x1b[K\x1b[?7h");
    let between = terminal.shows("\x1b[?7lleasehold: waiting for x: held by alice for ");
    assert!(!between.contains('\n'), "{between:?}");
    assert!(server.client().release("x", "alice"));
    let rest = terminal.shows("done\r\n");
    assert!(rest.ends_with("\r\x1b[K"), "{rest:?}");
    assert!(terminal.ends().success());
}

#[test]
fn the_keyboard_is_the_commands() {
    let server = server();
    let mut terminal = shell(&server);
    terminal.types("$LEASEHOLD run x -- sh -c 'read line; echo got $line; exit 4'; echo code $?\n");
    eventually_held(&server, "x");
    terminal.types("this\n");
    terminal.shows("got this\r\ncode 4\r\n");
    terminal.shows("ready> ");
    assert_eq!(held(&server, "x"), None);
}

#[test]
fn control_c_ends_the_command_and_the_script_around_it() {
    let server = server();
    let mut terminal = shell(&server);
    let script =
        "sh -c '$LEASEHOLD run x -- sh -c \"echo begun; exec sleep 1000\"; echo not shown'";
    terminal.types(&format!("{script}; echo co''de $?\n"));
    terminal.shows("begun\r\n");
    terminal.types(CONTROL_C);
    let between = terminal.shows("ready> ");
    assert!(!between.contains("not shown"), "{between}");
    eventually_free(&server, "x");
}

#[test]
fn control_z_stops_the_job_and_fg_continues_it() {
    let server = server();
    let mut terminal = shell(&server);
    terminal
        .types("$LEASEHOLD run x -- sh -c 'echo begun; read line; echo got $line'; echo code $?\n");
    terminal.shows("begun\r\n");
    terminal.types(CONTROL_Z);
    terminal.shows("Stopped");
    terminal.shows("ready> ");
    terminal.types("fg\n");
    terminal.types("that\n");
    terminal.shows("got that\r\n");
    terminal.shows("ready> ");
    eventually_free(&server, "x");
}

#[test]
fn a_job_that_was_stopped_for_longer_than_its_lease_is_ended_and_not_continued() {
    let server = server();
    let mut terminal = shell(&server);
    // The quotes keep the shell's display of the job from matching.
    let script = "echo begun; read line; echo writ\"\"ten";
    terminal.types(&format!("$LEASEHOLD run --ttl 1s x -- sh -c '{script}'; echo co''de $?\n"));
    terminal.shows("begun\r\n");
    terminal.types(CONTROL_Z);
    terminal.shows("ready> ");
    eventually_free(&server, "x");
    terminal.types("fg; echo en''ded $?\n");
    let between = terminal.shows("lost x: ") + &terminal.shows("ended 79");
    assert!(!between.contains("written"), "{between}");
}

/// Only a shell continues both.
#[test]
fn a_command_that_is_continued_without_leasehold_after_its_lease_is_stopped_again() {
    let server = server();
    let mut terminal = shell(&server);
    let script = r#"echo be""gun $$ .; exec sleep 1000"#;
    terminal.types(&format!("$LEASEHOLD run --ttl 1s x -- sh -c '{script}'\n"));
    let pid = number_behind("begun ", &mut terminal);
    terminal.types(CONTROL_Z);
    terminal.shows("ready> ");
    eventually_free(&server, "x");
    for _ in 0..2 {
        eventually_stopped(pid);
        signal(pid, "CONT").unwrap();
    }
    eventually_stopped(pid);
    terminal.types("fg; echo en''ded $?\n");
    terminal.shows("ended 79");
}

/// Leasehold blocks SIGTTOU for itself, not for the command.
#[test]
fn a_command_at_a_terminal_is_stopped_by_what_others_are_stopped_by() {
    let server = server();
    let mut terminal = shell(&server);
    terminal.types("$LEASEHOLD run x -- grep SigBlk /proc/self/status\n");
    terminal.shows("SigBlk:\t");
    let mask = terminal.shows("\r\n");
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    assert_eq!(mask >> (SIGTTOU - 1) & 1, 0, "{mask:x}");
}

#[test]
fn what_leasehold_says_stops_nobody_where_that_stops_a_job_in_the_background() {
    let server = server();
    let mut terminal = shell(&server);
    // --verbose reports each renewal while the command has the foreground.
    let program = "$LEASEHOLD run --verbose --ttl 600ms x -- sh -c 'sleep 2; exit 5'";
    terminal.types(&format!("stty tostop; {program}; echo co''de $?\n"));
    terminal.shows("code 5\r\n");
}

/// A process that ignores the stop would work on while nobody renews the lease.
#[test]
fn control_z_stops_what_ignores_it_too() {
    let server = server();
    let mut terminal = shell(&server);
    let deaf = r#"(trap "" TSTP; exec sleep 1000) & echo de""af $! .; read line; kill -9 $!"#;
    terminal.types(&format!("$LEASEHOLD run x -- sh -c '{deaf}'\n"));
    let pid = number_behind("deaf ", &mut terminal);
    terminal.types(CONTROL_Z);
    terminal.shows("ready> ");
    eventually_stopped(pid);
    terminal.types("fg\n");
    terminal.types("that\n");
    terminal.shows("ready> ");
    eventually_free(&server, "x");
}

#[test]
fn a_command_in_a_pipeline_leaves_the_keyboard_to_the_others_until_it_reads() {
    let server = server();
    let mut terminal = shell(&server);
    let asks = "sh -c 'echo begun; read line </dev/tty; echo got $line'";
    terminal.types(&format!("$LEASEHOLD run x -- {asks} | cat; echo en''ded\n"));
    terminal.shows("begun\r\n");
    terminal.types("this\n");
    terminal.shows("got this\r\n");
    terminal.shows("ended\r\n");
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_and_fg_gives_it_the_keyboard() {
    let server = server();
    let mut terminal = shell(&server);
    terminal.types("$LEASEHOLD run x -- sh -c 'read line; echo got $line' &\n");
    terminal.shows("ready> ");
    eventually_held(&server, "x");
    terminal.types("until jobs | grep -q Stopped; do sleep 0.01; done; echo sto''pped\n");
    terminal.shows("stopped");
    terminal.types("fg\n");
    terminal.types("those\n");
    terminal.shows("got those\r\n");
    eventually_free(&server, "x");
}
