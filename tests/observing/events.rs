//! Key events: which are published for a lock, in which order, and for whom.

use super::{Figures, evict, let_run_out};
use crate::waiting::LONG;
use redis::Value;
use testkit::{Client, Server, Setup, Waiter, eventually, int, start_pair, wait_until_in_sync};

/// A server that publishes all events there are, but those of misses.
fn telling() -> Setup {
    Server::builder().config("notify-keyspace-events", "KEA")
}

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

    /// The same without `expired`, where a key whose lease is over goes to somebody else: within that very millisecond
    /// the key has not expired by the server's clock, and the server does not publish that.
    #[track_caller]
    pub(crate) fn heard_but_expired(&mut self) -> Vec<String> {
        let mut heard = self.heard();
        heard.retain(|event| event != "expired");
        heard
    }

    /// The same once this has happened, at whatever time the server does it.
    #[track_caller]
    fn heard_until(&mut self, event: &str) -> Vec<String> {
        let mut heard = Vec::new();
        eventually("it is published", || {
            heard.extend(self.heard());
            if heard.iter().any(|name| name == event) { Ok(()) } else { Err(heard.clone()) }
        });
        heard
    }
}

/// Such a server, a connection to it, and one that listens.
fn started() -> (Server, Client, Listener) {
    let server = telling().start();
    let (client, listener) = (server.client(), Listener::on(&server));
    (server, client, listener)
}

/// The same, and alice holds `k`, of which it is no longer to be spoken.
fn held() -> (Server, Client, Listener) {
    let (server, mut client, mut listener) = started();
    client.grant("k", "alice", LONG);
    assert_eq!(listener.heard(), ["lock.acquired"]);
    (server, client, listener)
}

#[test]
fn a_grant_its_new_ends_and_its_release_are_published() {
    let (_server, mut client, mut listener) = held();
    client.grant("k", "alice", 2 * LONG);
    assert_eq!(listener.heard(), ["lock.extended"], "a retry that moves the end");
    assert!(client.extend("k", "alice", 3 * LONG));
    assert!(client.extend("k", "alice", LONG));
    assert_eq!(listener.heard(), ["lock.extended", "lock.extended"]);
    assert!(client.release("k", "alice"));
    assert_eq!(listener.heard(), ["lock.released"]);
}

#[test]
fn what_changes_nothing_is_not_published() {
    let (server, mut client, mut listener) = held();
    client.cmd("RPUSH list x");
    listener.heard();
    let bob = Waiter::of(&server, "k", "bob");
    for request in [
        "LOCK.ACQUIRE k alice 1",
        "LOCK.ACQUIRE k alice 1 BLOCK 0",
        "LOCK.ACQUIRE k carol 60000",
        "LOCK.ACQUIRE k carol 60000 BLOCK 20",
        "LOCK.RELEASE k carol",
        "LOCK.RELEASE k alice 1",
        "LOCK.EXTEND k carol 60000",
        "LOCK.RELEASE free carol",
        "LOCK.EXTEND free carol 60000",
        "LOCK.CHECK k alice",
        "LOCK.INFO k",
        "LOCK.WAITERS k",
        "LOCK.ACQUIRE k carol 0",
        "LOCK.ACQUIRE list carol 60000",
    ] {
        client.cmd(request);
        assert_eq!(listener.heard(), [""; 0], "{request}");
    }
    client.cmd(format!("CLIENT KILL ID {}", bob.id));
    assert_eq!(listener.heard(), [""; 0]);
}

#[test]
fn a_hand_off_is_published_after_the_release_that_made_it_possible() {
    let (server, mut client, mut listener) = held();
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    assert!(client.release("k", "alice"));
    bob.fence();
    assert_eq!(listener.heard(), ["lock.released", "lock.handed-off"]);
    assert!(client.release("k", "bob"));
    carol.fence();
    assert!(client.release("k", "carol"));
    assert_eq!(listener.heard(), ["lock.released", "lock.handed-off", "lock.released"]);
}

#[test]
fn the_end_of_a_lease_that_is_waited_for_is_a_loss_and_then_a_hand_off() {
    let (server, mut client, mut listener) = held();
    let mut bob = Waiter::of(&server, "k", "bob");
    assert!(client.extend("k", "alice", 30));
    bob.fence();
    let heard = listener.heard_but_expired();
    assert_eq!(heard, ["lock.extended", "lock.lost", "lock.handed-off"]);
    // Bob has not lost it, and of alice it is known.
    assert!(!client.release("k", "alice"));
    assert!(!client.extend("k", "alice", LONG));
    assert_eq!(listener.heard(), [""; 0]);
    assert!(client.release("k", "bob"));
    assert_eq!(listener.heard(), ["lock.released"]);
}

#[test]
fn the_end_of_a_lease_that_nobody_waited_for_is_a_loss_when_its_holder_comes_back() {
    for request in ["LOCK.RELEASE k alice", "LOCK.EXTEND k alice 60000"] {
        let (_server, mut client, mut listener) = held();
        assert!(client.extend("k", "alice", 5));
        let_run_out(&mut client, "k");
        assert_eq!(listener.heard_until("expired"), ["lock.extended", "expired"]);
        for heard in [&["lock.lost"][..], &[]] {
            assert_eq!(client.cmd(request), int(0));
            assert_eq!(listener.heard(), heard, "{request}: it is told once");
        }
    }
}

#[test]
fn a_deletion_by_hand_is_published_before_what_the_module_makes_of_it() {
    let (server, mut client, mut listener) = held();
    let mut bob = Waiter::of(&server, "k", "bob");
    client.cmd("DEL k");
    bob.fence();
    assert_eq!(listener.heard(), ["del", "lock.lost", "lock.handed-off"]);
    client.cmd("UNLINK k");
    assert_eq!(listener.heard(), ["del"], "nobody has noticed");
    client.grant("k", "carol", LONG);
    assert_eq!(listener.heard(), ["lock.lost", "lock.acquired"]);
    assert!(!client.release("k", "bob"));
    assert_eq!(listener.heard(), [""; 0]);
    client.cmd("DEL k");
    assert!(!client.extend("k", "carol", LONG));
    assert_eq!(listener.heard(), ["del", "lock.lost"]);
}

#[test]
fn a_lock_that_is_overwritten_is_lost_after_that() {
    let (server, mut client, mut listener) = held();
    let bob = Waiter::of(&server, "k", "bob");
    client.cmd("SET k stranger");
    let heard = listener.heard_until("lock.lost");
    assert_eq!(kinds(&heard), ["set", "lock.lost"], "{heard:?}");
    bob.assert_waits(&server);
    assert!(!client.release("k", "alice"));
    assert_eq!(listener.heard(), [""; 0]);
}

/// Without what newer servers have to say besides: that a value took the place of another.
fn kinds(heard: &[String]) -> Vec<&str> {
    let news = ["new", "overwritten", "type_changed"];
    heard.iter().map(String::as_str).filter(|event| !news.contains(event)).collect()
}

#[test]
fn an_old_clients_lock_is_released_extended_and_handed_on_like_any_and_never_lost_by_its_deletion()
{
    let (server, mut client, mut listener) = started();
    client.cmd("SET k uuid NX PX 60000");
    listener.heard();
    assert!(client.extend("k", "uuid", LONG));
    assert_eq!(client.acquire("k", "uuid", 2 * LONG), Some(0));
    assert!(client.release("k", "uuid"));
    assert_eq!(listener.heard(), ["lock.extended", "lock.extended", "lock.released"]);
    client.cmd("SET k uuid NX PX 60000");
    listener.heard();
    let mut bob = Waiter::of(&server, "k", "bob");
    client.cmd("DEL k");
    bob.fence();
    assert_eq!(listener.heard(), ["del", "lock.handed-off"]);
}

#[test]
fn a_grant_that_is_taken_back_is_released_and_goes_on() {
    let (server, mut client, mut listener) = held();
    let bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    client.pipeline(&["LOCK.RELEASE k alice", &format!("CLIENT KILL ID {}", bob.id)]);
    carol.fence();
    let twice = ["lock.released", "lock.handed-off"].repeat(2);
    assert_eq!(listener.heard(), twice);
}

#[test]
fn an_evicted_lock_that_is_put_back_is_not_lost() {
    let server = telling().config("maxmemory-policy", "volatile-lru").start();
    let (mut client, mut listener) = (server.client(), Listener::on(&server));
    client.grant("k", "alice", LONG);
    let _bob = Waiter::of(&server, "k", "bob");
    let times = evict(&mut client, &mut Figures::of(&server));
    let heard = listener.heard();
    let of_locks: Vec<_> = heard.iter().filter(|event| event.starts_with("lock.")).collect();
    assert_eq!(of_locks, ["lock.acquired"], "{heard:?}");
    let evicted = heard.iter().filter(|event| *event == "evicted").count();
    assert_eq!(evicted, usize::try_from(times).unwrap());
}

#[test]
fn in_a_transaction_and_in_a_script_each_is_published_in_its_turn() {
    let script = "redis.call('SET', 'a', 1)
        redis.call('LOCK.RELEASE', 'k', 'alice')
        redis.call('SET', 'b', 1)
        redis.call('LOCK.ACQUIRE', 'c', 'alice', 60000)";
    for in_script in [false, true] {
        let (server, mut client, mut listener) = held();
        let mut bob = Waiter::of(&server, "k", "bob");
        if in_script {
            client.cmd(["EVAL", script, "0"]);
        } else {
            let (release, acquire) = ("LOCK.RELEASE k alice", "LOCK.ACQUIRE c alice 60000");
            client.transaction(&["SET a 1", release, "SET b 1", acquire]);
        }
        bob.fence();
        let heard = listener.heard();
        let expected =
            ["set@0 a", "lock.released", "lock.handed-off", "set@0 b", "lock.acquired@0 c"];
        assert_eq!(heard, expected);
    }
}

#[test]
fn each_is_published_for_the_database_of_the_lock() {
    let (server, mut client, mut listener) = started();
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
    let (_server, mut client, mut listener) = started();
    let key = "a key\0with\r\neverything";
    client.grant(key, "alice", LONG);
    assert_eq!(listener.heard(), [format!("lock.acquired@0 {key}")]);
}

/// A grant, a try, a hand-off at the end of a lease, and a release; and a plain SET and DEL.
fn live(server: &Server) {
    let mut client = server.client();
    client.grant("k", "alice", 50);
    client.grant("k", "alice", 60);
    Waiter::of(server, "k", "bob").fence();
    assert!(client.release("k", "bob"));
    client.cmd("SET plain 1");
    client.cmd("DEL plain");
}

#[test]
fn only_who_asks_for_events_of_modules_hears_of_locks() {
    let ours = |messages: &[(String, String)]| {
        messages
            .iter()
            .filter(|(channel, text)| format!("{channel}{text}").contains("lock."))
            .count()
    };
    for (classes, of_ours, of_plain) in [
        ("", 0, 0),
        ("KEg$lshzxet", 0, 4),
        ("d", 0, 0),
        ("KEd", 10, 0),
        ("Kd", 5, 0),
        ("Ed", 5, 0),
        ("EA", 5, 2),
    ] {
        let server = Server::builder().config("notify-keyspace-events", &format!("{classes:?}"));
        let server = server.start();
        let mut listener = Listener::on(&server);
        live(&server);
        let messages = listener.messages();
        assert_eq!(ours(&messages), of_ours, "{classes}: {messages:?}");
        let plain = |(channel, text): &&(String, String)| {
            let words = format!("{channel} {text}");
            words.contains("plain") && (words.contains("set") || words.contains("del"))
        };
        assert_eq!(messages.iter().filter(plain).count(), of_plain, "{classes}: {messages:?}");
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
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
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
