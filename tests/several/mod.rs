//! Several locks in one request: `LOCK.ACQUIRE`, `LOCK.RELEASE` and `LOCK.EXTEND` with `ALSO`.

mod asking;
mod crowds;
mod keys;
mod leaving;
mod limits;
mod moving;
mod options;
mod releasing;
mod telling;
mod waiting;

use redis::Value;
use testkit::{Client, Server, Waiter};

const LONG: u64 = 60_000;

/// A request for these locks, of a lease longer than any test.
fn asks(owner: &str, keys: &[&str]) -> String {
    let (first, also) = keys.split_first().unwrap();
    format!("LOCK.ACQUIRE {first} {owner} {LONG}{}", behind(also))
}

/// What names these locks behind a request for another.
fn behind(also: &[&str]) -> String {
    if also.is_empty() { String::new() } else { format!(" ALSO {} {}", also.len(), also.join(" ")) }
}

/// The fence by which this owner holds all of these locks from now on, or nothing.
#[track_caller]
fn takes(client: &mut Client, owner: &str, keys: &[&str]) -> Option<u64> {
    client.fence(asks(owner, keys))
}

/// Waits for all of these locks without limit.
fn waits(server: &Server, owner: &str, keys: &[&str]) -> Waiter {
    Waiter::sends(server, &format!("{} BLOCK 0", asks(owner, keys)))
}

/// By which fence this owner holds each of the locks.
#[track_caller]
fn fences(client: &mut Client, owner: &str, keys: &[&str]) -> Vec<Option<u64>> {
    keys.iter().map(|key| client.check(key, owner)).collect()
}

#[track_caller]
fn holds_all(client: &mut Client, owner: &str, keys: &[&str], fence: u64) {
    assert_eq!(fences(client, owner, keys), vec![Some(fence); keys.len()], "{owner} of {keys:?}");
}

/// How many wait for each of the locks.
fn waiting(client: &mut Client, keys: &[&str]) -> Vec<usize> {
    let mut waiting_for = |key: &&str| match client.cmd(["LOCK.WAITERS", key]) {
        Value::Array(rows) => rows.len(),
        other => panic!("no list of waiters: {other:?}"),
    };
    keys.iter().map(&mut waiting_for).collect()
}

/// The names `k0`, `k1` and so on.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("k{number}")).collect()
}

fn as_words(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
