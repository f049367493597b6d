//! How long was waited and held. Holds go by the server's clock, which the tests step, so that seconds pass
//! in no time. Waits go by a clock that nobody can step.

use super::{Figures, pass, until_waited};
use std::time::{Duration, Instant};
use testkit::{Clock, Server, Waiter, int, micros};

const DAY: u64 = 86_400_000;

/// Redis 7.0 and before tell modules the time in milliseconds.
const COARSE_US: u64 = 1_000;

/// Never too little, and 6 % too much at most.
#[track_caller]
fn assert_shown(figures: &mut Figures, kind: &str, least: u64, most: u64) {
    for figure in ["p50", "p95", "p99", "max"] {
        let shown = figures.get(&format!("{kind}_us_{figure}"));
        let bounds = least - COARSE_US..=most + most / 16 + COARSE_US;
        assert!(bounds.contains(&shown), "{kind} {figure} is {shown}, not in {bounds:?}");
    }
}

#[test]
fn holds_are_timed_from_the_grant_to_the_release_and_waits_from_the_request_to_the_grant() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).module_args("fence-margin 0").start();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    let fence = client.grant("k", "alice", DAY);
    pass(&mut client, &mut clock, Duration::from_secs(10));
    // Which does not begin a new hold.
    assert!(client.extend("k", "alice", DAY));
    assert_eq!(client.grant("k", "alice", DAY), fence);
    let asked = Instant::now();
    let mut bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k bob {DAY} BLOCK 0"));
    until_waited(&mut client, "k", 200);
    let replies = client.pipeline(&["TIME", "LOCK.RELEASE k alice", "TIME"]);
    let [before, after] = [0, 2].map(|at| micros(&replies[at]).unwrap());
    assert_eq!(replies[1], int(1));
    bob.fence();
    let waited = asked.elapsed().as_micros() as u64;
    assert_shown(&mut figures, "hold", before - fence, after - fence);
    assert_shown(&mut figures, "wait", 200_000, waited);
}
