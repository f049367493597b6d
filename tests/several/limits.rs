//! Mistakes, in the order of the page, and how many may wait.

use super::{LONG, as_words, asks, behind, names, takes, waits};
use redis::Value;
use testkit::{Server, assert_each_is_refused, errors, int};

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let server = Server::builder().aof().start();
    let number = "ERR numkeys must be an integer from 1 to 128";
    let fewer = "ERR numkeys is larger than the number of keys";
    let twice = "ERR a key is named twice";
    let option = errors::UNKNOWN_OPTION;
    let (release, extend) =
        (errors::wrong_arity("lock.release"), errors::wrong_arity("lock.extend"));
    let many = format!("LOCK.ACQUIRE a o 5 ALSO 129 {}", as_words(&names(129)).join(" "));
    let long = "k".repeat(4_097);
    let too_long = ["BLOCK 0", "TICKET 5"]
        .map(|option| format!("LOCK.ACQUIRE a o 5 {option} ALSO 2 b {long}"));
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.ACQUIRE a o 5 ALSO", number),
            ("LOCK.ACQUIRE a o 5 ALSO 0", number),
            ("LOCK.ACQUIRE a o 5 ALSO 0 b", number),
            ("LOCK.ACQUIRE a o 5 ALSO -1 b", number),
            ("LOCK.ACQUIRE a o 5 ALSO +1 b", number),
            ("LOCK.ACQUIRE a o 5 ALSO 01 b", number),
            ("LOCK.ACQUIRE a o 5 ALSO x b", number),
            ("LOCK.ACQUIRE a o 5 ALSO 18446744073709551617 b", number),
            (&many, number),
            ("LOCK.ACQUIRE a o 5 ALSO 1", fewer),
            ("LOCK.ACQUIRE a o 5 ALSO 3 b c", fewer),
            ("LOCK.ACQUIRE a o 5 ALSO 1 a", twice),
            ("LOCK.ACQUIRE a o 5 ALSO 2 b b", twice),
            ("LOCK.ACQUIRE a o 5 ALSO 3 b c a BLOCK x", twice),
            ("LOCK.ACQUIRE a o 5 ALSO 1 b c", option),
            ("LOCK.ACQUIRE a o 5 ALSO 1 b ALSO 1 c", option),
            ("LOCK.ACQUIRE a o 5 ALSO 1 b FOO 1", option),
            (&too_long[0], errors::KEY_TOO_LONG_TO_WAIT),
            (&too_long[1], errors::KEY_TOO_LONG_TO_WAIT),
            ("LOCK.ACQUIRE a o x ALSO 0", "ERR ttl must be a positive integer (milliseconds)"),
            ("LOCK.RELEASE a o ALSO", number),
            ("lock.release a o ALSO 1 b c", &release),
            ("lock.release a o 5 ALSO 1 b c", &release),
            ("lock.release a o 5 5 ALSO 1 b", &release),
            (
                "LOCK.RELEASE a o x ALSO 1 b",
                "ERR fence must be an integer from 0 to 9007199254740991",
            ),
            ("LOCK.RELEASE a o 5 ALSO 1 a", twice),
            ("LOCK.RELEASE a o 5 ALSO 2 b", fewer),
            ("LOCK.EXTEND a o 5 ALSO 0", number),
            ("lock.extend a o 5 5 ALSO 1 b c", &extend),
            ("LOCK.EXTEND a o 5 ALSO 1 a", twice),
            ("LOCK.EXTEND a o 5 6 ALSO 2 b", fewer),
            ("lock.check a o ALSO 1 b", &errors::wrong_arity("lock.check")),
        ],
    );
}

#[test]
fn the_word_may_be_in_any_letters_and_the_option_at_any_place() {
    let server = Server::start();
    let mut client = server.client();
    for options in
        ["also 2 b c SHARE 3 BLOCK 5", "SHARE 3 Also 2 b c BLOCK 5", "BLOCK 5 SHARE 3 aLSO 2 b c"]
    {
        let Value::Int(_) = client.cmd(format!("LOCK.ACQUIRE a o {LONG} {options}")) else {
            panic!("{options}")
        };
        assert_eq!(client.cmd("LOCK.RELEASE a o ALSO 2 b c"), int(3));
    }
}

#[test]
fn locks_owners_and_keys_may_be_called_like_the_options() {
    let server = Server::start();
    let mut client = server.client();
    let request = format!("LOCK.ACQUIRE ALSO ALSO {LONG} ALSO 3 BLOCK 2 SHARE");
    let Value::Int(fence) = client.cmd(request) else { panic!("not granted") };
    for key in ["ALSO", "BLOCK", "2", "SHARE"] {
        assert_eq!(client.check(key, "ALSO"), Some(fence.cast_unsigned()), "{key}");
    }
    assert_eq!(client.cmd("LOCK.RELEASE ALSO ALSO ALSO 3 SHARE 2 BLOCK"), int(4));
}

#[test]
fn keys_and_owners_are_bytes() {
    let server = Server::start();
    let mut client = server.client();
    let (key, other, owner): (&[u8], &[u8], &[u8]) = (b"\0\xff k", b"", b"\r\n\x80");
    let words: [&[u8]; 7] = [b"LOCK.ACQUIRE", key, owner, b"60000", b"ALSO", b"1", other];
    let Value::Int(fence) = client.cmd(words) else { panic!("not granted") };
    for key in [key, other] {
        assert_eq!(client.check(key, owner), Some(fence.cast_unsigned()));
    }
}

#[test]
fn one_who_waits_for_several_has_a_place_for_each_and_one_connection() {
    for (limits, keys, full) in [
        ("max-waiters 7", &["a", "b"][..], Some("max-waiters)")),
        ("max-waiters 7", &["a"], None),
        // Two of the 40 connections that there may be.
        ("max-waiters 7 max-waiters-percent 5", &["a"], Some("max-waiters-percent)")),
    ] {
        let server = Server::builder().config("maxclients", "40").module_args(limits).start();
        let mut client = server.client();
        takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
        let _first = waits(&server, "r0", &["a", "b", "c"]);
        let _second = waits(&server, "r1", &["a", "b", "c"]);
        assert_eq!(client.counter("waiters"), 2);
        let Some(full) = full else {
            waits(&server, "r2", keys).assert_waits(&server);
            continue;
        };
        let reply = client.cmd(format!("{} BLOCK 0", asks("r2", keys)));
        let Value::ServerError(told) = reply else { panic!("{limits}: {reply:?}") };
        assert_eq!(told.code(), "QUEUEFULL");
        assert!(told.details().unwrap().ends_with(full), "{limits}: {told:?}");
    }
}

#[test]
fn a_full_queue_of_one_of_them_is_full_for_the_request() {
    let server = Server::builder().module_args("max-waiters-per-lock 1").start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b"]).unwrap();
    let _first = waits(&server, "r0", &["b"]);
    let request = format!("{} BLOCK 0", asks("r1", &["a", "b"]));
    assert!(matches!(client.cmd(request), Value::ServerError(told) if told.code() == "QUEUEFULL"));
    assert_eq!(super::waiting(&mut client, &["a", "b"]), [0, 1]);
}

#[test]
fn a_ticket_for_several_counts_once_for_each() {
    let server = Server::builder().module_args("max-tickets 4").start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let ask = |owner: &str, keys: &[&str]| format!("{} TICKET {LONG}", asks(owner, keys));
    assert_eq!(client.cmd(ask("r0", &["a", "b", "c"])), Value::Nil);
    assert_eq!(client.counter("tickets"), 3);
    let reply = client.cmd(ask("r1", &["a", "b"]));
    assert!(matches!(reply, Value::ServerError(told) if told.code() == "QUEUEFULL"));
    assert_eq!(client.cmd(ask("r1", &["a"])), Value::Nil);
    assert_eq!(client.cmd(ask("r0", &["c", "b", "a"])), Value::Nil, "it has its places");
    assert_eq!(client.counter("tickets"), 4);
    assert_eq!(client.cmd("LOCK.RELEASE b r0"), int(0));
    assert_eq!(client.counter("tickets"), 1, "it waits for none of them any more");
}

#[test]
fn ten_thousand_words_are_an_error_and_no_more() {
    let server = Server::builder().aof().start();
    let many = names(10_000);
    let request = format!("{}{}", asks("o", &["a"]), behind(&as_words(&many)));
    let reply = testkit::unchanged(&server, || server.client().cmd(&*request));
    assert!(matches!(reply, Value::ServerError(_)));
}
