//! Many holds that end at once.

use super::{LONG, bindings};
use redis::Value;
use std::time::Duration;
use testkit::{Server, Stopwatch, eventually, int};

const MANY: usize = 100_000;

#[test]
fn a_connection_that_takes_100_000_locks_with_it_holds_up_nobody() {
    let server = Server::builder().config("save", "").start();
    let mut alice = server.client();
    let words: Vec<_> = (0..MANY)
        .map(|number| format!("LOCK.ACQUIRE k{number} alice {LONG} EPHEMERAL 0"))
        .collect();
    for words in words.chunks(1_000) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        assert!(alice.pipeline(&words).iter().all(|reply| matches!(reply, Value::Int(_))));
    }
    let mut client = server.client();
    assert_eq!(bindings(&mut client), MANY as u64);
    drop(alice);
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
    assert!(longest < Duration::from_millis(50), "a PING took {longest:?}");
    assert_eq!((bindings(&mut client), client.counter("bindings_ended")), (0, MANY as u64));
    assert_eq!(client.cmd("EXISTS k7"), int(0));
}
