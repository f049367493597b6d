//! A server is killed at a random point while clients take, extend, release and hand on locks, and started again; and
//! again.
//!
//! What a process has written stays when it is killed: it is in the system's memory, if not on the disk. So a server that
//! writes its append-only file before it answers loses next to nothing, however seldom it forces that to disk. That is a
//! matter of power failures, which are here too.

use super::book::{Book, Fate, Grant, now};
use super::busy;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
use testkit::{Seed, Server, Setup, figure, is_older_than, power, short_or_long};

const WORKERS: usize = 6;

/// The grants of how many runs are asked about again after each.
const REMEMBERED: usize = 3;

struct Fault {
    runs: usize,
    /// How long a run lasts at most.
    millis: usize,
    /// What the server may be told in the middle of it.
    saves: &'static [&'static str],
    end: fn(&mut Server),
}

/// What came of all runs.
#[derive(Default)]
struct Sum {
    runs: usize,
    answered: usize,
    lost: usize,
    back: usize,
    unanswered: usize,
    first_lost: Option<String>,
    /// How long before the end the earliest grant was answered that was lost.
    micros: i64,
}

const KILL: Fault = Fault { runs: 0, millis: 80, saves: &[], end: Server::kill };

impl Fault {
    fn chance(&self, seed: &mut Seed) {
        let half = self.millis * 1_000 / 2;
        thread::sleep(Duration::from_micros(seed.below(half) as u64));
    }

    /// Some time after all have begun, the server is told to save, and some time after that it ends. What they were told,
    /// and when that was.
    fn one_run(&self, server: &mut Server, seed: &mut Seed) -> (Vec<Grant>, i64) {
        let over = AtomicBool::new(false);
        let mut saver = server.client();
        thread::scope(|scope| {
            let work = busy::start(scope, server, WORKERS, seed, &over);
            self.chance(seed);
            if !self.saves.is_empty() {
                saver.send(*seed.pick(self.saves));
            }
            self.chance(seed);
            let end = now();
            (self.end)(server);
            (work.finish(), end)
        })
    }

    fn again_and_again(&self, setup: Setup) -> Sum {
        let mut seed = Seed::announced();
        let mut server = setup.start();
        let (mut book, mut sum) = (Book::default(), Sum { runs: self.runs, ..Sum::default() });
        let mut kept: VecDeque<Vec<Grant>> = VecDeque::new();
        for _ in 0..self.runs {
            let (grants, end) = self.one_run(&mut server, &mut seed);
            let mut wrong = book.take_down(&grants);
            server.start_again();
            let mut client = server.client();
            let fate = book.compare(&grants, &mut client);
            wrong.extend_from_slice(&fate.wrong);
            assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
            sum.add(fate, end);
            // Those that were lost are known.
            if sum.lost + sum.back == 0 {
                for grants in &kept {
                    book.compare(grants, &mut client).assert_nothing_lost();
                }
            }
            let is_kept = |grant: &Grant| grant.lock.starts_with("kept") && grant.fence.is_some();
            kept.push_back(grants.into_iter().filter(is_kept).collect());
            if kept.len() > REMEMBERED {
                kept.pop_front();
            }
            busy::let_go(&mut client);
        }
        sum.answered = book.answered;
        assert!(sum.answered > 5 * self.runs, "hardly anything happened: {}", sum.answered);
        sum
    }
}

impl Sum {
    fn add(&mut self, fate: Fate, end: i64) {
        self.lost += fate.lost.len();
        self.back += fate.back.len();
        self.unanswered += fate.unanswered;
        self.micros = self.micros.max(fate.lost_since.map_or(0, |since| end - since));
        let first = self.first_lost.take();
        self.first_lost = first.or(fate.lost.into_iter().chain(fate.back).next());
    }

    fn publish(&self, how: &str) {
        let Self { runs, answered, lost, back, unanswered, micros, .. } = self;
        let since = match lost {
            0 => String::new(),
            _ => format!(", the earliest answered {} ms before the end", micros / 1_000),
        };
        figure(&format!(
            "{how}, {runs} times: of {answered} grants answered {lost} lost{since}; {back} releases or extensions lost; \
             {unanswered} grants held that were never answered"
        ));
    }

    #[track_caller]
    fn assert_nothing_lost(&self) {
        assert_eq!((self.lost, self.back), (0, 0), "{:?}", self.first_lost);
    }
}

/// Before 7.0 a process that rewrites the file keeps the connections of its parent's clients open for five seconds after
/// that was killed.
fn rewrites() -> &'static [&'static str] {
    if is_older_than((7, 0)) {
        &["BGREWRITEAOF", "PING", "PING", "PING", "PING", "PING", "PING", "PING"]
    } else {
        &["BGREWRITEAOF", "PING", "PING"]
    }
}

fn append_only(fsync: &str) -> Setup {
    Server::builder().config("appendonly", "yes").config("appendfsync", fsync)
}

#[test]
fn every_answered_grant_is_held_after_a_kill_where_each_write_is_forced_to_disk() {
    let fault = Fault { runs: short_or_long(20, 1_000), saves: rewrites(), ..KILL };
    let sum = fault.again_and_again(append_only("always"));
    sum.publish("kill -9, appendfsync always");
    sum.assert_nothing_lost();
}

#[test]
fn every_answered_grant_is_held_after_a_power_failure_where_each_write_is_forced_to_disk() {
    let fault = Fault { runs: short_or_long(10, 300), end: power::fail, ..KILL };
    let sum = fault.again_and_again(append_only("always").power_may_fail());
    sum.publish("power failure, appendfsync always");
    sum.assert_nothing_lost();
}

#[test]
fn fences_grow_after_an_end_that_the_last_writes_do_not_outlive() {
    let kill = Fault { runs: short_or_long(12, 300), saves: rewrites(), ..KILL };
    kill.again_and_again(append_only("everysec")).publish("kill -9, appendfsync everysec");

    let runs = short_or_long(3, 100);
    let fault = Fault { runs, millis: 3_000, end: power::fail, ..KILL };
    let sum = fault.again_and_again(append_only("everysec").power_may_fail());
    sum.publish("power failure, appendfsync everysec");
    assert!(sum.lost > 0, "what was not forced to disk is lost");

    let sum =
        Fault { saves: &["SAVE", "BGSAVE", "PING"], ..kill }.again_and_again(Server::builder());
    sum.publish("kill -9, RDB only, saved in two of three runs");
    assert!(sum.lost > 0, "whatever came after the last save is lost");
}

#[test]
fn fences_grow_after_a_kill_where_nothing_is_kept() {
    let sum = Fault { runs: short_or_long(12, 300), ..KILL }.again_and_again(Server::builder());
    sum.publish("kill -9, without persistence");
    assert_eq!((sum.back, sum.unanswered), (0, 0));
    assert!(sum.lost > 0, "everything is lost");
}
