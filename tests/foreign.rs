//! Locks that Leasehold did not write: old clients' `SET key value NX PX ttl`.

use redis::Value;
use testkit::{Server, bulk, deadline, eventually, int, unchanged};

const LONG: u64 = 60_000;

/// Values as clients write them, and some that no client would.
const VALUES: [&str; 10] = [
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "12345:6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "12345",
    "-7",
    "9223372036854775807",
    "1763712345678901",
    "1763712345678901:",
    "1763712345678901alice",
    "*",
    ":",
];

#[test]
fn a_foreign_lock_is_held_by_its_whole_value_with_fence_0() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    for value in VALUES {
        client.cmd(["SET", "k", value, "NX", "PX", "60000"]);
        let deadline = deadline(&mut client, b"k");
        let mut other = server.client();
        let info = unchanged(&server, || {
            assert_eq!(other.acquire("k", "alice", LONG), None, "{value}");
            assert!(!other.release("k", "alice"), "{value}");
            assert!(!other.extend("k", "alice", LONG), "{value}");
            assert_eq!(other.check("k", "alice"), None, "{value}");
            assert_eq!(other.check("k", value), Some(0), "{value}");
            assert_eq!(other.cmd(["LOCK.CHECK", "k", value, "0"]), int(0), "{value}");
            assert_eq!(other.cmd(["LOCK.CHECK", "k", value, "1"]), Value::Nil, "{value}");
            other.info("k").unwrap()
        });
        assert_eq!((&info.owner[..], info.fence), (value.as_bytes(), 0));
        assert_eq!(info.deadline, deadline);
        assert!(client.release("k", value), "{value}");
        assert_eq!(client.cmd("EXISTS k"), int(0), "{value}");
    }
}

#[test]
fn a_foreign_lock_is_released_with_fence_0_and_no_other() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET k uuid NX PX 60000");
    assert_eq!(client.cmd("LOCK.RELEASE k uuid 1"), int(0));
    assert_eq!(client.cmd("LOCK.RELEASE k uuid 0"), int(1));
}

#[test]
fn a_foreign_lock_is_extended_as_it_is_written() {
    let server = Server::start();
    let mut client = server.client();
    for value in VALUES {
        client.cmd(["SET", "k", value, "NX", "PX", "60000"]);
        let before = client.now();
        assert!(client.extend("k", value, 120_000), "{value}");
        assert_eq!(client.cmd("GET k"), bulk(value));
        assert!(deadline(&mut client, b"k") >= before + 120_000, "{value}");
        client.cmd("DEL k");
    }
}

#[test]
fn its_holder_asking_again_gets_0_and_the_longer_lease_but_its_value_stays() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.cmd("SET k 12345:uuid NX PX 60000");
    assert_eq!(unchanged(&server, || client.acquire("k", "12345:uuid", 1)), Some(0));
    let before = client.now();
    assert_eq!(client.acquire("k", "12345:uuid", 120_000), Some(0));
    assert_eq!(client.cmd("GET k"), bulk("12345:uuid"));
    assert!(deadline(&mut client, b"k") >= before + 120_000);
}

#[test]
fn a_foreign_lock_without_expiry_is_held_until_it_is_deleted() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.cmd("SETNX k uuid");
    let info = unchanged(&server, || client.info("k")).unwrap();
    assert_eq!((info.ttl, info.deadline), (-1, -1));
    assert_eq!(unchanged(&server, || client.acquire("k", "uuid", LONG)), Some(0));
    assert_eq!(client.acquire("k", "alice", LONG), None);
    client.cmd("DEL k");
    client.grant("k", "alice", LONG);
}

#[test]
fn an_empty_value_is_held_by_nobody_who_could_ask() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.cmd("SET k \"\"");
    unchanged(&server, || {
        let mut client = server.client();
        assert_eq!(client.acquire("k", "alice", LONG), None);
        assert_eq!(client.info("k").unwrap().owner, b"");
        assert!(!client.release("k", "alice"));
    });
}

#[test]
fn a_value_longer_than_any_owner_is_held_by_nobody_who_could_ask() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    for length in [256, 272, 273, 100_000] {
        let value = vec![b'x'; length];
        client.cmd([b"SET", &b"k"[..], &value]);
        unchanged(&server, || {
            let mut client = server.client();
            assert_eq!(client.acquire("k", &value[..255], LONG), None);
            assert_eq!(client.info("k").unwrap().owner, value);
            assert!(!client.release("k", &value[..255]));
        });
    }
}

#[test]
fn a_value_like_ours_with_too_long_an_owner_is_foreign() {
    let server = Server::start();
    let mut client = server.client();
    let value = [&b"1763712345678901:"[..], &[b'x'; 256]].concat();
    client.cmd([b"SET", &b"k"[..], &value]);
    let info = client.info("k").unwrap();
    assert_eq!((info.owner, info.fence), (value, 0));
}

#[test]
fn an_old_client_is_excluded_by_a_grant() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    assert_eq!(client.cmd("SET k uuid NX PX 60000"), Value::Nil);
    assert_eq!(client.cmd("SETNX k uuid"), int(0));
    assert_eq!(client.check("k", "alice"), Some(fence));
}

#[test]
fn an_old_clients_release_script_does_not_touch_a_grant() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "uuid", LONG);
    let script =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
        return 0";
    assert_eq!(client.cmd(["EVAL", script, "1", "k", "uuid"]), int(0));
    assert_eq!(client.check("k", "uuid"), Some(fence));
}

#[test]
fn old_and_new_clients_take_turns() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET k uuid NX PX 1");
    let first =
        eventually("the foreign lease runs out", || client.acquire("k", "alice", LONG).ok_or(()));
    assert!(client.release("k", "alice"));
    assert_eq!(client.cmd("SET k uuid NX PX 60000"), Value::Okay);
    assert_eq!(client.acquire("k", "alice", LONG), None);
    client.cmd("DEL k");
    assert!(client.grant("k", "alice", LONG) > first);
}

/// Anybody may ask for a key that is no lock, and others may change it all the time.
#[test]
fn who_waits_for_a_long_string_has_no_copy_of_it_kept() {
    const LENGTH: u64 = 20_000_000;
    let server = Server::start();
    let mut client = server.client();
    client.cmd(format!("SETRANGE k {} x", LENGTH - 1));
    let before = client.info_number("memory", "used_memory");
    assert_eq!(client.cmd("LOCK.ACQUIRE k bob 60000 TICKET 60000"), Value::Nil);
    let more = client.info_number("memory", "used_memory").saturating_sub(before);
    assert!(more < LENGTH / 10, "{more} bytes");
    client.cmd("DEL k");
    eventually("it is a lock as any other", || {
        client.acquire("k", "bob", LONG).ok_or("bob does not have it")
    });
}
