//! `CLIENT TRACKING`: who has looked at a lock, and keeps what it saw, is told when that is no longer true.
//!
//! That nothing is sent is seen without waiting: what the server tells a client of a command of another's, it
//! has written by the time that command is answered, and so before its answer to whatever the first asks next.

use crate::waiting::owners;
use redis::{PushKind, Value};
use testkit::{Client, Server, Waiter, bulk, eventually, int, start_pair, wait_until_in_sync};

const LONG: u64 = 60_000;

/// How a lock is looked at. What CHECK asks is whether alice holds it.
const LOOKS: [&str; 3] = ["LOCK.INFO k", "LOCK.CHECK k alice", "LOCK.WAITERS k"];

/// A connection in RESP3 that keeps what it reads, until it is told otherwise.
struct Cache {
    client: Client,
    told: Vec<Value>,
}

impl Cache {
    fn tracking(server: &Server, options: &str) -> Self {
        let mut client = server.client_resp3();
        assert_eq!(client.cmd(format!("CLIENT TRACKING ON{options}")), Value::Okay);
        Self { client, told: Vec::new() }
    }

    /// One command, whatever the server has to say besides.
    fn cmd(&mut self, command: &str) -> Value {
        self.client.send(command);
        loop {
            match self.client.receive() {
                Value::Push { kind, data } => self.hears(kind, data),
                reply => return reply,
            }
        }
    }

    /// Two commands in one packet, so that no time passes between them.
    fn looks_right_behind(&mut self, command: &str, look: &str) {
        self.client.pipeline(&[command, look]);
    }

    fn hears(&mut self, kind: PushKind, mut data: Vec<Value>) {
        assert_eq!((kind, data.len()), (PushKind::Invalidate, 1), "{data:?}");
        self.told.extend(data.pop());
    }

    /// Waits until it is told that something is no longer true: that.
    fn is_told(&mut self) -> Value {
        while self.told.is_empty() {
            match self.client.receive() {
                Value::Push { kind, data } => self.hears(kind, data),
                other => panic!("{other:?}"),
            }
        }
        self.told.remove(0)
    }

    #[track_caller]
    fn assert_told_of(&mut self, key: &str) {
        assert_eq!(self.is_told(), Value::Array(vec![bulk(key)]));
    }

    #[track_caller]
    fn assert_told_nothing(&mut self) {
        self.cmd("PING");
        assert_eq!(self.told, []);
    }
}

/// For each way to look at the lock `k`, which alice holds: somebody who has looked in that way, and is told once
/// what `change` does.
fn assert_told(change: impl Fn(&Server, &mut Client)) {
    for look in LOOKS {
        let server = Server::start();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let mut cache = Cache::tracking(&server, "");
        cache.cmd(look);
        change(&server, &mut client);
        cache.assert_told_of("k");
        cache.assert_told_nothing();
        client.cmd("SET k by-hand");
        cache.assert_told_nothing();
    }
}

#[test]
fn a_release_is_told() {
    assert_told(|_, client| assert!(client.release("k", "alice")));
}

#[test]
fn a_hand_off_at_a_release_is_told() {
    assert_told(|server, client| {
        let mut bob = Waiter::of(server, "k", "bob");
        assert!(client.release("k", "alice"));
        bob.fence();
    });
}

#[test]
fn a_hand_off_at_the_end_of_a_lease_is_told() {
    for look in LOOKS {
        let server = Server::start();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        let mut cache = Cache::tracking(&server, "");
        cache.looks_right_behind("LOCK.EXTEND k alice 100", look);
        cache.assert_told_of("k");
        bob.fence();
        cache.assert_told_nothing();
        // What it is told comes no sooner than the truth of it.
        assert_eq!(cache.cmd("LOCK.CHECK k alice"), Value::Nil);
    }
}

#[test]
fn the_end_of_a_lease_that_nobody_waits_for_is_told_too() {
    let server = Server::start();
    let mut cache = Cache::tracking(&server, "");
    cache.looks_right_behind("LOCK.ACQUIRE k alice 100", "LOCK.INFO k");
    cache.assert_told_of("k");
    assert_eq!(server.client().info("k"), None);
}

#[test]
fn a_new_end_of_the_lease_is_told() {
    assert_told(|_, client| assert!(client.extend("k", "alice", 2 * LONG)));
    assert_told(|_, client| assert!(client.extend("k", "alice", LONG / 2)));
    assert_told(|_, client| assert!(client.acquire("k", "alice", 2 * LONG).is_some()));
}

#[test]
fn a_deletion_by_hand_is_told_and_so_is_the_hand_off_that_comes_of_it() {
    assert_told(|_, client| assert_eq!(client.cmd("DEL k"), int(1)));
    assert_told(|server, client| {
        let mut bob = Waiter::of(server, "k", "bob");
        assert_eq!(client.cmd("DEL k"), int(1));
        bob.fence();
    });
}

#[test]
fn a_flush_tells_that_nothing_is_true_any_more() {
    for flush in ["FLUSHALL", "FLUSHDB"] {
        let server = Server::start();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        let mut cache = Cache::tracking(&server, "");
        cache.cmd("LOCK.INFO k");
        client.cmd(flush);
        assert_eq!(cache.is_told(), Value::Nil, "{flush}");
        bob.fence();
        assert_eq!(cache.cmd("LOCK.CHECK k alice"), Value::Nil);
    }
}

#[test]
fn a_grant_of_a_free_lock_is_told() {
    for look in LOOKS {
        let server = Server::start();
        let mut cache = Cache::tracking(&server, "");
        cache.cmd(look);
        server.client().grant("k", "alice", LONG);
        cache.assert_told_of("k");
        cache.assert_told_nothing();
    }
}

#[test]
fn what_changes_nothing_is_not_told() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let mut cache = Cache::tracking(&server, "");
    LOOKS.iter().for_each(|look| drop(cache.cmd(look)));
    for (command, reply) in [
        ("LOCK.ACQUIRE k bob 60000", Value::Nil),
        ("LOCK.ACQUIRE k bob 60000 BLOCK 1", Value::Nil),
        ("LOCK.ACQUIRE k alice 1", int(fence)),
        ("LOCK.ACQUIRE k alice 1 BLOCK 1", int(fence)),
        ("LOCK.RELEASE k bob", int(0)),
        ("LOCK.RELEASE k alice 1", int(0)),
        ("LOCK.EXTEND k bob 60000", int(0)),
        ("LOCK.EXTEND k alice 60000 1", int(0)),
        ("LOCK.CHECK k bob", Value::Nil),
    ] {
        assert_eq!(client.cmd(command), reply, "{command}");
        cache.assert_told_nothing();
    }
    client.grant("other", "alice", LONG);
    cache.assert_told_nothing();
    client.release("k", "alice");
    cache.assert_told_of("k");
}

/// Who waits is not kept in the key: tracking is no help to a list of them, nor to their number in LOCK.INFO.
#[test]
fn who_comes_and_goes_in_the_queue_is_not_told() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut cache = Cache::tracking(&server, "");
    cache.cmd("LOCK.WAITERS k");
    cache.cmd("LOCK.INFO k");
    let mut bob = Waiter::of(&server, "k", "bob");
    let carol = Waiter::of(&server, "k", "carol");
    cache.assert_told_nothing();
    drop(carol);
    eventually("she leaves the queue", || match owners(&server, "k") {
        owners if owners == ["bob"] => Ok(()),
        owners => Err(owners),
    });
    cache.assert_told_nothing();
    client.release("k", "alice");
    bob.fence();
    cache.assert_told_of("k");
}

/// As with every command that writes: whoever asks has no copy to keep.
#[test]
fn who_only_asks_for_the_lock_has_not_looked_at_it() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut cache = Cache::tracking(&server, "");
    assert_eq!(cache.cmd("LOCK.ACQUIRE k bob 60000"), Value::Nil);
    assert_eq!(cache.cmd("LOCK.RELEASE k bob"), int(0));
    client.release("k", "alice");
    cache.assert_told_nothing();
}

#[test]
fn who_looks_in_a_script_or_a_transaction_is_told() {
    let server = Server::start();
    let mut client = server.client();
    for script in ["EVAL return{redis.call('LOCK.CHECK',KEYS[1],'alice')} 1 k", "EXEC"] {
        client.grant("k", "alice", LONG);
        let mut cache = Cache::tracking(&server, "");
        if script == "EXEC" {
            cache.cmd("MULTI");
            cache.cmd("LOCK.CHECK k alice");
        }
        cache.cmd(script);
        client.release("k", "alice");
        cache.assert_told_of("k");
    }
}

/// A client may wait for a lock, and be told of it, on one connection.
#[test]
fn who_waits_and_keeps_what_it_saw_is_told_both() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Cache::tracking(&server, "");
    bob.cmd("LOCK.INFO k");
    bob.client.send("LOCK.ACQUIRE k bob 60000 BLOCK 0");
    eventually("bob waits", || match owners(&server, "k") {
        owners if owners == ["bob"] => Ok(()),
        owners => Err(owners),
    });
    client.release("k", "alice");
    let fence = loop {
        match bob.client.receive() {
            Value::Push { kind, data } => bob.hears(kind, data),
            Value::Int(fence) => break fence,
            other => panic!("{other:?}"),
        }
    };
    bob.assert_told_of("k");
    bob.assert_told_nothing();
    assert_eq!(bob.cmd("LOCK.CHECK k bob"), int(fence));
}

#[test]
fn who_asked_for_a_prefix_is_told_of_every_lock_below_it() {
    let server = Server::start();
    let mut client = server.client();
    let mut cache = Cache::tracking(&server, " BCAST PREFIX lock: PREFIX key:");
    client.grant("other", "alice", LONG);
    client.release("other", "alice");
    cache.assert_told_nothing();
    client.grant("lock:a", "alice", LONG);
    cache.assert_told_of("lock:a");
    assert_eq!(client.acquire("lock:a", "bob", LONG), None);
    cache.assert_told_nothing();
    let mut bob = Waiter::of(&server, "lock:a", "bob");
    let mut carol = Waiter::of(&server, "lock:a", "carol");
    cache.assert_told_nothing();
    client.release("lock:a", "alice");
    bob.fence();
    cache.assert_told_of("lock:a");
    client.extend("lock:a", "bob", 20);
    cache.assert_told_of("lock:a");
    carol.fence();
    cache.assert_told_of("lock:a");
    // The server may have removed the old lock in a step of its own, which is told too.
    cache.cmd("PING");
    cache.told.clear();
    client.cmd("DEL lock:a");
    cache.assert_told_of("lock:a");
    client.grant("key:b", "alice", LONG);
    cache.assert_told_of("key:b");
    cache.assert_told_nothing();
}

#[test]
fn who_wants_to_hear_nothing_of_its_own_doing_does_not() {
    let server = Server::start();
    let mut client = server.client();
    for (options, hears_itself) in [("", true), (" NOLOOP", false)] {
        let mut cache = Cache::tracking(&server, options);
        for own in
            ["LOCK.ACQUIRE k alice 60000", "LOCK.EXTEND k alice 60000", "LOCK.RELEASE k alice"]
        {
            cache.cmd("LOCK.INFO k");
            cache.cmd(own);
            if hears_itself {
                cache.assert_told_of("k");
            }
            cache.assert_told_nothing();
        }
        // What others do, and what becomes of it, it hears all the same.
        cache.cmd("LOCK.ACQUIRE k alice 60000");
        cache.cmd("PING");
        cache.told.clear();
        cache.cmd("LOCK.CHECK k alice");
        let mut bob = Waiter::of(&server, "k", "bob");
        client.cmd("DEL k");
        bob.fence();
        cache.assert_told_of("k");
        client.release("k", "bob");
    }
}

#[test]
fn who_releases_a_lock_and_wants_to_hear_nothing_of_its_own_doing_is_not_told_of_the_hand_off() {
    let server = Server::start();
    for (options, hears_itself) in [("", true), (" NOLOOP", false)] {
        let mut cache = Cache::tracking(&server, options);
        cache.cmd("LOCK.ACQUIRE k alice 60000");
        let mut bob = Waiter::of(&server, "k", "bob");
        cache.cmd("PING");
        cache.told.clear();
        cache.cmd("LOCK.INFO k");
        cache.cmd("LOCK.RELEASE k alice");
        let fence = bob.fence();
        if hears_itself {
            cache.assert_told_of("k");
        }
        cache.assert_told_nothing();
        assert_eq!(server.client().check("k", "bob"), Some(fence));
        server.client().release("k", "bob");
    }
}

#[test]
fn who_says_what_it_keeps_is_told_of_that_alone() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    client.grant("other", "alice", LONG);
    let mut cache = Cache::tracking(&server, " OPTIN");
    cache.cmd("CLIENT CACHING YES");
    cache.cmd("LOCK.INFO k");
    cache.cmd("LOCK.INFO other");
    client.release("other", "alice");
    cache.assert_told_nothing();
    client.release("k", "alice");
    cache.assert_told_of("k");

    client.grant("k", "alice", LONG);
    client.grant("other", "alice", LONG);
    let mut cache = Cache::tracking(&server, " OPTOUT");
    cache.cmd("CLIENT CACHING NO");
    cache.cmd("LOCK.CHECK k alice");
    cache.cmd("LOCK.CHECK other alice");
    client.release("k", "alice");
    cache.assert_told_nothing();
    client.release("other", "alice");
    cache.assert_told_of("other");
}

#[test]
fn a_client_of_resp2_is_told_on_another_connection() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut listener = server.client();
    let Value::Int(id) = listener.cmd("CLIENT ID") else { panic!("no id") };
    listener.cmd("SUBSCRIBE __redis__:invalidate");
    let mut reader = server.client();
    assert_eq!(reader.cmd(format!("CLIENT TRACKING ON REDIRECT {id}")), Value::Okay);
    assert_eq!(reader.acquire("k", "bob", LONG), None);
    reader.info("k").unwrap();
    let mut bob = Waiter::of(&server, "k", "bob");
    client.release("k", "alice");
    bob.fence();
    let told = Value::Array(vec![
        bulk("message"),
        bulk("__redis__:invalidate"),
        Value::Array(vec![bulk("k")]),
    ]);
    assert_eq!(listener.receive(), told);
}

#[test]
fn who_looks_on_a_replica_is_told_too() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    let mut cache = Cache::tracking(&replica, "");
    let mut bob = Waiter::of(&primary, "k", "bob");
    cache.cmd("LOCK.INFO k");
    client.release("k", "alice");
    let fence = bob.fence();
    cache.assert_told_of("k");
    wait_until_in_sync(&primary, &replica);
    assert_eq!(cache.cmd("LOCK.CHECK k bob"), int(fence));
}
