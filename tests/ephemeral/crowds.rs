//! Many holds that end at once.

use super::{LONG, bindings, until_free};
use redis::Value;
use std::time::Duration;
use testkit::waiter::id_of;
use testkit::{Client, Server, Stopwatch, eventually};

const MANY: usize = 100_000;

/// In bytes. What so many bindings took is three times as much.
const ROOM: u64 = 5_000_000;

/// On a machine that is busy with other things too, in one of so many rounds.
const ROUNDS: usize = 5;

fn takes(client: &mut Client, requests: &[String]) {
    for requests in requests.chunks(1_000) {
        let requests: Vec<_> = requests.iter().map(String::as_str).collect();
        assert!(client.pipeline(&requests).iter().all(|reply| matches!(reply, Value::Int(_))));
    }
}

#[test]
fn a_connection_that_takes_100_000_locks_with_it_holds_up_nobody() {
    let mut server = Server::builder().config("save", "").start();
    let requests: Vec<_> = (0..MANY)
        .map(|number| format!("LOCK.ACQUIRE k{number} alice {LONG} EPHEMERAL 0"))
        .collect();
    let mut client = server.client();
    let before = client.info_number("memory", "used_memory");
    let mut seen = Vec::new();
    for round in 1..=ROUNDS {
        let mut alice = server.client();
        takes(&mut alice, &requests);
        assert_eq!(bindings(&mut client), MANY as u64);
        drop(alice);
        let longest = longest_ping(&mut server, &mut client);
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

/// How long the server let somebody else wait at most, until it had freed all locks. Where other programs kept it from computing, only what it computed counts.
fn longest_ping(server: &mut Server, client: &mut Client) -> Duration {
    let mut longest = Duration::ZERO;
    eventually("all are free", || {
        let computed = server.processor_time();
        let watch = Stopwatch::start();
        client.cmd("PING");
        let took = watch.elapsed();
        longest = longest.max(took.min(server.processor_time() - computed));
        match client.cmd("DBSIZE") {
            Value::Int(0) => Ok(()),
            other => Err(other),
        }
    });
    longest
}

/// Whatever is to be done about all of these holds, a command that names the lock does no more than one turn's share of it.
#[test]
fn a_command_right_behind_the_end_of_thousands_of_holds_of_one_lock_is_not_held_up() {
    const HOLDERS: usize = 6_000;
    let server = Server::builder().module_args(&format!("max-holders {HOLDERS}")).start();
    let requests: Vec<_> = (0..HOLDERS)
        .map(|number| format!("LOCK.ACQUIRE k o{number} {LONG} SHARE 0 EPHEMERAL 0"))
        .collect();
    let mut client = server.client();
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        let mut alice = server.client();
        let id = id_of(&mut alice);
        takes(&mut alice, &requests);
        // In one packet: the timer does nothing in between.
        let kill = format!("CLIENT KILL ID {id}");
        let watch = Stopwatch::start();
        let replies =
            client.pipeline(&[&kill, "LOCK.CHECK k o7", "LOCK.EXTEND k o7 1", "LOCK.INFO k"]);
        let took = watch.elapsed();
        assert_eq!(replies[1..], [Value::Nil, Value::Int(0), Value::Nil]);
        until_free(&mut client, "k");
        seen.push(took);
        if took < Duration::from_millis(100) {
            return;
        }
    }
    panic!("a command took {seen:?}");
}
