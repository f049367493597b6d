//! The watchdog: leasehold may be killed or stopped at any moment, and so may the watchdog itself.

use crate::ending::{STUBBORN, TREE, both, tree};
use crate::program::Program;
use crate::scene::{
    eventually_free, eventually_gone, eventually_stopped, ignoring, is_running, leasehold, left,
    let_pass, server, start, url,
};
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};
use testkit::{Server, eventually, signal};

/// The watchdog, and the command once it is started.
fn children(program: &Program) -> Vec<u32> {
    let file = format!("/proc/{0}/task/{0}/children", program.id());
    let children = std::fs::read_to_string(file).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// The child that is not the command.
fn watchdog(program: &Program, command: u32) -> Option<u32> {
    children(program).into_iter().find(|pid| *pid != command)
}

/// After this harm another watchdog takes over, which ends the command when leasehold is killed.
fn assert_replaced_after(harm: impl FnOnce(u32)) {
    let server = server();
    let options = ["--ttl", "60s", "--grace", "100ms"];
    let (program, pids) = tree(&server, &options, STUBBORN);
    let first = watchdog(&program, pids[0]).unwrap();
    harm(first);
    eventually("there is another watchdog", || match watchdog(&program, pids[0]) {
        Some(pid) if pid != first => Ok(()),
        other => Err(other),
    });
    program.signal("KILL");
    pids.into_iter().for_each(eventually_gone);
}

/// Returns as soon as leasehold has started this many processes. Leasehold itself notices only after they have
/// called exec, so a signal comes first.
fn when_it_has_started(count: usize, program: &Program) {
    let since = Instant::now();
    while children(program).len() < count {
        assert!(since.elapsed() < Duration::from_secs(60), "it has not started so many");
        std::thread::yield_now();
    }
}

/// Stops leasehold while it starts the command, which begins.
fn stopped_while_starting(server: &Server, script: &str) -> (Program, Vec<u32>) {
    // Long enough for the command to begin on a busy machine.
    let words = ["run", "--ttl", "5s", "--grace", "100ms", "x", "--", "sh", "-c", script];
    let program = start(server, &words);
    when_it_has_started(2, &program);
    program.signal("STOP");
    let pids = both(&program);
    (program, pids)
}

#[test]
fn when_leasehold_is_stopped_while_it_starts_the_command_that_ends_with_its_lease() {
    for script in [TREE, STUBBORN] {
        let server = server();
        let (program, pids) = stopped_while_starting(&server, script);
        pids.into_iter().for_each(eventually_gone);
        program.signal("CONT");
        assert_eq!(program.ends().code, 79);
    }
}

#[test]
fn when_leasehold_is_killed_while_it_starts_the_command_that_ends() {
    for script in [TREE, STUBBORN] {
        let server = server();
        let (program, pids) = stopped_while_starting(&server, script);
        program.signal("KILL");
        pids.into_iter().for_each(eventually_gone);
        assert_eq!(program.ends().code, 128 + 9);
    }
}

#[test]
fn when_leasehold_is_killed_before_the_command_begins_nothing_is_left() {
    for script in [TREE, STUBBORN] {
        let server = server();
        let program = start(&server, &["run", "--grace", "100ms", "x", "--", "sh", "-c", script]);
        when_it_has_started(2, &program);
        program.signal("KILL");
        // The command's processes, which have the output open, are gone too.
        assert_eq!(program.ends().code, 128 + 9);
    }
}

#[test]
fn a_command_whose_lease_is_over_before_it_begins_is_not_run() {
    let server = server();
    let stopped = || {
        let words = ["run", "--ttl", "500ms", "x", "--", "echo", "begun"];
        // Otherwise TERM may end the command before it begins.
        let command = ignoring("TERM", leasehold(&url(server.port()), &words));
        let program = Program::start(command);
        when_it_has_started(1, &program);
        program.signal("STOP");
        eventually_free(&server, "x");
        // The command has already started, so the stop came too late.
        if children(&program).len() > 1 { Err(()) } else { Ok(program) }
    };
    let program = eventually("it is stopped between the grant and the start", stopped);
    program.signal("CONT");
    let ended = program.ends();
    assert_eq!((ended.code, ended.printed.as_str()), (79, ""), "{}", ended.said);
}

#[test]
fn a_command_that_was_asked_to_end_is_killed_though_leasehold_is_stopped() {
    let server = server();
    let script = "trap 'echo asked' TERM; sleep 1000 & echo $$ $! .; while :; do wait; done";
    let (program, pids) = tree(&server, &["--ttl", "900ms", "--grace", "1s"], script);
    server.cmd("DEL x");
    // The watchdog already knows the moment of the kill.
    program.prints("asked\n");
    program.signal("STOP");
    pids.into_iter().for_each(eventually_gone);
    program.signal("CONT");
    let ended = program.ends();
    assert_eq!(ended.code, 79);
    assert_eq!(ended.printed.matches("asked").count(), 1, "the watchdog has only killed it");
}

#[test]
fn a_watchdog_that_is_killed_is_replaced() {
    assert_replaced_after(|watchdog| signal(watchdog, "KILL").unwrap());
}

#[test]
fn a_watchdog_that_stood_still_longer_than_the_lease_ends_nothing() {
    let server = server();
    let (program, pids) = tree(&server, &["--ttl", "900ms"], TREE);
    let watchdog = watchdog(&program, pids[0]).unwrap();
    signal(watchdog, "STOP").unwrap();
    let_pass(Duration::from_secs(3), "it was stopped for longer than the lease");
    signal(watchdog, "CONT").unwrap();
    let_pass(Duration::from_secs(2), "it has heard all that it was told");
    assert!(pids.iter().all(|pid| is_running(*pid)));
    assert_eq!(program.ends_by("TERM").code, 128 + 15);
}

/// The pipe to the watchdog is full, and its first messages are old.
#[test]
fn a_watchdog_that_cannot_be_told_any_more_is_replaced() {
    assert_replaced_after(|watchdog| {
        signal(watchdog, "STOP").unwrap();
        eventually_stopped(watchdog);
        let mut pipe = File::options();
        pipe.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let mut pipe = pipe.open(format!("/proc/{watchdog}/fd/0")).unwrap();
        while pipe.write(b"\n").is_ok() {}
    });
}

#[test]
fn what_leasehold_has_started_ends_with_it_whatever_grace_it_has() {
    let server = server();
    // In milliseconds this does not fit in 64 bits.
    let options = ["--ttl", "1500ms", "--grace", "18446744073709551615"];
    let (program, pids) = tree(&server, &options, TREE);
    program.signal("KILL");
    pids.into_iter().for_each(eventually_gone);
}

#[test]
fn a_command_goes_on_whose_lease_is_renewed_just_before_its_end() {
    let mut server = server();
    let renewed = || {
        let (program, pids) = tree(&server, &["--ttl", "9s"], TREE);
        let end = Instant::now() + left(&server, "x");
        server.freeze();
        let until = |before| end.saturating_duration_since(Instant::now() + before);
        let_pass(until(Duration::from_millis(350)), "the lease is nearly over");
        // The last message to the watchdog before the end of the lease.
        program.signal("WINCH");
        let_pass(until(Duration::from_millis(250)), "the lease is nearly over");
        server.thaw();
        let_pass(until(Duration::ZERO) + Duration::from_secs(1), "the first lease is over");
        let goes_on = pids.iter().all(|pid| is_running(*pid));
        let ended = program.ends_by("TERM");
        // On a busy machine, the renewal or the watchdog may be late once.
        if goes_on { Ok(()) } else { Err((ended.code, ended.said)) }
    };
    eventually("the lease is renewed just before its end", renewed);
}

#[test]
fn a_watchdog_that_is_stopped_keeps_nobody_waiting() {
    let server = server();
    let script = "echo $$ begun; read line; exit 7";
    let mut program = start(&server, &["run", "--ttl", "60s", "x", "--", "sh", "-c", script]);
    let printed = program.prints(" begun\n");
    let command = printed.trim_end_matches(" begun\n").parse().unwrap();
    signal(watchdog(&program, command).unwrap(), "STOP").unwrap();
    program.types("end\n");
    assert_eq!(program.ends().code, 7);
    eventually_free(&server, "x");
}

/// The command gets the kernel's signal, which helps if the watchdog was killed too.
#[test]
fn when_leasehold_is_killed_with_all_its_processes_the_command_ends() {
    let server = server();
    let (program, pids) = tree(&server, &[], "echo $$ $$ .; while :; do sleep 0.1; done");
    // A running leasehold would restart the watchdog.
    program.signal("STOP");
    signal(watchdog(&program, pids[0]).unwrap(), "KILL").unwrap();
    program.signal("KILL");
    eventually_gone(pids[0]);
}
