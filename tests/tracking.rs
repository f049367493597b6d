//! `CLIENT TRACKING`: who has looked at a lock, and keeps what it saw, is told when that is no longer true.
//!
//! That nothing is sent is seen without waiting: what the server tells a client of a command of another's, it
//! has written by the time that command is answered, and so before its answer to whatever the first asks next.

use crate::waiting::owners;
use redis::{PushKind, Value};
use testkit::{Client, Server, Waiter, becomes, bulk, int};

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

/// What changes the lock `k`, which alice holds, and whether somebody waits for it, who is handed it then.
const CHANGES: [(&str, bool); 7] = [
    ("LOCK.RELEASE k alice", false),
    ("LOCK.EXTEND k alice 120000", false),
    ("LOCK.EXTEND k alice 30000", false),
    ("LOCK.ACQUIRE k alice 120000", false),
    ("DEL k", false),
    ("LOCK.RELEASE k alice", true),
    ("DEL k", true),
];

/// Once each, to who has looked in any way.
#[test]
fn every_change_of_a_lock_is_told_and_so_is_its_grant() {
    let server = Server::start();
    let mut client = server.client();
    for (change, is_wanted) in CHANGES {
        for look in LOOKS {
            client.cmd("FLUSHALL");
            let mut cache = Cache::tracking(&server, "");
            cache.cmd(look);
            client.grant("k", "alice", LONG);
            cache.assert_told_of("k");
            cache.cmd(look);
            eprintln!("{change} after {look}, somebody waits: {is_wanted}");
            let mut bob = is_wanted.then(|| Waiter::of(&server, "k", "bob"));
            assert!(matches!(client.cmd(change), Value::Int(1..)));
            if let Some(bob) = &mut bob {
                bob.fence();
            }
            cache.assert_told_of("k");
            cache.assert_told_nothing();
            client.cmd("SET k by-hand");
            cache.assert_told_nothing();
        }
    }
}

/// Whether somebody waits, who is handed the lock, or not.
#[test]
fn the_end_of_a_lease_is_told() {
    let server = Server::start();
    let mut client = server.client();
    for look in LOOKS {
        for is_wanted in [true, false] {
            client.cmd("FLUSHALL");
            client.grant("k", "alice", LONG);
            let mut bob = is_wanted.then(|| Waiter::of(&server, "k", "bob"));
            let mut cache = Cache::tracking(&server, "");
            cache.looks_right_behind("LOCK.EXTEND k alice 100", look);
            cache.assert_told_of("k");
            if let Some(bob) = &mut bob {
                bob.fence();
            }
            cache.assert_told_nothing();
            // What it is told comes no sooner than the truth of it.
            assert_eq!(cache.cmd("LOCK.CHECK k alice"), Value::Nil);
        }
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
    becomes("the queue is bob's", ["bob"], || owners(&server, "k"));
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
fn who_wants_to_hear_nothing_of_its_own_doing_does_not() {
    let server = Server::start();
    let mut client = server.client();
    for (options, hears_itself) in [("", true), (" NOLOOP", false)] {
        let mut cache = Cache::tracking(&server, options);
        let hears = |cache: &mut Cache| {
            if hears_itself {
                cache.assert_told_of("k");
            }
            cache.assert_told_nothing();
        };
        for own in
            ["LOCK.ACQUIRE k alice 60000", "LOCK.EXTEND k alice 60000", "LOCK.RELEASE k alice"]
        {
            cache.cmd("LOCK.INFO k");
            cache.cmd(own);
            hears(&mut cache);
        }
        // The hand-off that comes of its release is its own doing too.
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        cache.cmd("LOCK.INFO k");
        cache.cmd("LOCK.RELEASE k alice");
        let fence = bob.fence();
        hears(&mut cache);
        assert_eq!(client.check("k", "bob"), Some(fence));
        // What others do, and what becomes of it, it hears all the same.
        cache.cmd("LOCK.CHECK k bob");
        let mut carol = Waiter::of(&server, "k", "carol");
        client.cmd("DEL k");
        carol.fence();
        cache.assert_told_of("k");
        client.release("k", "carol");
    }
}
