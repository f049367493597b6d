//! The story comes out as it should, on a real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::undocumented_unsafe_blocks,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::process::{Command, Output};
use testkit::{Server, Setup, free_port, short_or_long, strings};

/// Fences are numbered in the order of their size; the racers are <winner> and <loser>, and a wait is <s>.
const STORY: &str = "
1. One after the other
   Anna has the lock of table 7, with fence <1>.
   Anna is booked: table 7 at 18:00.
   Ben has the lock of table 7, with fence <2>.
   Ben is booked: table 7 at 20:00.

2. Two at the same moment
   Carla and Dan both want table 4 at 20:00, and neither wants to wait.
   <winner> has the lock, with fence <3>.
   <winner> is booked: table 4 at 20:00.
   <loser> hears at once that somebody has the lock, and writes nothing.

3. A crash
   Emma has the lock of table 9, with fence <4>.
   Her program is killed before it books. Nobody is there to release the lock.
   Finn waits <s> s, until her lease has ended: fence <5>.
   Finn is booked: table 9 at 20:00.

4. A pause
   Grace has the lock of table 12, with fence <6>.
   She sees that the table is free at 20:00, and her program stands still.
   Her lease ends. Hugo has the lock, with fence <7>.
   Hugo is booked: table 12 at 20:00.
   Grace's program goes on where it stood still, and writes.
   The database refuses Grace's write: it has seen fence <7>.

5. A pause, and no database
<scene 5>

The book says:
   table  4   20:00   <winner>
   table  7   18:00   Anna
   table  7   20:00   Ben
   table  9   20:00   Finn
   table 12   20:00   Hugo
Nobody was booked twice, and nobody's booking was overwritten.
";

/// The last scene needs the module.
const REFUSED_BY_THE_SERVER: &str = "   Ida has the lock of the menu, with fence <8>.
   She writes roast on the board, but her program stands still before that is sent.
   Her lease ends. Jan has the lock, with fence <9>.
   Jan writes soup on the board.
   Ida's program goes on where it stood still, and sends it.
   The server refuses Ida's write: the lock is not hers any more.
   The board says soup.";
const NOT_REFUSED: &str =
    "   Without Leasehold the server does not refuse what a late holder writes to it.";

fn told_by(url: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_booking")).env("REDIS_URL", url).output().unwrap()
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

fn assert_no_lock_is_left(server: &Server) {
    let mut locks = strings(&server.cmd("KEYS lock:table:*"));
    // The last fence of each, where there is no module.
    locks.retain(|key| !key.ends_with(":fence"));
    assert!(locks.is_empty(), "{locks:?}");
}

fn story_on(setup: Setup, second_line: &str, last_scene: &str) -> Server {
    let server = setup.tcp().start();
    // As often as it takes to see a lock that one run in some leaves behind.
    for _ in 1..short_or_long(1, 30) {
        assert!(told_by(&url(&server)).status.success());
        assert_no_lock_is_left(&server);
    }
    let output = told_by(&url(&server));
    assert_no_lock_is_left(&server);
    let told = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{told}{errors}");
    let (welcome, story) = told.split_once("\n\n").unwrap();
    assert_eq!(welcome.lines().nth(1), Some(second_line));
    assert_eq!(masked(&format!("\n{story}")), STORY.replace("<scene 5>", last_scene));
    server
}

/// With names for what differs from run to run. Fences are numbered in the order of their size, all tables together.
fn masked(story: &str) -> String {
    let is_fence = |word: &&str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_digit());
    let words = || story.split(|c: char| !c.is_alphanumeric());
    let fences: BTreeMap<&str, ()> = words().filter(is_fence).map(|fence| (fence, ())).collect();
    let mut masked = story.to_owned();
    for (number, fence) in (1..).zip(fences.keys()) {
        masked = masked.replace(fence, &format!("<{number}>"));
    }
    let scene = "neither wants to wait.\n   ";
    let (before, race) = masked.split_once(scene).unwrap();
    let (winner, loser) = match race.split_once(' ').unwrap().0 {
        "Carla" => ("Carla", "Dan"),
        other => (other, "Carla"),
    };
    let race = race.replace(winner, "<winner>").replace(loser, "<loser>");
    let (upto, waits) = race.split_once("Finn waits ").unwrap();
    let (seconds, rest) = waits.split_once(" s,").unwrap();
    let seconds: f64 = seconds.parse().unwrap();
    // The lease is one and a half, and the server may be slow to start a process.
    assert!((0.5..5.0).contains(&seconds), "{seconds} s");
    format!("{before}{scene}{upto}Finn waits <s> s,{rest}")
}

#[test]
fn the_story_comes_out_with_the_module() {
    let second_line = "The server has Leasehold: whoever waits, waits in its queue.";
    let server = story_on(Server::builder(), second_line, REFUSED_BY_THE_SERVER);
    // It was the server that refused the late write, each time.
    let errors = server.client().info_text("errorstats");
    let refused = format!("errorstat_NOTHOLDER:count={}\r\n", short_or_long(1, 30));
    assert!(errors.contains(&refused), "{errors}");
}

#[test]
fn the_story_comes_out_the_same_without_the_module() {
    let second_line = "The server has no Leasehold: whoever waits asks again and again.";
    let _server = story_on(Server::builder().without_module(), second_line, NOT_REFUSED);
}

#[test]
fn without_a_server_it_says_how_to_start_one() {
    let output = told_by(&format!("redis://127.0.0.1:{}", free_port()));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(errors.contains("`make run` starts a server"), "{errors}");
}
