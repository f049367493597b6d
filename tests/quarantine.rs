//! For a while after its start, or after it became primary, a server that is told so grants no lock: what it
//! may not know of runs out first.

use crate::support::{
    Client, Clock, Server, Setup, clock::HOUR, eventually, lacks, start_pair, wait_until_in_sync,
};
use redis::Value;

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
fn without_a_quarantine_the_first_request_is_granted() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(left(&mut client), 0);
    client.grant("k", "alice", LONG);
}

#[test]
fn a_new_server_grants_nothing_until_the_quarantine_ends() {
    let server = resting().start();
    let mut client = server.client();
    let mut waiter = server.client();
    assert_eq!(client.acquire("k", "alice", LONG), None, "a try is refused");
    waiter.send(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    let end = client.now() + i64::try_from(left(&mut client)).unwrap() / 1_000;
    let granted = granted_at(&waiter.receive());
    assert!((end - 20..end + 500).contains(&granted), "granted at {granted}, and not at {end}");
    assert_eq!(left(&mut client), 0);
    client.grant("another", "alice", LONG);
}

#[test]
fn patience_may_end_in_the_quarantine() {
    let server = resting().start();
    let mut client = server.client();
    assert_eq!(client.cmd(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 50")), Value::Nil);
    assert_ne!(left(&mut client), 0);
    assert_eq!(client.cmd("EXISTS k"), Value::Int(0));
}

#[test]
fn holders_go_on_in_the_quarantine_of_a_restart() {
    let mut server = resting().aof().start();
    eventually("the first quarantine ends", || match left(&mut server.client()) {
        0 => Ok(()),
        left => Err(left),
    });
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
    let mut waiter = server.client();
    waiter.send(format!("LOCK.ACQUIRE another bob {LONG} BLOCK 0"));
    eventually("bob is queued", || match client.info("another").map(|info| info.waiters) {
        Some(1) => Ok(()),
        other => Err(other),
    });
    assert!(client.release("another", "alice"));
    assert_eq!(client.info("another"), None, "it is handed on only when the quarantine has ended");
    assert_ne!(left(&mut client), 0);
    assert!(matches!(waiter.receive(), Value::Int(_)));
    assert_eq!(left(&mut client), 0);
}

#[test]
fn a_new_primary_lets_unknown_leases_run_out_first() {
    let (primary, replica) = start_pair(Server::builder(), resting());
    let mut old = primary.client();
    let known = old.grant("known", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    eventually("the quarantine of the start ends", || match left(&mut replica.client()) {
        0 => Ok(()),
        left => Err(left),
    });
    // Of this the new primary never hears.
    let ttl = u64::try_from(QUARANTINE).unwrap();
    replica.cmd("REPLICAOF NO ONE");
    old.grant("unknown", "alice", ttl);
    let end = old.info("unknown").unwrap().deadline;
    let mut new = replica.client();
    assert_eq!(new.check("known", "alice"), Some(known));
    let until = new.now() + i64::try_from(left(&mut new)).unwrap() / 1_000;
    assert_eq!(new.acquire("unknown", "bob", LONG), None);
    let granted = granted_at(&new.cmd(format!("LOCK.ACQUIRE unknown bob {LONG} BLOCK 0")));
    assert!(granted >= until - 20, "granted at {granted}, before {until}");
    // Both were asked for within a moment of each other.
    assert!(granted > end - 500, "granted at {granted}, and the first lease ended at {end}");
}

#[test]
fn an_operator_ends_the_quarantine() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let server = Server::builder().module_args("quarantine-ms 3600000").start();
    let mut client = server.client();
    let mut waiter = server.client();
    waiter.send(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    assert_eq!(client.acquire("another", "alice", LONG), None);
    client.cmd("CONFIG SET leasehold.quarantine-ms 1000");
    assert_eq!(client.acquire("another", "alice", LONG), None, "the one that runs is as it was");
    client.cmd("CONFIG SET leasehold.quarantine-ms 0");
    client.grant("another", "alice", LONG);
    assert!(matches!(waiter.receive(), Value::Int(_)));
}

#[test]
fn a_quarantine_that_is_over_does_not_come_back_with_the_clock() {
    let mut clock = Clock::new();
    let server = Server::builder().module_args("quarantine-ms 100").clock(&clock).start();
    let mut client = server.client();
    client.cmd(format!("LOCK.ACQUIRE k alice {LONG} BLOCK 0"));
    let before = client.now();
    clock.step_back(HOUR);
    eventually("the server is in the past", || match client.now() {
        now if now < before => Ok(()),
        now => Err(now),
    });
    client.grant("another", "alice", LONG);
}
