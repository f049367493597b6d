//! For a while after its start, or after it became primary, a server that is told so grants no lock: what it
//! may not know of runs out first.

use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Client, Clock, Server, Setup, Waiter, announce, becomes};

const LONG: u64 = 60_000;

/// Long enough to look around in, on a loaded machine too.
const QUARANTINE: i64 = 2_000;

fn resting() -> Setup {
    Server::builder().module_args(&format!("quarantine-ms {QUARANTINE} fence-margin 0"))
}

fn left(client: &mut Client) -> u64 {
    client.counter("quarantine_left_us")
}

/// When the grant with this fence was given, in unix milliseconds.
fn granted_at(reply: &Value) -> i64 {
    match reply {
        Value::Int(fence) => fence / 1_000,
        other => panic!("no fence: {other:?}"),
    }
}

#[test]
fn a_new_server_grants_nothing_until_the_quarantine_ends() {
    let server = resting().start();
    let mut client = server.client();
    let mut waiter = server.client();
    assert_eq!(client.acquire("k", "alice", LONG), None, "a try is refused");
    assert_eq!(client.cmd(format!("LOCK.ACQUIRE k carol {LONG} BLOCK 50")), Value::Nil);
    assert_ne!(left(&mut client), 0, "patience may end in the quarantine");
    assert_eq!(client.cmd("EXISTS k"), Value::Int(0));
    waiter.send(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    let end = client.now() + i64::try_from(left(&mut client)).unwrap() / 1_000;
    let granted = granted_at(&waiter.receive());
    assert!((end - 20..end + 500).contains(&granted), "granted at {granted}, and not at {end}");
    assert_eq!(left(&mut client), 0);
    client.grant("another", "alice", LONG);
}

#[test]
fn holders_go_on_in_the_quarantine_of_a_restart() {
    let mut server = resting().aof().start();
    becomes("the quarantine of the start is over", 0, || left(&mut server.client()));
    let fence = server.client().grant("k", "alice", LONG);
    server.client().grant("another", "alice", LONG);
    server.kill();
    server.start_again();
    let mut client = server.client();
    assert_ne!(left(&mut client), 0);
    assert_eq!(client.acquire("k", "alice", LONG), Some(fence), "the same grant");
    assert!(client.extend("k", "alice", LONG));
    assert_eq!(client.check("k", "alice"), Some(fence));
    assert!(client.release("k", "alice"));
    assert_eq!(client.acquire("k", "alice", LONG), None, "a new one is not to be had");
    let mut bob = Waiter::of(&server, "another", "bob");
    assert!(client.release("another", "alice"));
    assert_eq!(client.info("another"), None, "it is handed on only when the quarantine has ended");
    assert_ne!(left(&mut client), 0);
    bob.fence();
    assert_eq!(left(&mut client), 0);
}

/// What a replica's clock may be wrong by before somebody sets it right: longer than the quarantine
/// lasts.
const WRONG_BY: Duration = Duration::from_secs(60);

/// Sees that the first grant of a server whose quarantine began after `begun` comes neither too early nor not at all.
#[track_caller]
fn assert_rested(reply: &Value, begun: Instant, what: &str) {
    let rested = begun.elapsed();
    announce(&format!("{what}: granted {rested:?} after the beginning of {QUARANTINE} ms"));
    assert!(matches!(reply, Value::Int(_)), "{what}: {reply:?} after {rested:?}");
    let least = Duration::from_millis(QUARANTINE.unsigned_abs());
    assert!(rested >= least, "{what}: granted after {rested:?} of {least:?}");
}

/// For those who wait already, too.
#[test]
fn a_quarantine_lasts_as_long_as_it_is_whichever_way_the_clock_is_set_meanwhile() {
    for forward in [false, true] {
        let mut clock = Clock::new();
        let begun = Instant::now();
        let mut server = resting().clock(&clock).start();
        for what in ["a start", "a restart"] {
            let begun = if what == "a start" { begun } else { Instant::now() };
            if what == "a restart" {
                server.kill();
                server.start_again();
            }
            let mut client = server.client();
            let mut bob = Waiter::of(&server, "k", "bob");
            if forward {
                clock.step_forward(WRONG_BY);
            } else {
                clock.step_back(WRONG_BY);
            }
            clock.wait_until_known(&mut client);
            let what = format!("set {} after {what}", if forward { "forward" } else { "back" });
            assert_rested(&bob.reply(), begun, &what);
            client.cmd("DEL k");
        }
    }
}
