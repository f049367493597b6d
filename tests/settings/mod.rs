//! At home under every setting of the server's: a smoke run each, and what the setting itself may do to a lock.

mod access;
mod connections;
mod memory;
mod scripts;
mod threads;

use crate::waiting::{owners, waiters};
use redis::Value;
use testkit::{Client, Server, Setup, Waiter, becomes, bulk, eventually, int, lacks, strings};

const LONG: u64 = 60_000;

/// How many wait for one lock in a smoke run.
const CROWD: usize = 200;

/// Starts a server with one setting, and sees that it is in force.
fn start_with(setup: Setup, name: &str, value: &str) -> Server {
    let server = setup.config(name, value).start();
    let reply = server.cmd(["CONFIG", "GET", name]);
    assert_eq!(strings(&reply), [name, value]);
    server
}

/// Uses a server in earnest, as a fleet of clients would.
fn smoke(server: &Server) {
    let mut client = server.client();
    let waited_before = client.counter("waiters");
    let mut fences = Fences(0);
    alone(server, &mut fences);
    handed_over(server, &mut fences);
    leaving(server, &mut fences);
    transactions(server, &mut fences);
    crowd(server, &mut fences);
    assert_eq!(client.counter("waiters"), waited_before);
    assert_eq!(client.counter("panics_caught"), 0);
    becomes("how many are blocked", waited_before, || {
        client.info_number("clients", "blocked_clients")
    });
}

/// The fence of the latest grant. Each must be larger than all before it, whatever the lock.
struct Fences(u64);

impl Fences {
    #[track_caller]
    fn next(&mut self, fence: u64) -> u64 {
        assert!(fence > self.0, "{fence} is not larger than {}", self.0);
        self.0 = fence;
        fence
    }
}

fn alone(server: &Server, fences: &mut Fences) {
    let mut client = server.client();
    let fence = fences.next(client.grant("alone", "alice", LONG));
    assert_eq!(client.acquire("alone", "bob", LONG), None);
    assert_eq!(client.acquire("alone", "alice", LONG), Some(fence), "a retry is the same grant");
    assert_eq!(client.cmd("LOCK.ACQUIRE alone bob 60000 BLOCK 1"), Value::Nil);
    assert!(!client.extend("alone", "bob", LONG));
    assert!(client.extend("alone", "alice", 2 * LONG));
    assert_eq!(client.check("alone", "alice"), Some(fence));
    assert_eq!(client.check("alone", "bob"), None);
    let info = client.info("alone").unwrap();
    assert_eq!((info.owner.as_slice(), info.fence, info.waiters), (&b"alice"[..], fence, 0));
    assert!(info.ttl > LONG as i64, "{info:?}");
    assert!(!client.release("alone", "bob"));
    assert!(client.release("alone", "alice"));
    assert_eq!(client.info("alone"), None);
}

/// At a release, at the end of a lease, and at a deletion by hand.
fn handed_over(server: &Server, fences: &mut Fences) {
    let mut client = server.client();
    fences.next(client.grant("passed", "alice", LONG));
    let mut bob = Waiter::of(server, "passed", "bob");
    assert!(client.release("passed", "alice"));
    fences.next(bob.fence());
    let mut carol = Waiter::of(server, "passed", "carol");
    assert!(bob.client.extend("passed", "bob", 20));
    fences.next(carol.fence());
    let mut dave = Waiter::of(server, "passed", "dave");
    assert_eq!(client.cmd("DEL passed"), int(1));
    let fence = fences.next(dave.fence());
    assert_eq!(client.check("passed", "dave"), Some(fence));
    assert!(client.release("passed", "dave"));
}

fn leaving(server: &Server, fences: &mut Fences) {
    let mut client = server.client();
    fences.next(client.grant("left", "alice", LONG));
    let mut first = Waiter::of(server, "left", "first");
    let gone = Waiter::of(server, "left", "gone");
    let mut last = Waiter::of(server, "left", "last");
    drop(gone);
    becomes("the queue", ["first", "last"], || owners(server, "left"));
    assert!(client.release("left", "alice"));
    fences.next(first.fence());
    assert!(client.release("left", "first"));
    fences.next(last.fence());
    assert!(client.release("left", "last"));
}

fn transactions(server: &Server, fences: &mut Fences) {
    let mut client = server.client();
    let replies = client.transaction(&[
        "LOCK.ACQUIRE whole alice 60000",
        "LOCK.ACQUIRE whole bob 60000 BLOCK 0",
        "SET guarded by-alice",
        "LOCK.CHECK whole alice",
        "LOCK.RELEASE whole alice",
    ]);
    let Value::Int(fence) = replies[0] else { panic!("{replies:?}") };
    assert_eq!(replies[1..], [Value::Nil, Value::Okay, int(fence), int(1)]);
    fences.next(fence.try_into().unwrap());
    let script = "local fence = redis.call('LOCK.ACQUIRE', KEYS[1], 'alice', 60000) \
                  local refused = redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0) \
                  local info = redis.call('LOCK.INFO', KEYS[1]) \
                  return {fence, refused, info[2], redis.call('LOCK.RELEASE', KEYS[1], 'alice')}";
    let reply = client.cmd(["EVAL", script, "1", "whole"]);
    let Value::Array(replies) = reply else { panic!("{reply:?}") };
    let Value::Int(fence) = replies[0] else { panic!("{replies:?}") };
    assert_eq!(replies[1..], [Value::Nil, bulk("alice"), int(1)]);
    fences.next(fence.try_into().unwrap());
}

/// Each is handed the lock in its turn, and gives it back.
fn crowd(server: &Server, fences: &mut Fences) {
    let mut client = server.client();
    fences.next(client.grant("wanted", "alice", LONG));
    let mut waiting = crowd_for(server, "wanted", "member-");
    let turns = owners(server, "wanted");
    assert_eq!(turns.len(), CROWD);
    assert!(client.release("wanted", "alice"));
    for owner in turns {
        let index: usize = owner.strip_prefix("member-").unwrap().parse().unwrap();
        let reply = waiting[index].receive();
        let Value::Int(fence) = reply else { panic!("{owner}: {reply:?}") };
        fences.next(fence.try_into().unwrap());
        assert!(waiting[index].release("wanted", &owner));
    }
}

/// Clients who wait for a lock that is held. Their owners are numbered.
fn crowd_for(server: &Server, key: &str, owner: &str) -> Vec<Client> {
    let already = waiters(server);
    let mut crowd: Vec<_> = (0..CROWD).map(|_| server.client()).collect();
    for (number, client) in crowd.iter_mut().enumerate() {
        client.send(format!("LOCK.ACQUIRE {key} {owner}{number} 60000 BLOCK 0"));
    }
    becomes("how many wait", CROWD as u64, || waiters(server) - already);
    crowd
}

/// Settings that no lock is to notice. A name may be unknown to older servers.
const UNNOTICED: [(&str, &str); 11] = [
    ("hz", "1"),
    ("hz", "500"),
    ("databases", "1"),
    ("timeout", "60"),
    ("slowlog-log-slower-than", "0"),
    ("latency-monitor-threshold", "1"),
    ("protected-mode", "yes"),
    ("tcp-keepalive", "1"),
    ("requirepass", "open-sesame"),
    ("maxmemory-clients", "16777216"),
    ("client-output-buffer-limit", "normal 65536 32768 60"),
];

#[test]
fn a_server_with_any_of_these_settings() {
    for (name, value) in UNNOTICED {
        if name == "maxmemory-clients" && lacks((7, 0), name) {
            continue;
        }
        eprintln!("{name} {value}");
        let setup = Server::builder();
        let server = match name {
            "requirepass" => setup.password(value).start(),
            "client-output-buffer-limit" => setup.config(name, value).start(),
            "hz" => start_with(setup.config("dynamic-hz", "no"), name, value),
            "protected-mode" | "tcp-keepalive" => start_with(setup.clients_over_tcp(), name, value),
            _ => start_with(setup, name, value),
        };
        smoke(&server);
        match name {
            "databases" => assert!(matches!(server.cmd("SELECT 1"), Value::ServerError(_))),
            "slowlog-log-slower-than" => {
                server.client().grant("k", "alice", LONG);
                let log = format!("{:?}", server.cmd("SLOWLOG GET 128"));
                for command in ["LOCK.ACQUIRE", "LOCK.RELEASE"].map(bulk) {
                    assert!(log.contains(&format!("{command:?}")), "{command:?} is not in {log}");
                }
            }
            "latency-monitor-threshold" if !lacks((7, 0), "LATENCY HISTOGRAM") => {
                let reply = server.cmd("LATENCY HISTOGRAM lock.acquire lock.release");
                assert!(matches!(&reply, Value::Array(both) if both.len() == 4), "{reply:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn one_that_forces_every_write_to_disk_before_it_replies() {
    let mut server = start_with(Server::builder().aof(), "appendfsync", "always");
    smoke(&server);
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.release("k", "alice");
    let fence = bob.fence();
    server.kill();
    server.start_again();
    assert_eq!(server.client().check("k", "bob"), Some(fence), "what was told is on disk");
    assert!(server.client().grant("other", "carol", LONG) > fence);
}

#[test]
fn one_that_publishes_every_event() {
    let server = start_with(Server::builder(), "notify-keyspace-events", "AKE");
    let mut listener = server.client();
    listener.cmd("PSUBSCRIBE __keyspace@0__:*");
    smoke(&server);
    // What the server says of a deletion by hand, it says with the module loaded too.
    eventually("the deletion is published", || {
        let Value::Array(message) = listener.receive() else { return Err(None) };
        let wanted = [bulk("__keyspace@0__:passed"), bulk("del")];
        if message[2..] == wanted { Ok(()) } else { Err(Some(message)) }
    });
}
