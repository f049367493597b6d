//! Each story prints what examples/README.md shows, but for fences.

use super::node::REDLOCK;
use super::paused::paused_until_bob_has;
use super::program::{Told, available, find, run};
use super::python::REDIS_PY;
use super::{address_of, page, server};
use crate::ROOT;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use testkit::{Server, find_cli};

const PAGE: &str = "examples/README.md";
const DIGITS_OF_A_FENCE: usize = 16;

/// Since when it takes the address of the server as one word.
const CLI_SINCE: (u32, u32) = (6, 0);

#[test]
fn the_migrated_client_does_not_count_on_a_lease_that_ended_while_it_was_paused() {
    let constants = [("TTL = 5000", "TTL = 1000"), ("SHORT = 300", "SHORT = 60000")];
    if let Some(programs) = REDIS_PY.programs() {
        let story = with(&constants, "examples/migrate/redis-py/story.py");
        let server = server();
        let mut python = Command::new(programs.join("python"));
        python.arg("-c").arg(story).env("REDIS_URL", address_of(&server));
        let (told, [bob]) = while_paused(&server, ["lock:table:2"], || run(&mut python));
        assert_eq!(fences(&told).last().map(|last| *last > bob), Some(true), "{told}");
    }
    if let Some(package) = REDLOCK.installed() {
        let story = with(&constants, "examples/migrate/node-redlock/story.js");
        let server = server();
        let (told, [bob]) =
            while_paused(&server, ["lock:table:3"], || package.changed_story(&server, &story));
        assert_eq!(fences(&told).last().map(|last| *last > bob), Some(true), "{told}");
    }
}

/// The text of a story with other constants.
fn with(constants: &[(&str, &str)], story: &str) -> String {
    let text = fs::read_to_string(Path::new(ROOT).join(story)).unwrap();
    constants.iter().fold(text, |text, (usual, other)| {
        assert_eq!(text.matches(usual).count(), 1, "{usual} in {story}");
        text.replace(usual, other)
    })
}

/// What a story told that was paused while it waited for each of these locks, and the fences that bob
/// was granted meanwhile.
fn while_paused<const N: usize>(
    server: &Server,
    locks: [&str; N],
    story: impl FnOnce() -> Told + Send,
) -> (String, [String; N]) {
    thread::scope(|scope| {
        let story = scope.spawn(story);
        let fences = locks.map(|lock| {
            let fence = paused_until_bob_has(server, lock);
            assert!(server.client().release(lock, "bob"));
            fence.to_string()
        });
        (story.join().unwrap().output(), fences)
    })
}

#[test]
fn old_clients_and_leasehold_take_turns_and_keep_each_other_out() {
    let (Some(bash), Some(cli)) = (available(find("bash")), find_cli(CLI_SINCE)) else { return };
    let server = server();
    let story = Path::new(ROOT).join("examples/migrate/story.sh");
    let mut command = Command::new(bash);
    command.arg(story).env("REDIS_URL", address_of(&server)).env("REDIS_CLI", cli);
    is_told_as_shown(run(&mut command), "The migration");
}

#[test]
fn the_lock_of_redis_py_and_leasehold_keep_each_other_out() {
    let Some(programs) = REDIS_PY.programs() else { return };
    let server = server();
    let story = Path::new(ROOT).join("examples/migrate/redis-py/story.py");
    let mut command = Command::new(programs.join("python"));
    let told = run(command.arg(story).env("REDIS_URL", address_of(&server)));
    is_told_as_shown(told, "With redis-py");
}

#[test]
fn node_redlock_and_leasehold_keep_each_other_out() {
    let Some(package) = REDLOCK.installed() else { return };
    is_told_as_shown(package.story(&server()), "With node-redlock");
}

fn is_told_as_shown(told: Told, heading: &str) {
    let told = told.output();
    assert_eq!(comparable(&told), comparable(&page::blocks(PAGE, heading, "text")));
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
