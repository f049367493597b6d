//! How long was waited and held. Holds go by the server's clock, which the tests step, so that minutes pass
//! in no time. Waits go by a clock that nobody can step.

use super::{Figures, pass, until_waited, waited};
use crate::waiting::LONG;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Client, Clock, Server, Waiter, int, micros};

const DAY: u64 = 86_400_000;

/// Redis 7.0 and before tell modules the time in milliseconds.
const COARSE_US: u64 = 1_000;

/// A server whose fences are the microseconds of a clock that can be stepped.
fn with_clock() -> (Server, Clock) {
    let clock = Clock::new();
    (Server::builder().clock(&clock).module_args("fence-margin 0").start(), clock)
}

/// Releases the lock, and says between which two moments of the server's clock.
fn released(client: &mut Client, release: &str) -> (u64, u64) {
    let replies = client.pipeline(&["TIME", release, "TIME"]);
    assert_eq!(replies[1], int(1), "{release}");
    (micros(&replies[0]).unwrap(), micros(&replies[2]).unwrap())
}

/// What each duration was at least and at most, shortest first.
struct Durations {
    least: Vec<u64>,
    most: Vec<u64>,
}

impl Durations {
    fn new(durations: Vec<(u64, u64)>) -> Self {
        let (mut least, mut most): (Vec<_>, Vec<_>) = durations.into_iter().unzip();
        least.sort_unstable();
        most.sort_unstable();
        Self { least, most }
    }

    /// The figures of this kind say of them what is true: never too little, and 6 % too much at most.
    #[track_caller]
    fn assert_shown(&self, figures: &mut Figures, kind: &str) {
        for (figure, per_cent, width) in [("p50", 50, 16), ("p95", 95, 16), ("p99", 99, 16)] {
            let rank = (self.least.len() * per_cent).div_ceil(100) - 1;
            let (least, most) = (self.least[rank], self.most[rank]);
            let shown = figures.get(&format!("{kind}_us_{figure}"));
            let bounds = least.saturating_sub(COARSE_US)..=most + most / width + COARSE_US;
            assert!(bounds.contains(&shown), "{kind} {figure} is {shown}, not in {bounds:?}");
        }
        let (least, most) = (self.least.last().unwrap(), self.most.last().unwrap());
        let shown = figures.get(&format!("{kind}_us_max"));
        let bounds = least.saturating_sub(COARSE_US)..=most + COARSE_US;
        assert!(bounds.contains(&shown), "{kind} max is {shown}, not in {bounds:?}");
    }
}

#[test]
fn holds_are_timed_from_the_grant_to_the_release() {
    let (server, mut clock) = with_clock();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    let mut holds = Vec::new();
    for number in 1..=100 {
        let fence = client.grant("k", "alice", DAY);
        pass(&mut client, &mut clock, Duration::from_millis(100 * number));
        if number % 10 == 0 {
            // Which does not begin a new hold.
            assert!(client.extend("k", "alice", DAY));
            assert_eq!(client.grant("k", "alice", DAY), fence);
        }
        let (before, after) = released(&mut client, "LOCK.RELEASE k alice");
        holds.push((before - fence, after - fence));
    }
    Durations::new(holds).assert_shown(&mut figures, "hold");
}

#[test]
fn a_hold_that_began_with_a_wait_is_timed_from_its_grant() {
    let (server, mut clock) = with_clock();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    client.cmd("SET k old");
    let mut bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k bob {DAY} BLOCK 0"));
    pass(&mut client, &mut clock, Duration::from_secs(1_000));
    client.cmd("DEL k");
    let fence = bob.fence();
    pass(&mut client, &mut clock, Duration::from_secs(10));
    let (before, after) = released(&mut client, "LOCK.RELEASE k bob");
    Durations::new(vec![(before - fence, after - fence)]).assert_shown(&mut figures, "hold");
}

#[test]
fn many_short_holds_are_timed_and_not_only_the_long_ones() {
    let (server, mut clock) = with_clock();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    let pair = ["LOCK.ACQUIRE k alice 60000", "LOCK.RELEASE k alice"];
    for _ in 0..10 {
        client.pipeline(&pair.repeat(100));
    }
    for _ in 0..5 {
        client.grant("k", "alice", LONG);
        pass(&mut client, &mut clock, Duration::from_secs(10));
        assert!(client.release("k", "alice"));
    }
    assert_eq!(figures.get("releases"), 1_005);
    let shown = figures.get("hold_us_p99");
    assert!(shown < 10_000_000, "five of a thousand were as long as {shown} us");
    assert!(figures.get("hold_us_max") >= 10_000_000);
}

#[test]
fn while_fences_are_ahead_of_the_clock_holds_are_counted_and_not_timed() {
    let mut clock = Clock::new();
    let begun = Instant::now();
    let server = Server::builder().clock(&clock).module_args("fence-margin 600000").start();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    let (ahead, since) = (figures.get("fence_ahead_us"), begun.elapsed().as_micros() as u64);
    let earliest = 600_000_000 - since - COARSE_US;
    assert!((earliest..=600_000_000 + COARSE_US).contains(&ahead), "{ahead}, {since} after");
    client.grant("before", "alice", DAY);
    client.grant("k", "alice", DAY);
    pass(&mut client, &mut clock, Duration::from_secs(10));
    assert!(client.release("k", "alice"));
    figures.moved(&[("grants", 2), ("releases", 1), ("held", 1)]);
    assert_eq!(figures.get("hold_us_max"), 0);
    pass(&mut client, &mut clock, Duration::from_secs(600));
    assert_eq!(figures.get("fence_ahead_us"), 0);
    assert!(client.release("before", "alice"), "its fence does not tell when it was granted");
    assert_eq!(figures.get("hold_us_max"), 0);
    let begun = Instant::now();
    client.grant("k", "alice", DAY);
    pass(&mut client, &mut clock, Duration::from_secs(20));
    assert!(client.release("k", "alice"));
    let (shown, since) = (figures.get("hold_us_max"), begun.elapsed().as_micros() as u64);
    assert!(
        (20_000_000..=20_000_000 + since + COARSE_US).contains(&shown),
        "{shown}, of them {since} by themselves"
    );
}

#[test]
fn waits_are_timed_from_the_request_to_the_grant_or_to_giving_up() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    let mut waits = Vec::new();
    for number in 1..=20_u64 {
        let millis = 20 * number;
        client.grant("k", "alice", DAY);
        let before = micros(&client.cmd("TIME")).unwrap();
        let patience = if number % 8 == 0 { millis } else { 0 };
        let request = format!("LOCK.ACQUIRE k bob {DAY} BLOCK {patience}");
        let mut bob = Waiter::sends(&server, &request);
        let parked = micros(&client.cmd("TIME")).unwrap();
        if patience == 0 {
            until_waited(&mut client, "k", millis.cast_signed());
            let (earliest, latest) = released(&mut client, "LOCK.RELEASE k alice");
            bob.fence();
            assert!(client.release("k", "bob"));
            waits.push((earliest - parked, latest - before));
        } else {
            assert_eq!(bob.reply(), Value::Nil);
            waits.push((1_000 * millis, micros(&client.cmd("TIME")).unwrap() - before));
            assert!(client.release("k", "alice"));
        }
    }
    Durations::new(waits).assert_shown(&mut figures, "wait");
}

#[test]
fn a_wait_that_ends_with_its_connection_is_timed_and_one_that_goes_on_elsewhere_is_not() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    client.grant("k", "alice", DAY);
    let mut former = Waiter::of(&server, "k", "bob");
    until_waited(&mut client, "k", 300);
    let newer = Waiter::of(&server, "k", "bob");
    assert!(matches!(former.reply(), Value::ServerError(_)));
    assert_eq!(figures.get("wait_us_max"), 0);
    let waited = waited(&mut client, "k");
    assert!(waited >= 300, "{waited}: the wait began with the former");
    client.cmd(format!("CLIENT KILL ID {}", newer.id));
    let shown = figures.get("wait_us_max").cast_signed();
    assert!(shown >= 1_000 * waited, "{shown} after {waited} ms: the wait began with the former");
    let shown = figures.get("wait_us_p50").cast_signed();
    assert!(shown >= 1_000 * waited, "{shown} after {waited} ms: one wait, and not two");
}

#[test]
fn the_longest_wait_is_that_of_the_one_who_waits_now_and_came_first() {
    let server = Server::start();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    let mut asker = server.client();
    let mut assert_longest = |key: &str| {
        let before = waited(&mut asker, key);
        let shown = figures.get("longest_wait_us").cast_signed() / 1_000;
        let after = waited(&mut asker, key);
        assert!((before..=after).contains(&shown), "{shown} is not in {before}..={after}");
    };
    client.grant("one", "alice", DAY);
    client.grant("other", "alice", DAY);
    assert_eq!(client.counter("longest_wait_us"), 0);
    let bob = Waiter::of(&server, "one", "bob");
    until_waited(&mut client, "one", 100);
    assert_longest("one");
    let carol = Waiter::of(&server, "other", "carol");
    until_waited(&mut client, "other", 50);
    let mut dave = Waiter::of(&server, "one", "dave");
    until_waited(&mut client, "one", 200);
    assert_longest("one");
    client.cmd(format!("CLIENT KILL ID {}", bob.id));
    assert_longest("other");
    client.cmd(format!("CLIENT KILL ID {}", carol.id));
    assert_longest("one");
    assert!(client.release("one", "alice"));
    dave.fence();
    assert_eq!(client.counter("longest_wait_us"), 0);
}
