//! Which words are keys: what the server says of it, what the ACL allows, and what a cluster asks.

use super::{LONG, asks, takes};
use redis::Value;
use testkit::errors::wrong_arity;
use testkit::{Server, error, int, lacks_notify, strings, unchanged};

#[test]
fn the_server_finds_every_key_whatever_owners_and_values_are_called() {
    let server = Server::start();
    let mut client = server.client();
    for (command, keys) in [
        ("LOCK.ACQUIRE a o 5 ALSO 2 b c", vec!["a", "b", "c"]),
        ("LOCK.ACQUIRE a o 5 BLOCK 7 also 1 b SHARE 2", vec!["a", "b"]),
        ("LOCK.ACQUIRE a ALSO 5 ALSO 1 b", vec!["a", "b"]),
        ("LOCK.ACQUIRE k ALSO 5 ALSO 2 ALSO 1", vec!["k", "ALSO", "1"]),
        ("LOCK.ACQUIRE a ALSO 5", vec!["a"]),
        ("LOCK.ACQUIRE a o 5 TICKET 5 NOTIFY x EPHEMERAL 1 ALSO 1 b", vec!["a", "b"]),
        ("LOCK.RELEASE a o ALSO 2 b c", vec!["a", "b", "c"]),
        ("LOCK.RELEASE a o 5 ALSO 1 b", vec!["a", "b"]),
        ("LOCK.RELEASE a ALSO", vec!["a"]),
        ("LOCK.RELEASE a ALSO ALSO 1 b", vec!["a", "b"]),
        ("LOCK.EXTEND a o 5 ALSO 1 b", vec!["a", "b"]),
        ("LOCK.EXTEND a o 5 6 ALSO 2 b c", vec!["a", "b", "c"]),
        ("LOCK.EXTEND a ALSO 5", vec!["a"]),
    ] {
        let reply = client.cmd(format!("COMMAND GETKEYS {command}"));
        assert_eq!(strings(&reply), keys, "{command}");
    }
}

/// Redis 6.2 asks the module, and reads the word that it is told, whether there is one or not.
#[test]
fn a_request_without_words_has_no_key() {
    let server = Server::start();
    let mut client = server.client();
    let mut worker = server.user("worker", "+@all ~mine:*");
    for command in ["LOCK.ACQUIRE", "LOCK.RELEASE", "LOCK.EXTEND", "LOCK.GUARD"] {
        let reply = client.cmd(format!("COMMAND GETKEYS {command}"));
        assert!(matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
        assert_eq!(worker.cmd(command), error(&wrong_arity(command)));
    }
}

#[test]
fn a_user_who_lacks_the_right_to_one_of_the_keys_is_refused_and_nothing_changes() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["theirs", "mine:a", "mine:b"]).unwrap();
    let mut worker = server.user("worker", "+@all ~mine:*");
    for request in [
        asks("alice", &["mine:a", "theirs"]),
        asks("alice", &["mine:a", "mine:b", "theirs"]),
        asks("alice", &["theirs", "mine:a"]),
        format!("{} BLOCK 0", asks("bob", &["mine:c", "theirs"])),
        format!("{} TICKET 5000", asks("bob", &["mine:c", "theirs"])),
        "LOCK.RELEASE mine:a alice ALSO 1 theirs".to_owned(),
        format!("LOCK.RELEASE mine:a alice {fence} ALSO 2 mine:b theirs"),
        "LOCK.EXTEND mine:a alice 90000 ALSO 1 theirs".to_owned(),
    ] {
        let reply = unchanged(&server, || worker.cmd(&*request));
        let Value::ServerError(told) = reply else { panic!("{request}: {reply:?}") };
        assert_eq!(told.code(), "NOPERM", "{request}");
    }
    assert_eq!(worker.cmd("LOCK.EXTEND mine:a alice 90000 ALSO 1 mine:b"), int(1));
    assert_eq!(worker.cmd("LOCK.RELEASE mine:a alice ALSO 1 mine:b"), int(2));
}

#[test]
fn a_mistake_in_the_number_of_keys_gives_no_right_to_any() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("theirs", "alice", LONG);
    let mut worker = server.user("worker", "+@all ~mine:*");
    for request in [
        "LOCK.RELEASE theirs alice ALSO x",
        "LOCK.RELEASE theirs alice ALSO 9 mine:a",
        "LOCK.RELEASE theirs alice ALSO 0 mine:a",
        "LOCK.EXTEND theirs alice 5 ALSO 01 mine:a",
        "LOCK.ACQUIRE theirs alice 5 ALSO -1 mine:a",
        "LOCK.ACQUIRE theirs alice 5 TICKET 5 NOTIFY also ALSO 1 mine:a",
        "LOCK.ACQUIRE mine:a alice 5 TICKET 5 NOTIFY also ALSO 1 theirs",
        "LOCK.ACQUIRE mine:a alice 5 ALSO 1 mine:b ALSO 1 theirs",
    ] {
        let reply = unchanged(&server, || worker.cmd(request));
        assert!(matches!(reply, Value::ServerError(_)), "{request}: {reply:?}");
    }
    assert!(client.check("theirs", "alice").is_some());
}

#[test]
fn a_channel_that_the_server_takes_for_the_option_gives_no_right_to_any_key() {
    if lacks_notify() {
        return;
    }
    let server = Server::builder().aof().start();
    let mut worker = server.user("worker", "+@all ~mine:* &*");
    // The server compares words up to a zero byte. Behind such a channel it finds no keys.
    for request in [
        "LOCK.ACQUIRE theirs alice 5000 NOTIFY ALSO\0x TICKET 5",
        "LOCK.ACQUIRE theirs alice 5000 NOTIFY also\0 TICKET 5",
        "LOCK.ACQUIRE mine:a alice 5000 NOTIFY aLSO\0 TICKET 5 ALSO 1 theirs",
        "LOCK.ACQUIRE mine:a alice 5000 TICKET 5 NOTIFY ALSO\0x ALSO 1 theirs",
    ] {
        let reply = unchanged(&server, || worker.cmd(request));
        assert!(matches!(reply, Value::ServerError(_)), "{request:?}: {reply:?}");
    }
    // Others with a zero byte are as any.
    let mut client = server.client();
    client.grant("mine:a", "bob", LONG);
    let request = "LOCK.ACQUIRE mine:a alice 5000 TICKET 5 NOTIFY x\0ALSO ALSO 1 mine:b";
    assert_eq!(worker.cmd(request), Value::Nil);
}
