//! `LOCK.ACQUIRE key owner ttl`: every reply and every error.

use redis::Value;
use std::collections::HashSet;
use testkit::errors::{
    OWNER_LENGTH, PATIENCE_OUT_OF_RANGE, TTL_ABOVE_LIMIT, TTL_NOT_POSITIVE, UNKNOWN_OPTION,
    WRONG_TYPE, wrong_arity,
};
use testkit::{Server, assert_each_is_refused, bulk, deadline, error, eventually, int, unchanged};

const MAX_TTL: u64 = 86_400_000;

#[test]
fn a_free_lock_is_granted_and_its_fence_is_the_reply() {
    let server = Server::start();
    let mut client = server.client();
    let Value::Int(fence) = client.cmd("LOCK.ACQUIRE k alice 60000") else { panic!("no integer") };
    assert_eq!(fence.to_string().len(), 16, "{fence}");
    assert_eq!(client.cmd("GET k"), bulk(format!("{fence}:alice")));
}

#[test]
fn the_lease_is_the_keys_own_expiry_and_starts_with_the_grant() {
    let server = Server::start();
    let mut client = server.client();
    let before = client.now();
    client.grant("k", "alice", 60_000);
    let after = client.now();
    let deadline = deadline(&mut client, b"k");
    assert!((before + 60_000..=after + 60_000).contains(&deadline), "{before} {deadline} {after}");
}

#[test]
fn a_lock_held_by_another_is_nil_and_nothing_changes() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    assert_eq!(unchanged(&server, || client.cmd("LOCK.ACQUIRE k bob 90000")), Value::Nil);
}

#[test]
fn an_owner_is_told_from_another_by_every_byte() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    for other in ["Alice", "alic", "alice ", "alice\0", " alice"] {
        assert_eq!(client.acquire("k", other, 60_000), None, "{other:?}");
    }
}

#[test]
fn the_holder_asking_again_gets_the_same_fence() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    assert_eq!(client.acquire("k", "alice", 60_000), Some(fence));
    assert_eq!(server.client().acquire("k", "alice", 1), Some(fence), "on another connection");
}

#[test]
fn asking_again_for_longer_lengthens_the_lease() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    let before = client.now();
    client.grant("k", "alice", 120_000);
    assert!(deadline(&mut client, b"k") >= before + 120_000);
    assert_eq!(client.cmd("GET k"), bulk(format!("{fence}:alice")), "the grant is the same one");
}

#[test]
fn asking_again_for_less_than_is_left_changes_nothing() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    unchanged(&server, || client.grant("k", "alice", 1));
}

#[test]
fn asking_again_leaves_a_lock_without_expiry_without_one() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    client.cmd("PERSIST k");
    assert_eq!(unchanged(&server, || client.grant("k", "alice", 60_000)), fence);
}

#[test]
fn a_lock_whose_lease_ran_out_is_free() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.grant("k", "alice", 1);
    let second = eventually("the lease runs out", || client.acquire("k", "bob", 60_000).ok_or(()));
    assert!(second > first);
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
fn the_owner_star_gets_nil_while_another_holds_the_lock() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    assert_eq!(unchanged(&server, || client.cmd("LOCK.ACQUIRE k * 60000")), Value::Nil);
}

#[test]
fn owners_of_1_to_255_bytes_are_taken_and_longer_ones_refused() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    for length in [1, 2, 254, 255] {
        let (key, owner) = (format!("k{length}"), vec![b'x'; length]);
        let fence = client.grant(&key, &owner, 60_000);
        assert_eq!(client.check(&key, &owner), Some(fence));
    }
    for length in [0, 256, 257, 100_000] {
        let owner = vec![b'x'; length];
        let command = [b"LOCK.ACQUIRE", &b"k"[..], &owner, b"60000"];
        assert_eq!(unchanged(&server, || client.cmd(command)), error(OWNER_LENGTH), "{length}");
    }
}

#[test]
fn keys_and_owners_are_bytes_of_any_kind() {
    let server = Server::start();
    let mut client = server.client();
    let every_byte: Vec<u8> = (0..=254).collect();
    let odd: [&[u8]; 6] = [b"\0", b"a\0b", b"\xff\xfe", b"\r\n", b":", &every_byte];
    for key in odd {
        for owner in odd {
            let fence = client.grant(key, owner, 60_000);
            assert_eq!(client.acquire(key, b"\0\0", 60_000), None);
            assert_eq!(client.info(key).unwrap().owner, owner);
            assert_eq!(client.check(key, owner), Some(fence));
            assert!(client.extend(key, owner, 60_000));
            assert!(client.release(key, owner));
        }
    }
}

#[test]
fn the_empty_key_is_a_key() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("", "alice", 60_000);
    assert_eq!(client.check("", "alice"), Some(fence));
    assert_eq!(client.acquire("", "bob", 60_000), None);
}

#[test]
fn a_ttl_is_from_1_to_the_limit() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("shortest", "alice", 1);
    let before = client.now();
    client.grant("longest", "alice", MAX_TTL);
    assert!(deadline(&mut client, b"longest") >= before + 86_400_000);
    eventually("the shortest lease ends", || client.info("shortest").map_or(Ok(()), Err));
}

#[test]
fn a_ttl_that_is_no_positive_integer_is_refused() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let texts = [
        "0",
        "-0",
        "-1",
        "-9223372036854775808",
        "",
        " ",
        " 5",
        "5 ",
        "05",
        "+5",
        "1e3",
        "1.0",
        "0x10",
        "5ms",
        "five",
        "*",
        "5\0",
        "５",
    ];
    for ttl in texts {
        let reply = unchanged(&server, || client.cmd(["LOCK.ACQUIRE", "k", "alice", ttl]));
        assert_eq!(reply, error(TTL_NOT_POSITIVE), "{ttl:?}");
    }
}

#[test]
fn a_ttl_above_the_limit_is_refused_however_large() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let texts = [
        "86400001",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999999999999999",
    ];
    for ttl in texts {
        let reply = unchanged(&server, || client.cmd(["LOCK.ACQUIRE", "k", "alice", ttl]));
        assert_eq!(reply, error(TTL_ABOVE_LIMIT), "{ttl:?}");
    }
}

#[test]
fn mistakes_are_named_from_left_to_right_and_change_nothing() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    let arity = wrong_arity("LOCK.ACQUIRE");
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.ACQUIRE", &arity),
            ("LOCK.ACQUIRE list", &arity),
            ("LOCK.ACQUIRE list \"\"", &arity),
            ("LOCK.ACQUIRE list \"\" 0 EXTRA", OWNER_LENGTH),
            ("LOCK.ACQUIRE list alice 0 EXTRA", TTL_NOT_POSITIVE),
            ("LOCK.ACQUIRE list alice 86400001 EXTRA", TTL_ABOVE_LIMIT),
            ("LOCK.ACQUIRE list * 0", TTL_NOT_POSITIVE),
            ("LOCK.ACQUIRE list alice 5 EXTRA", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE list alice 5 \"\"", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE list alice 5 BLOCK", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE list alice 5 BLOCK 1 BLOCK 1", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE list alice 5 BLOCK x", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE list alice 5 BLOCK -1", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE list alice 5 block 3153600000001", PATIENCE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE list alice 5 BLOCK 0", WRONG_TYPE),
            ("LOCK.ACQUIRE list alice 5 a b c d e f g h i j k l m n o p", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE list alice 5", WRONG_TYPE),
            ("LOCK.ACQUIRE list * 5", WRONG_TYPE),
        ],
    );
}

#[test]
fn a_mistake_is_named_although_the_lock_is_held() {
    let server = Server::builder().aof().start();
    server.client().grant("k", "alice", 60_000);
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.ACQUIRE k \"\" 5", OWNER_LENGTH),
            ("LOCK.ACQUIRE k bob 0", TTL_NOT_POSITIVE),
            ("LOCK.ACQUIRE k alice 0", TTL_NOT_POSITIVE),
            ("LOCK.ACQUIRE k alice 5 EXTRA", UNKNOWN_OPTION),
        ],
    );
}

#[test]
fn no_other_type_of_key_is_taken_for_a_lock() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    for create in ["RPUSH k x", "SADD k x", "ZADD k 1 x", "HSET k f x", "XADD k * f x"] {
        client.cmd("DEL k");
        assert!(!matches!(client.cmd(create), Value::ServerError(_)), "{create}");
        let reply = unchanged(&server, || client.cmd("LOCK.ACQUIRE k alice 5"));
        assert_eq!(reply, error(WRONG_TYPE), "{create}");
    }
}

#[test]
fn locks_of_different_databases_are_different_locks() {
    let server = Server::start();
    let (mut zero, mut nine) = (server.client(), server.client());
    nine.cmd("SELECT 9");
    zero.grant("k", "alice", 60_000);
    nine.grant("k", "bob", 60_000);
    assert_eq!(zero.check("k", "alice"), zero.info("k").map(|info| info.fence));
    assert_eq!(nine.info("k").unwrap().owner, b"bob");
    assert!(nine.release("k", "bob"));
    assert_eq!(zero.cmd("EXISTS k"), int(1));
}
