//! How `leasehold top` ends: every way out restores the terminal.

use crate::program::Program;
use crate::scene::{LONG, leasehold, server, url};
use crate::tmux::Window;
use testkit::{Server, eventually, signal};

/// The view in a shell that prints its exit code.
fn top(server: &Server, variables: &[(&str, &str)]) -> Window {
    server.client().grant("x", "alice", LONG);
    let window = Window::with(&url(server.port()), variables);
    // Split by quotes, or the typed command would match.
    window.runs("echo be''fore; $LEASEHOLD top; echo co''de $?");
    window
}

fn shown(server: &Server) -> Window {
    let window = top(server, &[]);
    window.shows("alice");
    assert_eq!(window.mode(), "1 0\n");
    window
}

/// The former screen is back, and typed text is visible.
fn is_as_before(window: &Window) {
    eventually("the screen is the one of before, with a cursor", || match window.mode() {
        mode if mode == "0 1\n" => Ok(()),
        other => Err(other),
    });
    let screen = window.screen();
    assert!(screen.contains("before") && !screen.contains("alice"), "{screen}");
    // What is typed before the shell asks for it stands in front of its prompt.
    window.until("the shell asks", |screen| screen.trim_end().ends_with("ready>"));
    window.runs("echo he''re");
    window.until("what is typed, and what it says", |screen| {
        screen.contains("echo he''re") && screen.contains("\nhere")
    });
}

fn pid(window: &Window) -> u32 {
    // The terminal's foreground process.
    let shell = window.shell();
    eventually("the view runs", || {
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().next().and_then(|pid| pid.parse().ok()).ok_or(children)
    })
}

#[test]
fn q_ends_it() {
    let server = server();
    let window = shown(&server);
    window.types("q");
    window.shows("code 0");
    is_as_before(&window);
}

#[test]
fn control_c_ends_it() {
    let server = server();
    let window = shown(&server);
    window.presses("C-c");
    window.shows("code 130");
    is_as_before(&window);
}

#[test]
fn signals_end_it() {
    let server = server();
    for (name, code) in [("TERM", "code 143"), ("INT", "code 130"), ("QUIT", "code 131")] {
        let window = shown(&server);
        signal(pid(&window), name).unwrap();
        window.shows(code);
        is_as_before(&window);
    }
}

#[test]
fn a_defect_ends_it_with_a_message_that_can_be_read() {
    // Only debug builds panic on demand.
    if !cfg!(debug_assertions) {
        return;
    }
    let server = server();
    let window = top(&server, &[("LEASEHOLD_PANIC_AT", "top"), ("RUST_BACKTRACE", "0")]);
    let screen = window.shows("code 101");
    assert!(screen.contains("panicked at") && screen.contains("told to"), "{screen}");
    is_as_before(&window);
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() {
    let server = server();
    let window = shown(&server);
    window.presses("C-z");
    window.shows("Stopped");
    is_as_before(&window);
    server.client().grant("y", "bob", LONG);
    window.runs("fg");
    window.shows("bob");
    assert_eq!(window.mode(), "1 0\n");
    window.types("q");
    is_as_before(&window);
}

#[test]
fn a_stop_from_elsewhere_is_the_same() {
    let server = server();
    for (name, owner) in [("TSTP", "bob"), ("STOP", "carol")] {
        let window = shown(&server);
        signal(pid(&window), name).unwrap();
        window.shows("Stopped");
        // Only a view that goes on shows this.
        server.client().grant(owner, owner, LONG);
        window.runs("fg");
        let screen = window.shows(owner);
        assert!(screen.starts_with(" leasehold top") && !screen.contains("Stopped"), "{screen}");
        window.types("q");
        is_as_before(&window);
    }
}

#[test]
fn where_there_is_no_terminal_it_says_what_to_do() {
    let server = server();
    let ended = Program::start(leasehold(&url(server.port()), &["top"])).ends();
    assert_eq!((ended.code, ended.printed.as_str()), (64, ""));
    assert!(ended.said.contains("no terminal") && ended.said.contains("--once"), "{}", ended.said);
    let window = Window::open(&url(server.port()));
    window.runs("TERM=dumb $LEASEHOLD top; echo co''de $?");
    window.shows("code 64");
}

#[test]
fn words_without_sense_are_refused_before_anything_is_shown() {
    let wrong = [
        (&["top", "order"][..], "order is no address"),
        (&["top", "http://a"], "http://a"),
        (&["top", "--json"], "required"),
        (&["top", "--every", "soon"], "a duration is"),
    ];
    for (words, why) in wrong {
        let ended = Program::start(leasehold("redis://127.0.0.1:1", words)).ends();
        assert_eq!((ended.code, ended.printed.as_str()), (64, ""), "{words:?}: {}", ended.said);
        assert!(ended.said.contains(why), "{words:?}: {}", ended.said);
    }
}
