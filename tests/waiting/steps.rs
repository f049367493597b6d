//! The server's wall clock is set while somebody waits. What lasts for so many milliseconds, such
//! as patience, lasts as long as before, whichever way the clock goes. Only the end of a lease is a
//! moment of that clock.

use super::{Waiter, held_on, queue};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Clock, Server, clock::HOUR, int, is_older_than};

/// How late anything may be on a busy machine.
const LATE: Duration = Duration::from_millis(1_500);

#[test]
fn patience_lasts_as_long_as_it_was_asked_for() {
    const PATIENCE: Duration = Duration::from_secs(2);
    for set in [Clock::step_back, Clock::step_forward] {
        let mut clock = Clock::new();
        let server = Server::builder().clock(&clock).start();
        let mut client = server.client();
        // It outlasts the step.
        client.grant("k", "alice", 86_400_000);
        let asked = Instant::now();
        let mut bob = Waiter::sends(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 2000");
        let queued = Instant::now();
        set(&mut clock, HOUR);
        clock.wait_until_known(&mut client);
        for row in queue(&server, "k") {
            assert!((0..=2_000).contains(&row.waited), "{row:?}");
            assert!((1_998..=2_000).contains(&(row.waited + row.patience)), "{row:?}");
        }
        assert_eq!(bob.reply(), Value::Nil);
        let (most, least) = (asked.elapsed(), queued.elapsed());
        assert!(most >= PATIENCE && least <= PATIENCE + LATE, "it ended after {most:?}");
    }
}

#[test]
fn a_lease_that_a_step_of_the_clock_ends_is_handed_on_at_once() {
    let mut clock = Clock::new();
    let (server, mut client) = held_on(Server::builder().clock(&clock));
    let mut bob = Waiter::of(&server, "k", "bob");
    clock.step_forward(HOUR);
    let since = Instant::now();
    let fence = bob.fence();
    assert!(since.elapsed() < LATE, "{:?} after the step", since.elapsed());
    assert_eq!(client.check("k", "bob"), Some(fence));
}

#[test]
fn what_was_put_off_is_made_good_when_that_ends_although_the_clock_was_set_meanwhile() {
    let (pause, unpause) = ("CLIENT PAUSE 86400000 WRITE", "CLIENT UNPAUSE");
    let too_few = "CONFIG SET min-replicas-to-write 1";
    for set in [Clock::step_back, Clock::step_forward] {
        for (put_off, let_it) in [
            (["DEL k", pause], unpause),
            (["DEL k", too_few], "CONFIG SET min-replicas-to-write 0"),
            // A grant that nobody heard of, for the first waiter is killed.
            (["LOCK.RELEASE k alice", pause], unpause),
        ] {
            if put_off[1] == too_few && is_older_than((7, 0)) {
                continue; // It does not tell modules that writes are refused.
            }
            let mut clock = Clock::new();
            let server = Server::builder().clock(&clock).start();
            let mut client = server.client();
            client.grant("k", "alice", 86_400_000);
            let waits = |owner: &str| {
                Waiter::sends(&server, &format!("LOCK.ACQUIRE k {owner} 86400000 BLOCK 0"))
            };
            let (bob, carol) = (waits("bob"), waits("carol"));
            let kill = format!("CLIENT KILL ID {}", bob.id);
            let [end, refuse] = put_off;
            let mut next = if end.starts_with("LOCK.") {
                let replies = client.pipeline(&[end, &kill, refuse]);
                assert_eq!(replies, [int(1), int(1), Value::Okay]);
                carol
            } else {
                client.pipeline(&put_off);
                bob
            };
            // It has been tried in vain by then.
            let begun = client.now();
            client.wait_until_past(begun + 150);
            next.assert_waits(&server);
            set(&mut clock, HOUR);
            clock.wait_until_known(&mut client);
            let begun = client.now();
            client.wait_until_past(begun + 150);
            assert_eq!(client.cmd(let_it), Value::Okay);
            let since = Instant::now();
            next.fence();
            assert!(since.elapsed() < LATE / 2, "{put_off:?}: {:?} after that", since.elapsed());
        }
    }
}
