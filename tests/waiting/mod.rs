//! `LOCK.ACQUIRE … BLOCK` and `LOCK.WAITERS`: waiting in the server's queue, and being handed the lock.
//!
//! No test sleeps to be right. That a request is queued is asked of the server; when a grant was made is
//! read from its fence, which is the server's own clock where the margin is 0.

mod contexts;
mod crowds;
mod expiry;
mod freeing;
mod history;
mod keeping;
mod leaving;
mod limits;
mod pausing;
mod queueing;
mod replacing;
mod short_of_memory;
mod slots;
mod stopping;
mod stress;
mod talking;
mod unheard;

use crate::support::{Client, Server, eventually, field};
use redis::Value;

pub(crate) const LONG: u64 = 60_000;

/// A client whose request is in a queue.
pub(crate) struct Waiter {
    pub(crate) client: Client,
    pub(crate) id: i64,
}

/// One row of `LOCK.WAITERS`.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    owner: String,
    client: i64,
    waited: i64,
    patience: i64,
}

impl Waiter {
    /// Sends a request on a new connection, and returns when it is queued.
    pub(crate) fn sends(server: &Server, request: &str) -> Self {
        Self::sends_on(server.client(), server, request)
    }

    /// The same on a connection of the test's choice.
    pub(crate) fn sends_on(mut client: Client, server: &Server, request: &str) -> Self {
        let id = id_of(&mut client);
        client.send(request);
        wait_until_parked(server, id);
        Self { client, id }
    }

    /// Waits for the lock without limit.
    pub(crate) fn of(server: &Server, key: &str, owner: &str) -> Self {
        Self::sends(server, &format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0"))
    }

    /// What it is told in the end.
    pub(crate) fn reply(&mut self) -> Value {
        self.client.receive()
    }

    /// The fence of its grant, once that is made.
    #[track_caller]
    pub(crate) fn fence(&mut self) -> u64 {
        match self.reply() {
            Value::Int(fence) => fence.try_into().unwrap(),
            other => panic!("no fence: {other:?}"),
        }
    }

    /// Asserts that it is still queued.
    #[track_caller]
    pub(crate) fn assert_waits(&self, server: &Server) {
        assert!(is_parked(&mut server.client(), self.id), "it waits no longer");
    }
}

fn id_of(client: &mut Client) -> i64 {
    match client.cmd("CLIENT ID") {
        Value::Int(id) => id,
        other => panic!("CLIENT ID: {other:?}"),
    }
}

fn wait_until_parked(server: &Server, id: i64) {
    let mut observer = server.client();
    eventually("the request is queued", || {
        if is_parked(&mut observer, id) { Ok(()) } else { Err("it is not") }
    });
}

/// Whether the server lists this client as blocked.
fn is_parked(observer: &mut Client, id: i64) -> bool {
    let text = match observer.cmd(format!("CLIENT LIST ID {id}")) {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } => text,
        other => panic!("CLIENT LIST: {other:?}"),
    };
    let flags = text.split(' ').find_map(|field| field.strip_prefix("flags="));
    flags.is_some_and(|flags| flags.contains('b'))
}

/// `LOCK.WAITERS`, oldest first.
fn queue(server: &Server, key: &str) -> Vec<Row> {
    rows(&server.cmd(["LOCK.WAITERS", key]))
}

/// The owners who wait, oldest first.
pub(crate) fn owners(server: &Server, key: &str) -> Vec<String> {
    queue(server, key).into_iter().map(|row| row.owner).collect()
}

#[track_caller]
fn rows(reply: &Value) -> Vec<Row> {
    let Value::Array(rows) = reply else { panic!("no list of waiters: {reply:?}") };
    let row = |row: &Value| {
        let number = |name| match field(row, name) {
            Some(&Value::Int(number)) => number,
            other => panic!("{name} is {other:?}"),
        };
        let Some(Value::BulkString(owner)) = field(row, "owner") else {
            panic!("no owner: {row:?}")
        };
        let owner = String::from_utf8_lossy(owner).into_owned();
        Row {
            owner,
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
fn exact() -> crate::support::Setup {
    Server::builder().module_args("fence-margin 0")
}

/// The millisecond at which such a server made a grant.
fn granted_at(fence: u64) -> i64 {
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

/// Whether `CLIENT UNBLOCK` is safe for a client of a module here: since Redis 7.4, and on every Valkey.
pub(crate) fn can_be_unblocked(server: &Server) -> bool {
    is_valkey(server) || is_redis_since(server, (7, 4))
}
