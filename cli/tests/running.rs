//! `leasehold run`: the command, what it is told, and what it ends with.

use crate::program::Program;
use crate::scene::{
    both_kinds, eventually_free, eventually_held, eventually_waiting, held, hold, leasehold, left,
    run, server, start, url,
};
use std::time::Duration;
use testkit::{Server, free_port};

#[test]
fn a_command_runs_while_the_lock_is_held_and_its_exit_code_is_passed_on() {
    for server in both_kinds() {
        let script = "echo \"$LEASEHOLD_FENCE:$LEASEHOLD_OWNER $LEASEHOLD_NAME $LEASEHOLD_DEADLINE\"; read line; exit 7";
        let mut program = start(&server, &["run", "nightly", "--", "sh", "-c", script]);
        let printed = program.prints("\n");
        let words: Vec<_> = printed.trim().split(' ').collect();
        assert_eq!(eventually_held(&server, "nightly"), words[0]);
        assert_eq!(words[1], "nightly");
        let now = testkit::unix_micros() / 1_000;
        let lasts = words[2].parse::<u64>().unwrap() - now;
        assert!((20_000..=30_000).contains(&lasts), "{lasts}");
        program.types("\n");
        let ended = program.ends();
        assert_eq!((ended.code, ended.said.as_str()), (7, ""));
        assert_eq!(held(&server, "nightly"), None);
    }
}

#[test]
fn standard_input_and_output_are_those_of_the_command() {
    let server = server();
    let mut program = start(&server, &["run", "x", "--", "tr", "a-z", "A-Z"]);
    program.types("through\n");
    let ended = program.ends();
    assert_eq!((ended.code, ended.printed.as_str()), (0, "THROUGH\n"));
}

#[test]
fn a_command_that_a_signal_ends_is_told_of_as_a_shell_does_it() {
    let server = server();
    assert_eq!(run(&server, &["run", "x", "--", "sh", "-c", "kill -9 $$"]).0, 128 + 9);
    assert_eq!(run(&server, &["run", "x", "--", "sh", "-c", "kill -15 $$"]).0, 128 + 15);
    assert_eq!(held(&server, "x"), None);
}

#[test]
fn a_command_that_cannot_be_run_is_told_of_as_a_shell_does_it() {
    let server = server();
    let (code, said) = run(&server, &["run", "x", "--", "/no/such/command"]);
    assert_eq!(
        (code, said.as_str()),
        (127, "leasehold: /no/such/command cannot be run: there is no such command\n")
    );
    let (code, said) = run(&server, &["run", "x", "--", "/etc/passwd"]);
    assert_eq!(code, 126, "{said}");
    assert_eq!(held(&server, "x"), None);
}

#[test]
fn whoever_does_not_get_the_lock_runs_nothing_and_says_who_has_it() {
    for server in both_kinds() {
        hold(&server, "x", "alice");
        let (code, said) = run(&server, &["run", "--wait", "0", "x", "--", "echo", "no"]);
        assert_eq!(code, 75);
        assert_eq!(
            said,
            "leasehold: x was not obtained, it was not free: x is held by alice. Nothing was run.\n"
        );
        let ended =
            start(&server, &["run", "--wait", "0", "--quiet", "x", "--", "echo", "no"]).ends();
        assert_eq!((ended.code, ended.said.as_str(), ended.printed.as_str()), (75, "", ""));
        let (code, said) = run(&server, &["run", "--wait", "300ms", "x", "--", "echo", "no"]);
        assert!(said.contains("it was not free within "), "{said}");
        assert_eq!(code, 75);
    }
}

#[test]
fn a_server_that_is_down_at_the_start_is_named() {
    let url = url(free_port());
    for wait in [&["--wait", "0"][..], &[]] {
        let mut words = vec!["run"];
        words.extend(wait);
        words.extend(["x", "--", "echo", "no"]);
        let mut command = leasehold(&url, &words);
        command.env("LEASEHOLD_RETRY_FOR_MS", "200").env("LEASEHOLD_UNREACHABLE_AFTER_MS", "200");
        let ended = Program::start(command).ends();
        assert_eq!((ended.code, ended.printed.as_str()), (69, ""));
        let begin = format!("leasehold: no answer from {url}: ");
        assert!(ended.said.starts_with(&begin) && ended.said.contains("--url"), "{}", ended.said);
    }
}

#[test]
fn a_server_that_starts_later_is_waited_for() {
    let mut server = server();
    server.stop();
    let program = start(&server, &["run", "x", "--", "echo", "done"]);
    program.says("waiting for x: no answer from ");
    server.start_again();
    let ended = program.ends();
    assert_eq!((ended.code, ended.printed.as_str()), (0, "done\n"), "{}", ended.said);
}

#[test]
fn words_without_sense_are_refused_before_anything_is_run() {
    let url = url(free_port());
    let refused: [&[&str]; 9] = [
        &["run", "x"],
        &["run", "--", "echo"],
        &["run", "--wait", "soon", "x", "--", "echo", "no"],
        &["run", "--limit", "0", "x", "--", "echo", "no"],
        &["run", "--shared", "--also", "y", "x", "--", "echo", "no"],
        &["run", "--owner", "", "x", "--", "echo", "no"],
        &["--url", "http://x", "run", "x", "--", "echo", "no"],
        &["--url", "redis+sentinel://h:1", "run", "x", "--", "echo", "no"],
        &["--cacert", "/no/such/file", "run", "x", "--", "echo", "no"],
    ];
    for words in refused {
        let ended = Program::start(leasehold(&url, words)).ends();
        assert_eq!((ended.code, ended.printed.as_str()), (64, ""), "{words:?}: {}", ended.said);
        assert!(!ended.said.is_empty(), "{words:?}");
    }
    let mut command = leasehold(&url, &["run", "x", "--", "echo", "no"]);
    command.env("LEASEHOLD_TTL_MS", "long");
    let ended = Program::start(command).ends();
    assert_eq!(ended.code, 64);
    assert!(ended.said.starts_with("leasehold: LEASEHOLD_TTL_MS: "), "{}", ended.said);
}

#[test]
fn what_the_server_refuses_is_said_with_what_to_do() {
    let server = Server::builder().tcp().password("secret").start();
    let (code, said) = run(&server, &["run", "x", "--", "echo", "no"]);
    assert_eq!(code, 77);
    assert!(said.contains("NOAUTH") && said.contains("redis://:password@"), "{said}");
    let with = format!("redis://:secret@127.0.0.1:{}", server.port());
    let ended = Program::start(leasehold(&with, &["run", "x", "--", "echo", "yes"])).ends();
    assert_eq!((ended.code, ended.said.as_str()), (0, ""));
    server.cmd("RPUSH list a");
    let ended = Program::start(leasehold(&with, &["run", "list", "--", "echo", "no"])).ends();
    assert_eq!(ended.code, 77);
    assert!(ended.said.contains("choose another name") && !ended.said.contains("secret"));
}

#[test]
fn a_lock_is_kept_for_the_least_time_so_that_a_late_machine_does_not_run_the_job_again() {
    for server in both_kinds() {
        let job = ["run", "--at-least", "40s", "nightly", "--", "echo", "done"];
        let (code, said) = run(&server, &job);
        assert_eq!((code, said.as_str()), (0, ""));
        let left = left(&server, "nightly");
        assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(40), "{left:?}");
        let ended = start(&server, &job).ends();
        assert_eq!((ended.code, ended.printed.as_str()), (75, ""));
    }
}

#[test]
fn a_lock_that_is_released_is_free_at_once() {
    let server = server();
    let mut first = start(&server, &["run", "x", "--", "cat"]);
    eventually_held(&server, "x");
    let second = start(&server, &["run", "x", "--", "echo", "mine"]);
    eventually_waiting(&server, "x", 1);
    first.types("end\n");
    assert_eq!(first.ends().printed, "end\n");
    assert_eq!(second.ends().printed, "mine\n");
    eventually_free(&server, "x");
}
