//! Holds that are bound to a connection: `LOCK.ACQUIRE … EPHEMERAL`.

mod binding;
mod closing;
mod crowds;
mod losing;
mod moving;
mod prompt;
mod telling;

use redis::Value;
use testkit::{Client, Server, Setup, eventually};

const LONG: u64 = 60_000;

/// Fences tell when a lock was granted.
fn exact() -> Setup {
    Server::builder().module_args("fence-margin 0")
}

fn asks(key: &str, owner: &str, grace: u64) -> String {
    format!("LOCK.ACQUIRE {key} {owner} {LONG} EPHEMERAL {grace}")
}

/// Takes the lock, to hold it as long as this connection lasts.
#[track_caller]
fn binds(client: &mut Client, key: &str, owner: &str, grace: u64) -> u64 {
    client.fence(asks(key, owner, grace)).expect("another owner has the lock")
}

/// How many holds are bound.
fn bindings(client: &mut Client) -> u64 {
    client.counter("bindings")
}

#[track_caller]
fn until_free(client: &mut Client, key: &str) {
    eventually("the lock is free", || client.info(key).map_or(Ok(()), Err));
}

/// Waits until the lease of this lock is no longer than that, and returns what is left of it.
#[track_caller]
fn until_short(client: &mut Client, key: &str, millis: u64) -> i64 {
    eventually("the lease is short", || match client.cmd(["PTTL", key]) {
        Value::Int(left @ 1..) if left.cast_unsigned() <= millis => Ok(left),
        other => Err(other),
    })
}

/// Whether the module has done what was due when this was called: it does so before the server reads more commands, twice.
fn let_it_work(client: &mut Client) {
    for _ in 0..3 {
        client.next_millisecond();
        client.cmd("PING");
    }
}
