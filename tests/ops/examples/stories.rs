//! Each story prints what examples/README.md shows, but for fences.

use super::node::story_with_redlock;
use super::python::REDIS_PY;
use super::{CLI_SINCE, address_of, server};
use crate::ROOT;
use crate::page::shown;
use crate::program::{Told, available, find, run};
use std::path::Path;
use std::process::Command;
use testkit::find_cli;

const DIGITS_OF_A_FENCE: usize = 16;

#[test]
fn old_clients_and_leasehold_take_turns_and_keep_each_other_out() {
    let (Some(bash), Some(cli)) = (available(find("bash")), find_cli(CLI_SINCE)) else { return };
    let server = server();
    let mut command = Command::new(bash);
    command.arg(Path::new(ROOT).join("examples/migrate/story.sh"));
    command.env("REDIS_URL", address_of(&server)).env("REDIS_CLI", cli);
    is_told_as_shown(run(&mut command), "The migration");
}

#[test]
fn the_lock_of_redis_py_and_leasehold_keep_each_other_out() {
    let Some(programs) = REDIS_PY.programs() else { return };
    let server = server();
    let mut command = Command::new(programs.join("python"));
    command.arg(Path::new(ROOT).join("examples/migrate/redis-py/story.py"));
    is_told_as_shown(run(command.env("REDIS_URL", address_of(&server))), "With redis-py");
}

#[test]
fn node_redlock_and_leasehold_keep_each_other_out() {
    let server = server();
    if let Some(told) = story_with_redlock(&server) {
        is_told_as_shown(told, "With node-redlock");
    }
}

fn is_told_as_shown(told: Told, heading: &str) {
    let told = told.output();
    assert_eq!(comparable(&told), comparable(&shown("examples/README.md", heading, "text")));
    assert!(fences(&told).is_sorted_by(|one, next| one < next), "{told}");
}

/// What fence a grant has is chance.
pub(super) fn comparable(told: &str) -> Vec<String> {
    let word = |word: &str| {
        fences(word).iter().fold(word.to_owned(), |word, fence| word.replace(fence, "FENCE"))
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    told.lines().map(line).collect()
}

pub(super) fn fences(told: &str) -> Vec<String> {
    let numbers = told.split(|c: char| !c.is_ascii_digit());
    numbers.filter(|number| number.len() == DIGITS_OF_A_FENCE).map(str::to_owned).collect()
}
