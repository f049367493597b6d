//! How soon the next one has the lock.

use super::{LONG, binds, exact};
use crate::waiting::granted_at;
use redis::Value;
use testkit::{Client, Server, Stopwatch, Waiter, int, lacks, strings};

/// What is promised on an idle server.
const PROMPT_MILLIS: i64 = 2;

/// It closes most connections when it has decided how long to sleep.
const WAKING: &str = "a way to wake the server up";

const ROUNDS: usize = 5;
const CLOSES: usize = 21;

/// At least half of them in one of some rounds: the machine is busy with other things too.
#[track_caller]
fn assert_prompt(server: &Server, mut close: impl FnMut(Client, &mut Client, i64)) {
    let mut seen = Vec::new();
    let mut client = server.client();
    for _ in 0..ROUNDS {
        let mut lateness: Vec<_> = (0..CLOSES)
            .map(|_| {
                let mut alice = server.client();
                let id = testkit::waiter::id_of(&mut alice);
                binds(&mut alice, "k", "alice", 0);
                let mut bob = Waiter::of(server, "k", "bob");
                let (watch, before) = (Stopwatch::start(), client.now());
                close(alice, &mut client, id);
                let late = granted_at(bob.fence()) - before - watch.stalled_millis();
                assert!(client.release("k", "bob"));
                late
            })
            .collect();
        lateness.sort_unstable();
        if lateness[CLOSES / 2] <= PROMPT_MILLIS {
            return;
        }
        seen.push(lateness);
    }
    panic!("never within {PROMPT_MILLIS} ms of the end of the connection: {seen:?}");
}

#[test]
fn the_next_has_the_lock_within_2_ms_of_the_end_of_the_connection() {
    if lacks((7, 0), WAKING) {
        return;
    }
    assert_prompt(&exact().start(), |alice, _, _| drop(alice));
}

/// The server closes the connection when it is about to sleep.
#[test]
fn the_same_where_the_connection_quits() {
    if lacks((7, 0), WAKING) {
        return;
    }
    assert_prompt(&exact().start(), |mut alice, _, _| {
        assert_eq!(alice.cmd("QUIT"), Value::Okay);
    });
}

#[test]
fn the_same_where_the_connection_is_killed() {
    assert_prompt(&exact().start(), |_alice, client, id| {
        assert_eq!(client.cmd(format!("CLIENT KILL ID {id}")), int(1));
    });
}

#[test]
fn the_same_with_10_000_other_holds_that_end_with_another_connection() {
    let server = exact().start();
    let mut other = server.client();
    let mut client = server.client();
    for number in 0..10_000 {
        binds(&mut other, &format!("o{number}"), "other", 0);
    }
    let mut alice = server.client();
    binds(&mut alice, "k", "alice", 0);
    let mut bob = Waiter::of(&server, "k", "bob");
    let (watch, before) = (Stopwatch::start(), client.now());
    drop(other);
    drop(alice);
    let late = granted_at(bob.fence()) - before - watch.stalled_millis();
    // Turns of the server that are shared, in a build for tests, and not the time that all of them take.
    assert!(late < 500, "{late} ms behind 10,000 others");
    assert!(client.acquire("k", "carol", LONG).is_none());
}

#[test]
fn of_all_that_end_with_a_connection_those_come_first_that_somebody_waits_for() {
    let server = Server::start();
    let mut alice = server.client();
    for number in 0..1_000 {
        binds(&mut alice, &format!("k{number}"), "alice", 0);
    }
    let wanted = ["k999", "k500", "k250"];
    let mut waiters = wanted.map(|key| Waiter::of(&server, key, "bob"));
    // Bound while somebody waits.
    binds(&mut alice, "k500", "alice", 0);
    let mut subscriber = server.client();
    server.cmd("CONFIG SET notify-keyspace-events KEA");
    subscriber.cmd("SUBSCRIBE __keyevent@0__:lock.released");
    drop(alice);
    let _fences = waiters.each_mut().map(Waiter::fence);
    let mut first = wanted.map(|_| strings(&subscriber.receive())[2].clone());
    first.sort_unstable();
    assert_eq!(first, ["k250", "k500", "k999"]);
}
