//! A lock that is held is still held after the server has evicted its key, whether or not anybody
//! waits for it.
//!
//! What a server does that cannot tell in time, and what becomes of those who wait: see
//! `waiting::short_of_memory`.

mod unseen;

use redis::Value;
use std::time::{Duration, Instant};
use testkit::{
    Client, Server, Setup, Waiter, becomes, bulk, deadline, eventually, int, is_older_than, lacks,
    module,
};

const LONG: u64 = 60_000;

/// Takes the memory away for as long as one command, which evicts all that the policy allows, and
/// gives it back.
pub(crate) const EVICT: [&str; 3] =
    ["CONFIG SET maxmemory 1", "GET nothing", "CONFIG SET maxmemory 0"];

fn evicting(policy: &str) -> Setup {
    Server::builder().config("maxmemory-policy", policy)
}

/// Whether the server cannot say what it evicts before it is gone.
pub(crate) fn tells_too_late() -> bool {
    lacks((7, 2), "what a server evicts, before it is gone")
}

/// Evicts and goes on with these commands before the module's timer can run. Returns what they were
/// answered.
pub(crate) fn evict_and(client: &mut Client, commands: &[&str]) -> Vec<Value> {
    client.pipeline(&[&EVICT, commands].concat()).split_off(EVICT.len())
}

#[track_caller]
pub(crate) fn is_back(client: &mut Client, key: &str) {
    becomes("how many such keys there are", Value::Int(1), || client.cmd(["EXISTS", key]));
}

#[test]
fn a_lock_that_nobody_waits_for_is_held_as_before_after_its_eviction_under_every_policy() {
    if tells_too_late() {
        return;
    }
    for policy in [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        let server = evicting(policy).start();
        let mut client = server.client();
        for owner in ["alice", "an-owner-that-is-longer-than-a-short-string-of-44-bytes"] {
            let fence = client.grant("k", owner, LONG);
            let end = deadline(&mut client, b"k");
            let gone = evict_and(&mut client, &["GET k"]);
            assert_eq!(gone, [Value::Nil], "{policy}: it was not evicted");
            is_back(&mut client, "k");
            assert_eq!(client.cmd("GET k"), bulk(format!("{fence}:{owner}")), "{policy}");
            assert_eq!(deadline(&mut client, b"k"), end, "{policy}");
            assert_eq!(client.check("k", owner), Some(fence), "{policy}");
            assert_eq!(client.acquire("k", "bob", LONG), None, "{policy}");
            assert!(client.release("k", owner), "{policy}");
        }
        assert_eq!(client.counter("evictions_restored"), 2, "{policy}");
    }
}

#[test]
fn every_command_in_the_turn_of_the_eviction_finds_the_lock_held() {
    if tells_too_late() {
        return;
    }
    let server = evicting("allkeys-lru").start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let end = deadline(&mut client, b"k");
    let answers = evict_and(
        &mut client,
        &["GET k", "LOCK.CHECK k alice", "LOCK.CHECK k bob", "LOCK.INFO k", "GET k"],
    );
    assert_eq!(answers[..3], [Value::Nil, int(fence), Value::Nil]);
    assert_ne!(answers[3], Value::Nil);
    assert_eq!(answers[4], Value::Nil, "what only reads does not put it back");
    for (command, answer) in [
        ("LOCK.ACQUIRE k bob 1000", Value::Nil),
        ("LOCK.ACQUIRE k alice 1000", int(fence)),
        ("LOCK.RELEASE k bob", Value::Int(0)),
        ("LOCK.EXTEND k bob 1000", Value::Int(0)),
        ("LOCK.RAISE k bob 1", Value::Nil),
        ("LOCK.RAISE k alice 1", int(fence)),
        (
            "EVAL return{redis.call('LOCK.ACQUIRE',KEYS[1],'bob',9)} 1 k",
            Value::Array(vec![Value::Nil]),
        ),
    ] {
        is_back(&mut client, "k");
        let answers = evict_and(&mut client, &["GET k", command, "GET k", "PEXPIRETIME k"]);
        let value = bulk(format!("{fence}:alice"));
        assert_eq!(answers, [Value::Nil, answer, value, Value::Int(end)], "{command}");
    }
    let answers = evict_and(
        &mut client,
        &["LOCK.EXTEND k alice 90000", "LOCK.RELEASE k alice", "LOCK.ACQUIRE k bob 1000"],
    );
    assert_eq!(answers[..2], [Value::Int(1), Value::Int(1)]);
    assert!(matches!(answers[2], Value::Int(later) if later > fence.try_into().unwrap()));
    assert!(client.release("k", "bob"));
    assert_eq!(client.cmd("EXISTS k"), Value::Int(0));
}

/// Waits until whatever was evicted so far has been put back: in the order of its eviction.
#[track_caller]
fn settle(client: &mut Client) {
    client.cmd("SELECT 5");
    client.grant("marker", "alice", LONG);
    evict_and(client, &[]);
    is_back(client, "marker");
    client.cmd("SELECT 0");
}

#[test]
fn what_happens_to_the_key_after_its_eviction_counts() {
    if tells_too_late() {
        return;
    }
    // What `k` holds in the end, and in which databases the lock of database 0 and that of database 1 are then.
    let kept = Some(0);
    for (commands, of_k, of_zero, of_one) in [
        (&["SET k stranger"][..], Some("stranger"), kept, Some(1)),
        (&["RENAME other k"], Some("the-other"), kept, Some(1)),
        (&["FLUSHALL"], None, None, None),
        (&["FLUSHDB"], None, None, Some(1)),
        (&["SWAPDB 0 1"], None, Some(1), Some(0)),
        (&["SWAPDB 1 2"], Some("alice"), kept, Some(2)),
        (&["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"], None, None, None),
    ] {
        let server = evicting("volatile-lru").start();
        let mut client = server.client();
        client.cmd("SET other the-other");
        client.grant("k", "alice", LONG);
        client.grant("zero", "alice", LONG);
        client.cmd("SELECT 1");
        client.grant("one", "alice", LONG);
        client.cmd("SELECT 0");
        evict_and(&mut client, commands);
        settle(&mut client);
        let owner = client.info("k").map(|info| String::from_utf8(info.owner).unwrap());
        assert_eq!(owner.as_deref(), of_k, "{commands:?}");
        client.cmd("DEL k");
        assert!(client.acquire("k", "bob", LONG).is_some(), "{commands:?}: not put back later");
        for (key, home) in [("zero", of_zero), ("one", of_one)] {
            for db in 0..4 {
                client.cmd(format!("SELECT {db}"));
                let exists = Value::Int(i64::from(home == Some(db)));
                // The look at the marker has evicted it once more.
                let what = format!("{commands:?}: how many of {key} are in {db}");
                becomes(&what, exists, || client.cmd(["EXISTS", key]));
            }
        }
    }
}

#[test]
fn a_server_with_nothing_but_locks_to_evict_goes_on_and_says_so() {
    if tells_too_late() {
        return;
    }
    let locks = 1_000;
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        let server = evicting(policy).start();
        let mut client = server.client();
        let fences: Vec<u64> =
            (0..locks).map(|number| client.grant(format!("k{number}"), "alice", LONG)).collect();
        let began = Instant::now();
        client.cmd("CONFIG SET maxmemory 1");
        let mut commands = 0;
        while began.elapsed() < Duration::from_secs(1) {
            assert_eq!(client.cmd("PING"), Value::SimpleString("PONG".to_owned()));
            commands += 1;
        }
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap();
        let evicted = client.info_number("stats", "evicted_keys");
        // Each once, as many as are put back at once, and one each millisecond.
        assert!(evicted <= locks + 100 + millis, "{policy}: {evicted} evictions in {millis} ms");
        assert_ne!(client.counter("evictions_restored"), 0, "{policy}: none was put back");
        assert!(commands > 500, "{policy}: only {commands} commands");
        eventually("a write is refused", || match client.cmd("SET filler x") {
            Value::ServerError(told) if told.code() == "OOM" => Ok(()),
            other => Err(other),
        });
        for (number, &fence) in fences.iter().enumerate() {
            assert_eq!(client.check(format!("k{number}"), "alice"), Some(fence), "{policy}");
        }
        assert!(client.release("k7", "alice"), "{policy}");
        assert_eq!(server.log().matches("locks faster than they are put back").count(), 1);
        client.cmd("CONFIG SET maxmemory 0");
        let all = i64::try_from(locks).unwrap() - 1;
        client.cmd("DEL filler");
        becomes("all others are back", Value::Int(all), || client.cmd("DBSIZE"));
    }
}

/// How often the module heard that a key goes, of a server that it panics in each time.
fn heard(server: &Server) -> u64 {
    let mut client = server.client();
    let before = client.counter("panics_caught");
    client.cmd("SET other x");
    client.cmd("DEL other");
    client.counter("panics_caught") - before
}

#[test]
fn it_listens_only_while_the_server_may_evict() {
    if tells_too_late() || !module::can_inject_panics() {
        return;
    }
    let server = Server::builder().panic_at("unlinked").start();
    assert_eq!(heard(&server), 0, "no limit");
    for (settings, should) in [
        ("maxmemory-policy allkeys-lru", false),
        ("maxmemory 1gb", true),
        ("maxmemory 2gb", true),
        ("maxmemory-policy noeviction", false),
        ("maxmemory-policy volatile-ttl", true),
        ("maxmemory 0", false),
        ("maxmemory-policy noeviction maxmemory 1gb", false),
        ("maxmemory 1gb maxmemory-policy allkeys-random", true),
    ] {
        assert_eq!(server.cmd(format!("CONFIG SET {settings}")), Value::Okay);
        if should {
            assert_ne!(heard(&server), 0, "{settings}: from the next command on");
        }
        becomes(settings, should, || heard(&server) > 0);
    }
    for (limit, policy, should) in
        [("1gb", "allkeys-lru", true), ("1gb", "noeviction", false), ("0", "allkeys-lru", false)]
    {
        let setup = evicting(policy).config("maxmemory", limit).panic_at("unlinked");
        let server = setup.start();
        assert_eq!(heard(&server) > 0, should, "{limit} {policy} in the configuration");
    }
}

#[test]
fn while_it_listens_clients_stay_in_their_database() {
    let server = evicting("allkeys-lru").config("maxmemory", "1gb").start();
    let mut client = server.client();
    for command in ["SET a x", "MOVE a 1", "SET b x", "COPY b c DB 2", "SET b y", "DEL b"] {
        client.cmd(command);
    }
    client.cmd("SET here x");
    assert_eq!(client.cmd("KEYS *"), Value::Array(vec![bulk("here")]));
}

#[test]
fn where_the_server_tells_too_late_a_lock_that_nobody_waits_for_is_lost() {
    if !is_older_than((7, 2)) {
        return;
    }
    let server = evicting("volatile-lru").start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let _carol = {
        client.grant("waited", "alice", LONG);
        Waiter::of(&server, "waited", "carol")
    };
    evict_and(&mut client, &[]);
    is_back(&mut client, "waited");
    assert!(client.acquire("k", "bob", LONG).is_some());
}
