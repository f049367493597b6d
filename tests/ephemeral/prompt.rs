//! How soon the next one has the lock.

use super::{binds, exact};
use crate::waiting::granted_at;
use redis::Value;
use testkit::{Client, Server, Stopwatch, Waiter, int, lacks};

/// What is promised on an idle server.
const PROMPT_MILLIS: i64 = 2;

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

/// The server closes some connections when it has decided how long to sleep, and one that quits when it is about to.
#[test]
fn the_next_has_the_lock_within_2_ms_of_the_end_of_the_connection() {
    assert_prompt(&exact().start(), |_alice, client, id| {
        assert_eq!(client.cmd(format!("CLIENT KILL ID {id}")), int(1));
    });
    if lacks((7, 0), "a way to wake the server up") {
        return;
    }
    assert_prompt(&exact().start(), |alice, _, _| drop(alice));
    assert_prompt(&exact().start(), |mut alice, _, _| {
        assert_eq!(alice.cmd("QUIT"), Value::Okay);
    });
}
