//! Key events: which are published for a lock, in which order, and for whom.

use super::{NEWS, telling};
use crate::waiting::LONG;
use redis::Value;
use testkit::{Client, Server, Waiter, start_pair, wait_until_in_sync};

/// Hears every key event.
pub(crate) struct Listener {
    client: Client,
    publisher: Client,
}

const THE_END: &str = "the-end";

impl Listener {
    pub(crate) fn on(server: &Server) -> Self {
        let mut client = server.client();
        for subscription in ["PSUBSCRIBE __key*__:*".to_owned(), format!("SUBSCRIBE {THE_END}")] {
            client.cmd(subscription);
        }
        Self { client, publisher: server.client() }
    }

    /// Channel and text of each message since the last time.
    fn messages(&mut self) -> Vec<(String, String)> {
        self.publisher.cmd(format!("PUBLISH {THE_END} x"));
        let mut messages = Vec::new();
        loop {
            let message = testkit::strings(&self.client.receive());
            let [.., channel, text] = &message[..] else { panic!("{message:?}") };
            if channel == THE_END {
                return messages;
            }
            messages.push((channel.clone(), text.clone()));
        }
    }

    /// What happened since the last time: `event` for `k` in database 0, else `event@database key`. Each is
    /// published twice, in the channel of the key and then in that of the event.
    #[track_caller]
    pub(crate) fn heard(&mut self) -> Vec<String> {
        let messages = self.messages();
        let (pairs, rest) = messages.as_chunks::<2>();
        assert!(rest.is_empty(), "{messages:?}");
        let event = |[of_key, of_event]: &[(String, String); 2]| {
            let ((channel, event), (other, key)) = (of_key, of_event);
            let db = channel.strip_prefix("__keyspace@").and_then(|rest| rest.split_once("__:"));
            let (db, named) = db.unwrap_or_else(|| panic!("{messages:?}"));
            assert_eq!((named, &**other), (&**key, &*format!("__keyevent@{db}__:{event}")));
            if db == "0" && key == "k" { event.clone() } else { format!("{event}@{db} {key}") }
        };
        pairs.iter().map(event).collect()
    }

    /// The same on one line, without what the server tells at times of its own, or only if it is new: `released del(x)`.
    pub(super) fn heard_of_locks(&mut self) -> String {
        let mut words = Vec::new();
        for event in self.heard() {
            let (name, key) = event.split_once("@0 ").unwrap_or((&event, ""));
            let name = name.strip_prefix("lock.").unwrap_or(name);
            if !NEWS.contains(&name) {
                words.push(if key.is_empty() { name.to_owned() } else { format!("{name}({key})") });
            }
        }
        if words.is_empty() { "-".to_owned() } else { words.join(" ") }
    }
}

#[test]
fn each_is_published_for_the_database_of_the_lock() {
    let server = telling().start();
    let (mut client, mut listener) = (server.client(), Listener::on(&server));
    let mut waiting = server.client();
    for client in [&mut client, &mut waiting] {
        client.cmd("SELECT 7");
    }
    client.grant("k", "alice", LONG);
    assert_eq!(listener.heard(), ["lock.acquired@7 k"]);
    let mut bob = Waiter::sends_on(waiting, &server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    assert!(client.extend("k", "alice", 30));
    bob.fence();
    let expected = ["lock.extended@7 k", "expired@7 k", "lock.lost@7 k", "lock.handed-off@7 k"];
    assert_eq!(listener.heard(), expected);
    assert!(client.release("k", "bob"));
    assert_eq!(listener.heard(), ["lock.released@7 k"]);
}

#[test]
fn names_are_published_as_they_are() {
    let server = telling().start();
    let (mut client, mut listener) = (server.client(), Listener::on(&server));
    let key = "a key\0with\r\neverything";
    client.grant(key, "alice", LONG);
    assert_eq!(listener.heard(), [format!("lock.acquired@0 {key}")]);
}

/// A grant, an extension, a hand-off at the end of a lease, and a release.
fn live(server: &Server) {
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(server, "k", "bob");
    assert!(client.extend("k", "alice", 50));
    bob.fence();
    assert!(client.release("k", "bob"));
}

#[test]
fn only_who_asks_for_events_of_modules_hears_of_locks() {
    for (classes, of_ours) in
        [("", 0), ("KEg$lshzxet", 0), ("d", 0), ("KEd", 10), ("Kd", 5), ("Ed", 5), ("EA", 5)]
    {
        let server = Server::builder().config("notify-keyspace-events", &format!("{classes:?}"));
        let server = server.start();
        let mut listener = Listener::on(&server);
        live(&server);
        let messages = listener.messages();
        let ours = messages
            .iter()
            .filter(|(channel, text)| channel.contains("lock.") || text.contains("lock."));
        assert_eq!(ours.count(), of_ours, "{classes}: {messages:?}");
    }
}

#[test]
fn a_replica_publishes_what_it_applies_and_nothing_of_ours() {
    let (primary, replica) = start_pair(telling(), telling());
    let mut listener = Listener::on(&replica);
    live(&primary);
    wait_until_in_sync(&primary, &replica);
    let heard = listener.heard();
    assert!(!heard.iter().any(|event| event.starts_with("lock.")), "{heard:?}");
    for event in ["set", "expire", "del"] {
        assert!(heard.iter().any(|name| name == event), "no {event}: {heard:?}");
    }
    // When it is the one that decides, it publishes.
    replica.promote();
    replica.client().grant("k", "alice", LONG);
    assert_eq!(listener.heard(), ["lock.acquired"]);
}

#[test]
fn other_modules_hear_of_locks_whatever_is_published() {
    let server = Server::builder().with_caller().start();
    let mut client = server.client();
    live(&server);
    let reply = client.cmd("CALLER.CALL LOCK.ACQUIRE other alice 60000");
    assert!(matches!(reply, Value::Int(_)), "{reply:?}");
    let heard = client.cmd("CALLER.HEARD");
    let Value::BulkString(heard) = heard else { panic!("{heard:?}") };
    let expected = "lock.acquired k\nlock.extended k\nlock.lost k\nlock.handed-off k\n\
                    lock.released k\nlock.acquired other\n";
    assert_eq!(String::from_utf8_lossy(&heard), expected);
}
