//! Commands that only the holder of a lock can run: `LOCK.GUARD key owner fence command [arg …]`.

mod against_bare;
mod calling;
mod cluster;
mod hostile;
mod keys;
mod observing;
mod refusing;
mod replying;
mod rights;
mod telling;
mod waiting;

use redis::Value;
use testkit::{Client, Server};

const LONG: u64 = 60_000;
const NOT_HOLDER: &str =
    "NOTHOLDER this owner does not hold the lock by this fence, nothing was run";
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A server whose lock `the-lock` is alice's, by this fence.
fn held() -> (Server, Client, u64) {
    held_on(Server::start())
}

fn held_on(server: Server) -> (Server, Client, u64) {
    let mut client = server.client();
    let fence = client.grant("the-lock", "alice", LONG);
    (server, client, fence)
}

/// The request that guards this command by alice's hold.
fn guarded(fence: u64, command: &str) -> String {
    format!("LOCK.GUARD the-lock alice {fence} {command}")
}

/// The number that a reply is.
#[track_caller]
fn number(reply: &Value) -> u64 {
    match reply {
        Value::Int(number) => (*number).try_into().unwrap(),
        other => panic!("no number: {other:?}"),
    }
}
