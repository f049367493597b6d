//! Locks that Leasehold did not write: old clients' `SET key value NX PX ttl`.

use super::{LONG, play};
use redis::Value;
use testkit::{Server, bulk, deadline, eventually, int, unchanged};

/// Values as clients write them, and some that no client would.
const VALUES: [&str; 14] = [
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
    "9007199254740992:mallory",
    "0999999999999999:mallory",
    "-100000000000000:mallory",
    "+100000000000000:mallory",
];

#[test]
fn a_foreign_lock_is_held_by_its_whole_value_with_fence_0() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    for value in VALUES {
        client.cmd(["SET", "k", value, "NX", "PX", "60000"]);
        let end = deadline(&mut client, b"k");
        let mut other = server.client();
        let info = unchanged(&server, || {
            assert_eq!(other.acquire("k", "alice", LONG), None, "{value}");
            assert!(!other.release("k", "alice"), "{value}");
            assert!(!other.extend("k", "alice", LONG), "{value}");
            assert_eq!(other.check("k", "alice"), None, "{value}");
            assert_eq!(other.check("k", "mallory"), None, "{value}");
            assert_eq!(other.check("k", value), Some(0), "{value}");
            assert_eq!(other.cmd(["LOCK.CHECK", "k", value, "0"]), int(0), "{value}");
            assert_eq!(other.cmd(["LOCK.CHECK", "k", value, "1"]), Value::Nil, "{value}");
            other.info("k").unwrap()
        });
        assert_eq!((&info.owner[..], info.fence), (value.as_bytes(), 0));
        assert_eq!(info.deadline, end);
        let before = client.now();
        assert!(client.extend("k", value, 120_000), "{value}");
        assert_eq!(client.cmd("GET k"), bulk(value));
        assert!(deadline(&mut client, b"k") >= before + 120_000, "{value}");
        assert!(client.release("k", value), "{value}");
        assert_eq!(client.cmd("EXISTS k"), int(0), "{value}");
    }
    assert_eq!(client.counter("fences_refused"), 0);
}

#[test]
fn old_and_new_clients_keep_each_other_out() {
    play(
        "
        # its holder asks again, and the value stays
        SET k 12345:uuid NX PX 60000 -> OK | …
        LOCK.ACQUIRE k 12345:uuid 1 -> 0
        LOCK.ACQUIRE k 12345:uuid 120000 -> 0 | SET k 12345:uuid PXAT +120000
        LOCK.EXTEND k 12345:uuid 60000 -> 1 | SET k 12345:uuid PXAT +60000
        LOCK.RELEASE k 12345:uuid 1 -> 0
        LOCK.RELEASE k 12345:uuid 0 -> 1 | DEL k
        # without an expiry it is held until it is deleted
        SETNX k uuid -> 1 | SETNX k uuid
        LOCK.ACQUIRE k uuid 60000 -> 0
        LOCK.ACQUIRE k alice 60000 -> nil
        DEL k -> 1 | DEL k
        LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
        # an old client does nothing to a grant
        LOCK.ACQUIRE k uuid 60000 -> A | SET k {A}:uuid PXAT +60000
        SET k uuid NX PX 60000 -> nil
        SETNX k uuid -> 0
        EVAL return(redis.call('GET',KEYS[1])==ARGV[1]and(redis.call('DEL',KEYS[1]))) 1 k uuid -> nil
        LOCK.CHECK k uuid -> A
        # they take turns
        SET k uuid NX PX 1 -> OK | …
        LOCK.ACQUIRE k alice 60000 -> until A | …
        LOCK.RELEASE k alice -> 1 | DEL k
        SET k uuid NX PX 60000 -> OK | …
        LOCK.ACQUIRE k alice 60000 -> nil
        DEL k -> 1 | DEL k
        LOCK.ACQUIRE k alice 60000 -> B | SET k {B}:alice PXAT +60000
        ",
    );
}

#[test]
fn a_value_that_is_no_owner_is_held_by_nobody_who_could_ask() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let like_ours = [&b"1763712345678901:"[..], &[b'x'; 256]].concat();
    let values = [0, 256, 272, 273, 100_000].map(|length| vec![b'x'; length]);
    for value in values.into_iter().chain([like_ours]) {
        client.cmd([b"SET", &b"k"[..], &value]);
        let owner = if value.is_empty() { &b"alice"[..] } else { &value[..255] };
        unchanged(&server, || {
            let mut client = server.client();
            assert_eq!(client.acquire("k", owner, LONG), None);
            let info = client.info("k").unwrap();
            assert_eq!((&info.owner, info.fence), (&value, 0));
            assert_eq!((info.ttl, info.deadline), (-1, -1));
            assert!(!client.release("k", owner));
        });
    }
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
