//! A server that fails while a command runs.

use crate::program::Program;
use crate::scene::{both_kinds, eventually_held, leasehold, server, start, url};
use std::time::{Duration, Instant};
use testkit::free_port;

const HELD: [&str; 4] = ["--", "sh", "-c", "echo held; read line; exit 5"];

fn words(options: &[&'static str]) -> Vec<&'static str> {
    let mut words = vec!["run"];
    words.extend(options);
    words.push("x");
    words.extend(HELD);
    words
}

#[test]
fn a_server_that_dies_is_told_of_and_the_command_ends_with_the_lease() {
    for mut server in both_kinds() {
        let program = start(&server, &words(&["--ttl", "3s"]));
        program.prints("held\n");
        server.kill();
        program.says("does not answer: ");
        program.says("; the lease ends in ");
        let said = program.says("The command is told to end");
        assert!(said.contains("lost x: its lease could not be renewed, because "), "{said}");
        assert!(said.contains(&server.port().to_string()), "{said}");
        assert_eq!(program.ends().code, 79);
    }
}

#[test]
fn a_server_that_answers_again_in_time_costs_nothing() {
    let mut server = server();
    let mut program = start(&server, &words(&["--ttl", "20s", "--verbose"]));
    program.prints("held\n");
    program.says("x acquired after ");
    server.freeze();
    program.says("does not answer: ");
    server.thaw();
    program.says("answers again, after ");
    program.types("end\n");
    assert_eq!(program.ends().code, 5);
}

#[test]
fn a_server_that_comes_back_empty_ends_the_command() {
    let mut server = server();
    let program = start(&server, &words(&["--ttl", "9s"]));
    program.prints("held\n");
    server.kill();
    program.says("does not answer: ");
    server.start_again();
    program.says("lost x: the server says that it is not held");
    program.says("or the server has lost its data");
    assert_eq!(program.ends().code, 79);
}

#[test]
fn a_server_that_comes_back_with_its_data_costs_nothing() {
    let mut server = crate::scene::with_module().aof().start();
    let mut program = start(&server, &words(&["--ttl", "20s"]));
    program.prints("held\n");
    let value = eventually_held(&server, "x");
    server.kill();
    server.start_again();
    program.types("end\n");
    let ended = program.ends();
    assert_eq!(ended.code, 5, "{value}: {}", ended.said);
}

#[test]
fn a_release_that_nobody_hears_of_is_told_of_and_the_exit_code_is_that_of_the_command() {
    let mut server = server();
    let mut program = start(&server, &words(&[]));
    program.prints("held\n");
    server.kill();
    program.types("end\n");
    let ended = program.ends();
    assert_eq!(ended.code, 5);
    assert!(ended.said.contains("could not be released"), "{}", ended.said);
}

#[test]
fn a_server_that_is_down_is_tried_for_as_long_as_documented_and_no_longer() {
    let tried = Duration::from_millis(500);
    for words in [
        &["run", "--wait", "0", "x", "--", "true"][..],
        &["run", "--wait", "0", "--also", "y", "x", "--", "true"],
        &["run", "--wait", "500ms", "x", "--", "true"],
    ] {
        let mut command = leasehold(&url(free_port()), words);
        command.env("LEASEHOLD_RETRY_FOR_MS", tried.as_millis().to_string());
        let begun = Instant::now();
        let ended = Program::start(command).ends();
        assert_eq!((ended.code, ended.printed.as_str()), (69, ""), "{}", ended.said);
        assert!(begun.elapsed() < tried * 4, "{words:?}: {:?}", begun.elapsed());
    }
}
