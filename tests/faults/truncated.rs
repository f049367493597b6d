//! The append-only file was cut off in its middle, or damaged.

use super::LONG;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Client, Clock, Seed, Server, Snapshot, Waiter, aof, figure, short_or_long};

const LOCKS: [&str; 5] = ["a", "b", "c", "d", "e"];
const STEPS: usize = 60;

/// By how much the clock is behind after the restart: less than the usual margin.
const BEHIND: Duration = Duration::from_secs(4);

struct Past {
    /// Its directory is the one that counts; it is not running any more.
    server: Server,
    file: PathBuf,
    whole: Vec<u8>,
    /// How long the file was when the server held this.
    states: Vec<(usize, Snapshot)>,
    highest: u64,
}

fn length(file: &Path) -> usize {
    fs::metadata(file).unwrap().len().try_into().unwrap()
}

/// A server did a bit of everything, and was killed.
fn past(seed: &mut Seed) -> Past {
    let mut server = Server::builder().aof().module_args("fence-margin 0").start();
    let file = aof::current_file(&server);
    let mut client = server.client();
    let mut states = vec![(0, Snapshot::of(&server))];
    let mut highest = 0;
    for step in 0..STEPS {
        let lock = *seed.pick(&LOCKS);
        let holder = client.info(lock).map(|info| String::from_utf8(info.owner).unwrap());
        match (holder, seed.below(4)) {
            (None, _) => highest = highest.max(client.grant(lock, format!("o{step}"), LONG)),
            (Some(owner), 0) => assert!(client.extend(lock, &owner, 2 * LONG)),
            (Some(owner), 1) => assert!(client.release(lock, &owner)),
            (Some(owner), _) => {
                let mut next = Waiter::of(&server, lock, &format!("o{step}"));
                assert!(client.release(lock, &owner));
                highest = highest.max(next.fence());
            }
        }
        states.push((length(&file), Snapshot::of(&server)));
    }
    server.kill();
    let whole = fs::read(&file).unwrap();
    Past { server, file, whole, states, highest }
}

impl Past {
    /// What was held when the file was no longer than this.
    fn state_at(&self, length: usize) -> &Snapshot {
        let after = self.states.partition_point(|(until, _)| *until <= length);
        &self.states[after - 1].1
    }

    /// Another server, in the same directory.
    fn successor(&self, behind: &Clock) -> Server {
        Server::builder().aof().clock(behind).in_the_directory_of(&self.server).start()
    }

    /// Whatever is granted now is above all fences that were ever told.
    #[track_caller]
    fn assert_fences_grow(&self, client: &mut Client) {
        for lock in LOCKS {
            if let Some(info) = client.info(lock) {
                assert!(client.release(lock, info.owner));
            }
            let fence = client.grant(lock, "zoe", LONG);
            assert!(fence > self.highest, "{lock}: {fence} is not above {}", self.highest);
        }
    }
}

fn behind() -> Clock {
    let mut clock = Clock::new();
    clock.step_back(BEHIND);
    clock
}

#[test]
fn what_is_left_of_a_cut_file_is_held_and_fences_are_above_what_is_lost() {
    let mut seed = Seed::announced();
    let past = past(&mut seed);
    let clock = behind();
    let mut successor = past.successor(&clock);
    assert_eq!(Snapshot::of(&successor), past.states[STEPS].1, "the whole file");
    let cuts = short_or_long(12, 300);
    for _ in 0..cuts {
        successor.kill();
        let at = seed.below(past.whole.len());
        fs::write(&past.file, &past.whole[..at]).unwrap();
        successor.start_again();
        assert_eq!(&Snapshot::of(&successor), past.state_at(at), "cut at {at}");
        past.assert_fences_grow(&mut successor.client());
    }
    figure(&format!(
        "append-only file cut off {cuts} times at random: what was left was held, and all fences were above those lost"
    ));
}

#[test]
fn a_damaged_file_is_refused_or_loaded_and_fences_grow() {
    let mut seed = Seed::announced();
    let past = past(&mut seed);
    let clock = behind();
    let mut successor = past.successor(&clock);
    successor.kill();
    let flips = short_or_long(30, 500);
    let mut loaded = 0;
    for _ in 0..flips {
        let mut damaged = past.whole.clone();
        let at = seed.below(damaged.len());
        // With too few words for a command, servers crash while they load it, module or not.
        if at > 0 && damaged[at - 1] == b'*' {
            continue;
        }
        damaged[at] ^= 1 << seed.below(8);
        fs::write(&past.file, &damaged).unwrap();
        if !successor.start_again_if_it_can() {
            continue;
        }
        loaded += 1;
        past.assert_fences_grow(&mut successor.client());
        successor.kill();
    }
    println!("{loaded} of {flips} were loaded");
    assert!(0 < loaded && loaded < flips, "{loaded} of {flips} were loaded");
}
