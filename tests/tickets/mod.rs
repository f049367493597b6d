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

use redis::Value;
use testkit::{Client, Server, Setup, Words, eventually, field, lacks_notify};

const LONG: u64 = 60_000;

/// By how many milliseconds more than a lease has the server may say that are left of it: in a transaction it goes by when
/// that began, and the lease by when it was granted.
const ROUNDING: u64 = 1_000;

/// A server on which alice holds `k`, and a connection to it.
fn held() -> (Server, Client) {
    held_on(Server::builder())
}

fn held_on(setup: Setup) -> (Server, Client) {
    let server = setup.start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    (server, client)
}

/// A request for `k`, with a lease longer than any test.
fn by_ticket(owner: &str, lasts: u64) -> String {
    format!("LOCK.ACQUIRE k {owner} {LONG} TICKET {lasts}")
}

/// The fence, or nothing where the owner has a place in the queue.
#[track_caller]
fn asked(client: &mut Client, request: impl Words) -> Option<u64> {
    match client.cmd(request) {
        Value::Nil => None,
        Value::Int(fence) => Some(fence.try_into().unwrap()),
        other => panic!("neither a fence nor nil: {other:?}"),
    }
}

/// Takes a place in the queue of `k`.
#[track_caller]
fn queue_up(client: &mut Client, owner: &str) {
    assert_eq!(asked(client, by_ticket(owner, LONG)), None, "{owner} was granted it");
}

/// One row of `LOCK.WAITERS`.
#[derive(Debug)]
struct Row {
    owner: String,
    kind: String,
    client: i64,
    waited: i64,
    patience: i64,
}

/// Who waits for this lock, oldest first.
#[track_caller]
fn rows(client: &mut Client, key: &str) -> Vec<Row> {
    let reply = client.cmd(["LOCK.WAITERS", key, "COUNT", "-1"]);
    let Value::Array(rows) = &reply else { panic!("no list of waiters: {reply:?}") };
    let row = |row: &Value| {
        let number = |name| match field(row, name) {
            Some(&Value::Int(number)) => number,
            other => panic!("{name} is {other:?}"),
        };
        let text = |name| match field(row, name) {
            Some(Value::BulkString(text)) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{name} is {other:?}"),
        };
        Row {
            owner: text("owner"),
            kind: text("kind"),
            client: number("client"),
            waited: number("waited"),
            patience: number("patience"),
        }
    };
    rows.iter().map(row).collect()
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
    eventually("all tickets have ended", || match client.counter("tickets") {
        0 => Ok(()),
        left => Err(left),
    });
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

/// A connection that is subscribed to it, and one that marks how far it has to listen.
struct Subscriber {
    client: Client,
    publisher: Client,
    channel: Vec<u8>,
}

const THE_END: &[u8] = b"the-end";

impl Subscriber {
    fn on(server: &Server) -> Self {
        Self::to(server, CHANNEL)
    }

    fn to(server: &Server, channel: impl AsRef<[u8]>) -> Self {
        let mut client = server.client();
        let channel = channel.as_ref().to_vec();
        client.cmd([b"SUBSCRIBE", &channel[..]]);
        Self { client, publisher: server.client(), channel }
    }

    /// The next message.
    fn message(&mut self) -> Vec<u8> {
        message_in(&self.client.receive())
    }

    /// All messages since the last time.
    fn messages(&mut self) -> Vec<Vec<u8>> {
        self.publisher.cmd([b"PUBLISH", &self.channel[..], THE_END]);
        let messages = std::iter::repeat_with(|| message_in(&self.client.receive()));
        messages.take_while(|message| message != THE_END).collect()
    }
}

/// The text of a message, as RESP2 and RESP3 have it.
#[track_caller]
fn message_in(reply: &Value) -> Vec<u8> {
    let words = match reply {
        Value::Array(words) => &words[1..],
        Value::Push { data, .. } => &data[..],
        other => panic!("no message: {other:?}"),
    };
    match words.last() {
        Some(Value::BulkString(message)) => message.clone(),
        other => panic!("no message: {other:?}"),
    }
}

/// What is published of a grant.
fn notice(fence: u64, owner: &[u8], key: &[u8]) -> Vec<u8> {
    [format!("{fence} {} ", owner.len()).as_bytes(), owner, b" ", key].concat()
}
