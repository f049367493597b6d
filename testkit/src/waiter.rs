//! A client that waits in a queue.

use super::{Client, Server, bulk_text, eventually};
use redis::Value;

/// Longer than any test.
const LONG: u64 = 60_000;

/// A client that waits for a lock.
pub struct Waiter {
    /// The connection on which the reply comes.
    pub client: Client,
    /// The `CLIENT ID` of the connection.
    pub id: i64,
}

impl Waiter {
    /// Sends a request on a new connection, and returns when it is queued.
    pub fn sends(server: &Server, request: &str) -> Self {
        Self::sends_on(server.client(), server, request)
    }

    /// Sends a request on this connection, and returns when it is queued.
    pub fn sends_on(mut client: Client, server: &Server, request: &str) -> Self {
        let id = id_of(&mut client);
        client.send(request);
        wait_until_parked(server, id);
        Self { client, id }
    }

    /// Waits for the lock without limit.
    pub fn of(server: &Server, key: &str, owner: &str) -> Self {
        Self::sends(server, &format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0"))
    }

    /// The reply that ends the wait.
    pub fn reply(&mut self) -> Value {
        self.client.receive()
    }

    /// Waits for its grant, and returns the fence.
    #[track_caller]
    pub fn fence(&mut self) -> u64 {
        match self.reply() {
            Value::Int(fence) => fence.try_into().unwrap(),
            other => panic!("no fence: {other:?}"),
        }
    }

    /// Asserts that this waiter is still queued.
    #[track_caller]
    pub fn assert_waits(&self, server: &Server) {
        assert!(is_parked(&mut server.client(), self.id), "it waits no longer");
    }
}

/// The `CLIENT ID` of a connection.
pub fn id_of(client: &mut Client) -> i64 {
    match client.cmd("CLIENT ID") {
        Value::Int(id) => id,
        other => panic!("CLIENT ID: {other:?}"),
    }
}

/// Waits until the server lists this client as blocked.
pub fn wait_until_parked(server: &Server, id: i64) {
    let mut observer = server.client();
    eventually("the request is queued", || {
        if is_parked(&mut observer, id) { Ok(()) } else { Err("it is not") }
    });
}

/// Whether the server lists this client as blocked.
pub fn is_parked(observer: &mut Client, id: i64) -> bool {
    let text = bulk_text(&observer.cmd(format!("CLIENT LIST ID {id}")));
    let flags = text.split(' ').find_map(|field| field.strip_prefix("flags="));
    flags.is_some_and(|flags| flags.contains('b'))
}
