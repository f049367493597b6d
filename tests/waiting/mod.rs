//! `LOCK.ACQUIRE … BLOCK` and `LOCK.WAITERS`: waiting in the server's queue, and being handed the lock.
//!
//! No test sleeps to be right. That a request is queued is asked of the server; when a grant was made is
//! read from its fence, which is the server's own clock where the margin is 0.

mod closing;
mod contexts;
mod crowds;
pub(crate) mod expiry;
mod freeing;
mod keeping;
mod late;
mod leaving;
mod limits;
mod pausing;
mod queueing;
mod quiet;
mod replacing;
pub(crate) mod short_of_memory;
mod slots;
mod steps;
mod stopping;
mod talking;
mod unheard;

use redis::Value;
use testkit::waiter::{id_of, wait_until_parked};
use testkit::{Client, Server, Session, Setup, Waiter, bulk_text, field, is_older_than, number};

pub(crate) const LONG: u64 = 60_000;

/// Plays each story on a server of its own, on which alice holds `k` by the fence A.
#[track_caller]
pub(crate) fn play(setup: impl Fn() -> Setup, text: &str) {
    Session::play_apart(setup, "LOCK.ACQUIRE k alice 60000 -> A", text);
}

/// A server on which alice holds `k`, and a connection to it.
pub(crate) fn held() -> (Server, Client) {
    held_on(Server::builder())
}

pub(crate) fn held_on(setup: Setup) -> (Server, Client) {
    let server = setup.start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    (server, client)
}

/// One row of `LOCK.WAITERS`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) owner: String,
    /// Version 0.1.0 does not tell it.
    pub(crate) kind: String,
    pub(crate) client: i64,
    pub(crate) waited: i64,
    pub(crate) patience: i64,
}

/// `LOCK.WAITERS`, oldest first.
fn queue(server: &Server, key: &str) -> Vec<Row> {
    rows(&server.cmd(["LOCK.WAITERS", key, "COUNT", "-1"]))
}

/// The owners who wait, oldest first.
pub(crate) fn owners(server: &Server, key: &str) -> Vec<String> {
    owners_of(queue(server, key))
}

/// The first of them, by a request that version 0.1.0 knows, too.
pub(crate) fn first_owners(server: &Server, key: &str) -> Vec<String> {
    owners_of(rows(&server.cmd(["LOCK.WAITERS", key])))
}

fn owners_of(rows: Vec<Row>) -> Vec<String> {
    rows.into_iter().map(|row| row.owner).collect()
}

#[track_caller]
pub(crate) fn rows(reply: &Value) -> Vec<Row> {
    let Value::Array(rows) = reply else { panic!("no list of waiters: {reply:?}") };
    let row = |row: &Value| {
        let number = |name| number(row, name);
        Row {
            owner: bulk_text(field(row, "owner").expect("an owner")),
            kind: field(row, "kind").map_or_else(String::new, bulk_text),
            client: number("client"),
            waited: number("waited"),
            patience: number("patience"),
        }
    };
    rows.iter().map(row).collect()
}

/// How many wait, for whatever lock: the server's gauge.
pub(crate) fn waiters(server: &Server) -> u64 {
    server.client().counter("waiters")
}

/// A server whose fences are the microseconds of its clock, and so tell when a grant was made.
fn exact() -> testkit::Setup {
    Server::builder().module_args("fence-margin 0")
}

/// The millisecond at which such a server made a grant.
pub(crate) fn granted_at(fence: u64) -> i64 {
    (fence / 1_000).try_into().unwrap()
}

/// Where the general `lacks` is too coarse: what Redis changed after Valkey was forked from it.
fn is_redis_since(server: &Server, version: (u32, u32)) -> bool {
    let text = server.client().info_field("server", "redis_version").unwrap();
    let parts: Vec<u32> = text.split('.').map(|part| part.parse().unwrap()).collect();
    !is_valkey(server) && (parts[0], parts[1]) >= version
}

fn is_valkey(server: &Server) -> bool {
    server.client().info_field("server", "valkey_version").is_some()
}

/// Whether `CLIENT UNBLOCK` ends the wait of a client of a module here: since Redis 7.4 and Valkey 8.0.
pub(crate) fn can_be_unblocked() -> bool {
    !is_older_than((7, 4))
}
