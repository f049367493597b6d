//! The server's wall clock is set while somebody waits. What lasts for so many milliseconds, such
//! as patience, lasts as long as before, whichever way the clock goes. Only the end of a lease is a
//! moment of that clock.

use super::{LONG, Waiter, is_parked, rows};
use redis::Value;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Clock, Server, announce, clock::HOUR, eventually, int, lacks};

/// A lease that outlasts each step.
const DAY: u64 = 86_400_000;

/// Of a waiter that gives up, in milliseconds.
const PATIENCE: u64 = 2_000;

/// How late anything may be on a busy machine.
const LATE: Duration = Duration::from_millis(1_500);

#[derive(Clone, Copy, Debug)]
enum Step {
    Back,
    Forward,
}

const BOTH: [Step; 2] = [Step::Back, Step::Forward];

impl Step {
    fn make(self, clock: &mut Clock, client: &mut Client) {
        match self {
            Self::Back => clock.step_back(HOUR),
            Self::Forward => clock.step_forward(HOUR),
        }
        clock.wait_until_known(client);
    }
}

fn with_clock(args: &str) -> (Server, Clock) {
    let clock = Clock::new();
    (Server::builder().clock(&clock).module_args(args).start(), clock)
}

/// Longer than anything here takes.
const NEVER: Duration = Duration::from_secs(5);

#[test]
fn patience_lasts_as_long_as_it_was_asked_for() {
    let mut wrong = Vec::new();
    for step in BOTH {
        let (server, mut clock) = with_clock("");
        let mut client = server.client();
        client.grant("k", "alice", DAY);
        let asked = Instant::now();
        let request = format!("LOCK.ACQUIRE k bob {LONG} BLOCK {PATIENCE}");
        let mut bob = Waiter::sends(&server, &request);
        let queued = Instant::now();
        step.make(&mut clock, &mut client);
        while is_parked(&mut client, bob.id) && queued.elapsed() < NEVER {
            thread::sleep(Duration::from_millis(2));
        }
        let (most, least) = (asked.elapsed(), queued.elapsed());
        announce(&format!("{step:?}: patience of {PATIENCE} ms ended after {most:?}"));
        let patience = Duration::from_millis(PATIENCE);
        if most < patience || least > patience + LATE {
            wrong.push((step, most));
        } else {
            assert_eq!(bob.reply(), Value::Nil, "{step:?}");
        }
    }
    assert!(wrong.is_empty(), "a patience of {PATIENCE} ms ended after {wrong:?}");
}

#[test]
fn who_waits_is_listed_with_the_time_that_has_passed() {
    for step in BOTH {
        let (server, mut clock) = with_clock("");
        let mut client = server.client();
        client.grant("k", "alice", DAY);
        let begun = Instant::now();
        let _bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k bob {LONG} BLOCK 60000"));
        thread::sleep(Duration::from_millis(300));
        step.make(&mut clock, &mut client);
        let row = rows(&client.cmd("LOCK.WAITERS k")).remove(0);
        let passed = i64::try_from(begun.elapsed().as_millis()).unwrap();
        assert!((299..=passed + 1).contains(&row.waited), "{step:?}: {row:?} after {passed} ms");
        let left = 60_000 - passed - 1..=60_000 - 299;
        assert!(left.contains(&row.patience), "{step:?}: {row:?} after {passed} ms");
        let longest = i64::try_from(client.counter("longest_wait_us") / 1_000).unwrap();
        let passed = i64::try_from(begun.elapsed().as_millis()).unwrap();
        assert!((299..=passed + 1).contains(&longest), "{step:?}: {longest} ms of {passed}");
    }
}

/// Has the clock set while something is put off, and then lets it happen.
fn assert_made_good(put_off: &[&str], let_it: &str) {
    for step in BOTH {
        let (server, mut clock) = with_clock("");
        let mut client = server.client();
        client.grant("k", "alice", DAY);
        let mut bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k bob {DAY} BLOCK 0"));
        client.pipeline(put_off);
        // It has been tried in vain by then.
        thread::sleep(Duration::from_millis(150));
        bob.assert_waits(&server);
        step.make(&mut clock, &mut client);
        thread::sleep(Duration::from_millis(150));
        assert_eq!(client.cmd(let_it), Value::Okay);
        let since = Instant::now();
        bob.fence();
        assert!(since.elapsed() < LATE / 2, "{step:?}: {:?} after {let_it}", since.elapsed());
    }
}

#[test]
fn a_hand_off_that_a_pause_put_off_is_made_when_it_ends() {
    assert_made_good(&["DEL k", "CLIENT PAUSE 86400000 WRITE"], "CLIENT UNPAUSE");
}

#[test]
fn a_hand_off_that_was_refused_is_made_when_the_server_takes_writes_again() {
    if lacks((7, 0), "asking whether writes are refused") {
        return;
    }
    let refuse = ["DEL k", "CONFIG SET min-replicas-to-write 1"];
    assert_made_good(&refuse, "CONFIG SET min-replicas-to-write 0");
}

#[test]
fn a_grant_that_nobody_heard_of_is_taken_back_after_a_pause_in_which_the_clock_is_set() {
    for step in BOTH {
        let (server, mut clock) = with_clock("");
        let mut client = server.client();
        client.grant("k", "alice", DAY);
        let bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k bob {DAY} BLOCK 0"));
        let mut carol = Waiter::sends(&server, &format!("LOCK.ACQUIRE k carol {DAY} BLOCK 0"));
        let kill = format!("CLIENT KILL ID {}", bob.id);
        let pause = "CLIENT PAUSE 86400000 WRITE";
        let replies = client.pipeline(&["LOCK.RELEASE k alice", &kill, pause]);
        assert_eq!(replies[0], int(1));
        thread::sleep(Duration::from_millis(50));
        step.make(&mut clock, &mut client);
        thread::sleep(Duration::from_millis(50));
        carol.assert_waits(&server);
        assert_eq!(client.cmd("CLIENT UNPAUSE"), Value::Okay);
        let since = Instant::now();
        carol.fence();
        assert!(since.elapsed() < LATE / 2, "{step:?}: {:?} after the pause", since.elapsed());
    }
}

#[test]
fn a_lease_that_a_step_of_the_clock_ends_is_handed_on_at_once() {
    let (server, mut clock) = with_clock("");
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    clock.step_forward(HOUR);
    let since = Instant::now();
    bob.fence();
    assert!(since.elapsed() < LATE, "{:?} after the step", since.elapsed());
    assert!(eventually("bob holds it", || client.check("k", "bob").ok_or(())) > 0);
}
