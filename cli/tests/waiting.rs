//! What is logged during a wait without a terminal: one line at the start and one for each change.

use crate::program::Program;
use crate::scene::{eventually_waiting, hold, leasehold, server, start, url, with_module};
use testkit::eventually;
use testkit::waiter::Waiter;

#[test]
fn who_holds_it_and_how_many_are_before_us_is_logged_once_and_on_change() {
    // Without a margin, fences equal the time from the start.
    let server = with_module().module_args("fence-margin 0").start();
    let mut client = server.client();
    client.grant("x", "alice", 60_000);
    let mut bob = Waiter::of(&server, "x", "bob");
    eventually_waiting(&server, "x", 1);
    let program = start(&server, &["run", "x", "--", "echo", "done"]);
    let said = program.says("1 before us\n");
    assert!(said.starts_with("leasehold: waiting for x: held by alice since "), "{said}");
    // The program checks every second, and nothing has changed.
    let mut looks = || client.executed().get("lock.info").copied().unwrap_or_default();
    let enough = looks() + 3;
    eventually("it has looked again", || if looks() < enough { Err(()) } else { Ok(()) });
    assert!(client.release("x", "alice"));
    let _ = bob.fence();
    let said = program.says("we are next\n");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("held by bob since "), "{said}");
    assert!(client.release("x", "bob"));
    let ended = program.ends();
    assert_eq!((ended.code, ended.printed.as_str()), (0, "done\n"));
    assert_eq!(ended.said.lines().count(), 2, "{}", ended.said);
}

#[test]
fn whoever_asked_for_silence_is_told_nothing() {
    let server = server();
    hold(&server, "x", "alice");
    let ended = start(&server, &["run", "--quiet", "--wait", "2500ms", "x", "--", "true"]).ends();
    assert_eq!((ended.code, ended.said.as_str()), (75, ""));
}

#[test]
fn nothing_is_said_of_the_time_of_a_grant_whose_fence_is_later_than_now() {
    let server = server();
    server.client().grant("x", "alice", 60_000);
    let ended = start(&server, &["run", "--wait", "2500ms", "x", "--", "true"]).ends();
    assert!(
        ended.said.starts_with("leasehold: waiting for x: held by alice, we are next\n"),
        "{}",
        ended.said
    );
}

#[test]
fn whoever_waits_at_a_silent_server_ends_by_a_signal_at_once() {
    let mut server = server();
    server.freeze();
    let mut command = leasehold(&url(server.port()), &["wait", "x"]);
    command.env("LEASEHOLD_RETRY_FOR_MS", "60000").env("LEASEHOLD_RESPONSE_TIMEOUT_MS", "60000");
    let program = Program::start(command);
    let status = format!("/proc/{}/status", program.id());
    eventually("it hears the signal", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        let caught = u64::from_str_radix(caught, 16).unwrap();
        if caught >> 14 & 1 == 1 { Ok(()) } else { Err(caught) }
    });
    assert_eq!(program.ends_by("TERM").code, 128 + 15);
    server.thaw();
}
