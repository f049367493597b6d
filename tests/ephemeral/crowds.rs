//! Many holds that end at once.

use super::{LONG, bindings};
use redis::Value;
use std::time::Duration;
use testkit::{Client, Server, Stopwatch, eventually};

const MANY: usize = 100_000;

/// In bytes. What so many bindings took is three times as much.
const ROOM: u64 = 5_000_000;

/// On a machine that is busy with other things too, in one of so many rounds.
const ROUNDS: usize = 5;

#[test]
fn a_connection_that_takes_100_000_locks_with_it_holds_up_nobody() {
    let server = Server::builder().config("save", "").start();
    let words: Vec<_> = (0..MANY)
        .map(|number| format!("LOCK.ACQUIRE k{number} alice {LONG} EPHEMERAL 0"))
        .collect();
    let mut client = server.client();
    let before = client.info_number("memory", "used_memory");
    let mut seen = Vec::new();
    for round in 1..=ROUNDS {
        let mut alice = server.client();
        for words in words.chunks(1_000) {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            assert!(alice.pipeline(&words).iter().all(|reply| matches!(reply, Value::Int(_))));
        }
        assert_eq!(bindings(&mut client), MANY as u64);
        drop(alice);
        let longest = longest_ping(&mut client);
        assert_eq!(bindings(&mut client), 0);
        assert_eq!(client.counter("bindings_ended"), (round * MANY) as u64);
        eventually("the room that they took is given back", || {
            match client.info_number("memory", "used_memory").saturating_sub(before) {
                0..ROOM => Ok(()),
                more => Err(more),
            }
        });
        seen.push(longest);
        if longest < Duration::from_millis(50) {
            return;
        }
    }
    panic!("a PING took {seen:?}");
}

/// How long the server let somebody else wait at most, until it had freed all locks.
fn longest_ping(client: &mut Client) -> Duration {
    let mut longest = Duration::ZERO;
    eventually("all are free", || {
        let watch = Stopwatch::start();
        client.cmd("PING");
        longest = longest.max(watch.elapsed());
        match client.cmd("DBSIZE") {
            Value::Int(0) => Ok(()),
            other => Err(other),
        }
    });
    longest
}
