//! `LOCK.ACQUIRE key owner ttl`; its options have tests of their own.

use super::{LONG, play};
use redis::Value;
use std::collections::HashSet;
use testkit::{Server, deadline};

const STORIES: &str = "
    # a free lock is granted, and nobody else gets it
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    GET k -> {A}:alice
    LOCK.ACQUIRE k bob 90000 -> nil
    LOCK.ACQUIRE k Alice 90000 -> nil
    LOCK.ACQUIRE k alic 90000 -> nil
    LOCK.ACQUIRE k alice\0 90000 -> nil
    LOCK.ACQUIRE k * 60000 -> nil
    LOCK.ACQUIRE k alice 0 -> -TTL_NOT_POSITIVE
    # the holder gets the same fence again, and the later lease
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    LOCK.ACQUIRE k alice 120000 -> A | SET k {A}:alice PXAT +120000
    LOCK.ACQUIRE k alice 1 -> A
    PERSIST k -> 1 | PERSIST k
    LOCK.ACQUIRE k alice 60000 -> A
    # a lock whose lease ran out is free
    LOCK.ACQUIRE k alice 1 -> A | …
    LOCK.ACQUIRE k bob 60000 -> until B | …
    LOCK.CHECK k bob -> B
    # a ttl is from 1 to the limit
    LOCK.ACQUIRE k alice 86400000 -> A | SET k {A}:alice PXAT +86400000
    LOCK.ACQUIRE j alice 86400001 -> -TTL_ABOVE_LIMIT
    LOCK.ACQUIRE j alice 99999999999999999999999999999999999999 -> -TTL_ABOVE_LIMIT
    LOCK.ACQUIRE j alice 5\0 -> -TTL_NOT_POSITIVE
    LOCK.ACQUIRE j alice ５ -> -TTL_NOT_POSITIVE
    # an owner has 1 to 255 bytes
    LOCK.ACQUIRE k x*255 60000 -> A | …
    LOCK.CHECK k x*255 -> A
    LOCK.ACQUIRE j x*256 60000 -> -OWNER_LENGTH
    # a grant is written as its fence and its owner, whatever that is called
    LOCK.ACQUIRE k : 60000 -> A | SET k {A}:: PXAT +60000
    LOCK.CHECK k : -> A
    LOCK.ACQUIRE j 1763712345678901:alice 60000 -> B | …
    LOCK.CHECK j 1763712345678901:alice -> B
    # mistakes are named from left to right
    RPUSH list x -> 1 | RPUSH list x
    LOCK.ACQUIRE list \"\" -> -ARITY
    LOCK.ACQUIRE list \"\" 0 EXTRA -> -OWNER_LENGTH
    LOCK.ACQUIRE list alice 0 EXTRA -> -TTL_NOT_POSITIVE
    LOCK.ACQUIRE list alice 86400001 EXTRA -> -TTL_ABOVE_LIMIT
    LOCK.ACQUIRE list alice 5 EXTRA -> -UNKNOWN_OPTION
    LOCK.ACQUIRE list alice 5 block 3153600000001 -> -PATIENCE_OUT_OF_RANGE
    LOCK.ACQUIRE list alice 5 BLOCK 0 -> -WRONG_TYPE
    LOCK.ACQUIRE list alice 5 -> -WRONG_TYPE
    LOCK.ACQUIRE list * 5 -> -WRONG_TYPE
    # no other type of key is taken for a lock
    SADD set x -> 1 | SADD set x
    LOCK.ACQUIRE set alice 5 -> -WRONG_TYPE
    ZADD sorted 1 x -> 1 | ZADD sorted 1 x
    LOCK.ACQUIRE sorted alice 5 -> -WRONG_TYPE
    HSET hash f x -> 1 | HSET hash f x
    LOCK.ACQUIRE hash alice 5 -> -WRONG_TYPE
    XADD stream 1-1 f x -> 1-1 | XADD stream 1-1 f x
    LOCK.ACQUIRE stream alice 5 -> -WRONG_TYPE
    # out of memory there are no new locks, but holders let go and hold on
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    CONFIG SET maxmemory 1 -> OK
    LOCK.ACQUIRE free bob 60000 -> -OOM
    LOCK.ACQUIRE k alice 90000 -> -OOM
    LOCK.EXTEND k alice 120000 -> 1 | SET k {A}:alice PXAT +120000
    LOCK.CHECK k alice -> A
    EVAL return(redis.call('LOCK.RELEASE',KEYS[1],'alice')) 1 k -> 1 | DEL k
    CONFIG SET maxmemory 0 -> OK
    LOCK.ACQUIRE k bob 60000 -> B | SET k {B}:bob PXAT +60000
";

#[test]
fn every_reply_and_every_error() {
    play(STORIES);
}

#[test]
fn the_lease_is_the_keys_own_expiry_and_starts_with_the_grant() {
    let server = Server::start();
    let mut client = server.client();
    let before = client.now();
    client.grant("k", "alice", LONG);
    let after = client.now();
    let deadline = deadline(&mut client, b"k");
    assert!((before + 60_000..=after + 60_000).contains(&deadline), "{before} {deadline} {after}");
}

#[test]
fn the_owner_star_is_given_a_random_uuid() {
    let server = Server::start();
    let mut clients = [server.client(), server.client_resp3()];
    let mut owners = HashSet::new();
    for round in 0..50 {
        let client = &mut clients[round % 2];
        let key = format!("k{round}");
        let reply = client.cmd(["LOCK.ACQUIRE", &key, "*", "60000"]);
        let Value::Array(parts) = &reply else { panic!("{reply:?}") };
        let [Value::BulkString(owner), Value::Int(fence)] = &parts[..] else { panic!("{reply:?}") };
        assert!(is_random_uuid(owner), "{}", owner.escape_ascii());
        assert_eq!(client.check(&key, owner), Some((*fence).try_into().unwrap()));
        owners.insert(owner.clone());
    }
    assert_eq!(owners.len(), 50, "no two are alike");
}

/// Version 4, variant 1, lower case: `xxxxxxxx-xxxx-4xxx-[89ab]xxx-xxxxxxxxxxxx`.
fn is_random_uuid(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(position, byte)| match position {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => *byte == b'4',
            19 => b"89ab".contains(byte),
            _ => b"0123456789abcdef".contains(byte),
        })
}

#[test]
fn keys_and_owners_are_bytes_of_any_kind() {
    let server = Server::start();
    let mut client = server.client();
    let every_byte: Vec<u8> = (0..=254).collect();
    let odd: [&[u8]; 7] = [b"", b"\0", b"a\0b", b"\xff\xfe", b"\r\n", b":", &every_byte];
    for key in odd {
        for owner in &odd[1..] {
            let fence = client.grant(key, owner, LONG);
            assert_eq!(client.acquire(key, b"\0\0", LONG), None);
            assert_eq!(client.info(key).unwrap().owner, *owner);
            assert_eq!(client.check(key, owner), Some(fence));
            assert!(client.extend(key, owner, LONG));
            assert!(client.release(key, owner));
        }
    }
}
