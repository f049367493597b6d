//! How a command whose lock is lost is ended, with all its processes.

use crate::program::Program;
use crate::scene::{
    both_kinds, eventually_free, eventually_gone, eventually_held, held, is_running, leasehold,
    let_pass, server, start, url,
};
use std::time::Duration;
use testkit::{Clock, Server, eventually, signal};

/// Prints its own process id and that of a process that it has started.
pub(crate) const TREE: &str = "sleep 1000 & echo $$ $! .; wait; wait";

/// Like `TREE`, but both processes ignore TERM.
pub(crate) const STUBBORN: &str = "trap '' TERM; sleep 1000 & echo $$ $! .; while :; do wait; done";

/// A command of two processes that runs under the lock.
pub(crate) fn tree(server: &Server, options: &[&str], script: &str) -> (Program, Vec<u32>) {
    let mut words = vec!["run"];
    words.extend(options);
    words.extend(["x", "--", "sh", "-c", script]);
    let program = start(server, &words);
    let pids = both(&program);
    assert!(pids.iter().all(|pid| is_running(*pid)), "{pids:?}");
    (program, pids)
}

/// The two process ids that the command prints.
pub(crate) fn both(program: &Program) -> Vec<u32> {
    let printed = program.prints(" .\n");
    let pids: Vec<u32> = printed.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!(pids.len(), 2, "{printed}");
    pids
}

#[test]
fn when_the_lock_is_taken_away_the_command_and_all_that_it_has_started_is_ended() {
    for server in both_kinds() {
        let (program, pids) = tree(&server, &["--ttl", "600ms"], TREE);
        server.cmd("DEL x");
        let ended = program.ends();
        assert_eq!(ended.code, 79, "{}", ended.said);
        let text = "leasehold: lost x: the server says that it is not held";
        assert!(ended.said.starts_with(text), "{}", ended.said);
        assert!(!ended.said.contains("has not ended"), "{}", ended.said);
        pids.into_iter().for_each(eventually_gone);
    }
}

#[test]
fn what_does_not_end_within_the_grace_is_killed() {
    let server = server();
    let (program, pids) = tree(&server, &["--ttl", "600ms", "--grace", "200ms"], STUBBORN);
    server.cmd("DEL x");
    let ended = program.ends();
    assert_eq!(ended.code, 79);
    assert!(ended.said.contains("has not ended within 200ms: killed"), "{}", ended.said);
    pids.into_iter().for_each(eventually_gone);
}

#[test]
fn what_is_stopped_when_the_lock_is_lost_is_ended_too() {
    let server = server();
    let (program, pids) = tree(&server, &["--ttl", "600ms"], TREE);
    pids.iter().for_each(|pid| signal(*pid, "STOP").unwrap());
    server.cmd("DEL x");
    let ended = program.ends();
    assert_eq!(ended.code, 79);
    assert!(!ended.said.contains("has not ended"), "{}", ended.said);
    pids.into_iter().for_each(eventually_gone);
}

#[test]
fn a_command_that_ended_without_its_lock_is_told_of() {
    let server = server();
    let script = "echo held; read line";
    let mut program = start(&server, &["run", "x", "--", "sh", "-c", script]);
    program.prints("held\n");
    server.cmd("DEL x");
    program.types("end\n");
    let ended = program.ends();
    assert_eq!(ended.code, 79);
    assert!(ended.said.contains("x was lost before the command ended"), "{}", ended.said);
}

#[test]
fn when_leasehold_is_killed_the_command_ends_and_the_lock_with_its_lease() {
    for script in [TREE, STUBBORN] {
        let server = server();
        let (program, pids) = tree(&server, &["--ttl", "1500ms", "--grace", "100ms"], script);
        program.signal("KILL");
        pids.into_iter().for_each(eventually_gone);
        assert!(held(&server, "x").is_some());
        eventually_free(&server, "x");
        // Every process that had the output open is gone.
        assert_eq!(program.ends().code, 128 + 9);
    }
}

#[test]
fn when_leasehold_is_stopped_the_command_ends_with_its_lease() {
    for script in [TREE, STUBBORN] {
        let server = server();
        let (program, pids) = tree(&server, &["--ttl", "900ms", "--grace", "100ms"], script);
        program.signal("STOP");
        pids.into_iter().for_each(eventually_gone);
        eventually_free(&server, "x");
        program.signal("CONT");
        assert_eq!(program.ends().code, 79);
    }
}

#[test]
fn when_leasehold_is_stopped_for_less_than_its_lease_the_command_goes_on() {
    let server = server();
    let (program, pids) = tree(&server, &["--ttl", "1500ms"], TREE);
    program.signal("STOP");
    let_pass(Duration::from_millis(700), "it was stopped for so long");
    program.signal("CONT");
    // Long enough for the watchdog's last message from before the stop to run out.
    let_pass(Duration::from_millis(2_000), "it has been continued for so long");
    assert!(pids.iter().all(|pid| is_running(*pid)));
    assert_eq!(program.ends_by("TERM").code, 128 + 15);
}

#[test]
fn no_process_is_left_when_the_command_has_ended() {
    let server = server();
    let script = "cat /proc/$PPID/task/$PPID/children; echo .";
    let program = start(&server, &["run", "x", "--", "sh", "-c", script]);
    let printed = program.prints(".\n");
    let pids: Vec<u32> = printed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    assert_eq!(pids.len(), 2, "the command and the watchdog: {printed}");
    assert_eq!(program.ends().code, 0);
    assert!(!pids.into_iter().any(is_running));
}

#[test]
fn a_machine_that_slept_for_longer_than_the_lease_ends_the_command() {
    let server = server();
    let mut clock = Clock::new();
    let script = "unset LD_PRELOAD; echo held; exec sleep 1000";
    let mut command = leasehold(&url(server.port()), &["run", "x", "--", "sh", "-c", script]);
    let program = Program::start({
        clock.preload(&mut command);
        command
    });
    program.prints("held\n");
    eventually_held(&server, "x");
    clock.suspend(Duration::from_secs(40));
    let ended = program.ends();
    assert_eq!(ended.code, 79, "{}", ended.said);
    assert!(ended.said.contains("this machine slept"), "{}", ended.said);
    eventually("the lock is given back", || held(&server, "x").map_or(Ok(()), Err));
}
