//! `LOCK.ACQUIRE … TICKET`: places in the queue of a lock that no connection waits for, and what is published of their grants.
//!
//! A ticket that is to stay lasts for longer than any test, and one that is to end is asked about until it has. Where a place
//! must be renewed in time, a machine that stood still for too long has the test try once more.

mod asking;
mod claiming;
mod clocks;
mod contexts;
mod crowds;
mod ending;
mod giving_up;
mod limits;
mod mixing;
mod moving;
mod notifying;
mod owners;
mod permissions;
mod subscribers;
mod telling;

use crate::waiting::{LONG, Row, held, held_on};
use redis::Value;
use testkit::{Client, Server, becomes, eventually, lacks_notify};

/// A request for `k`, with a lease longer than any test.
fn by_ticket(owner: &str, lasts: u64) -> String {
    format!("LOCK.ACQUIRE k {owner} {LONG} TICKET {lasts}")
}

/// Takes a place in the queue of `k`.
#[track_caller]
fn queue_up(client: &mut Client, owner: &str) {
    assert_eq!(client.fence(by_ticket(owner, LONG)), None, "{owner} was granted it");
}

/// Who waits for this lock, oldest first.
#[track_caller]
fn rows(client: &mut Client, key: &str) -> Vec<Row> {
    crate::waiting::rows(&client.cmd(["LOCK.WAITERS", key, "COUNT", "-1"]))
}

/// The owners who wait for this lock, each with the way in which it waits, oldest first.
#[track_caller]
fn queue_of(client: &mut Client, key: &str) -> Vec<String> {
    rows(client, key).into_iter().map(|row| format!("{} {}", row.kind, row.owner)).collect()
}

/// The same for `k`.
#[track_caller]
fn queue(client: &mut Client) -> Vec<String> {
    queue_of(client, "k")
}

/// Waits until this owner holds `k`, and returns the fence.
#[track_caller]
fn until_held_by(client: &mut Client, owner: &str) -> u64 {
    eventually("it is its turn", || match client.info("k") {
        Some(info) if info.owner == owner.as_bytes() => Ok(info.fence),
        other => Err(other),
    })
}

/// Waits until nobody waits by a ticket, for whatever lock.
fn until_no_tickets(client: &mut Client) {
    becomes("all tickets have ended", 0, || client.counter("tickets"));
}

/// What is left of the lease of `k`, in milliseconds.
#[track_caller]
fn left(client: &mut Client) -> u64 {
    match client.cmd("PTTL k") {
        Value::Int(left @ 0..) => left.unsigned_abs(),
        other => panic!("PTTL: {other:?}"),
    }
}

/// The channel of these tests.
const CHANNEL: &str = "grants";

/// A connection that is subscribed to a channel.
fn subscribed(server: &Server, channel: &[u8]) -> Client {
    let mut client = server.client();
    client.cmd([b"SUBSCRIBE", channel]);
    client
}

/// The next message that it is sent.
#[track_caller]
fn message(client: &mut Client) -> Vec<u8> {
    match client.receive() {
        Value::Array(words) => match words.last() {
            Some(Value::BulkString(message)) => message.clone(),
            other => panic!("no message: {other:?}"),
        },
        other => panic!("no message: {other:?}"),
    }
}

/// What is published of a grant.
fn notice(fence: u64, owner: &[u8], key: &[u8]) -> Vec<u8> {
    [format!("{fence} {} ", owner.len()).as_bytes(), owner, b" ", key].concat()
}
