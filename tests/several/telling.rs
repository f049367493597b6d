//! What is shown of several locks: to operators, in key events, and in the descriptions of the commands.

use super::{asks, takes, waits};
use redis::Value;
use testkit::{Server, bulk_text, field, int, lacks};

#[test]
fn the_queue_shows_for_how_many_locks_each_waits() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let _several = waits(&server, "bob", &["a", "b", "c"]);
    let _one = waits(&server, "carol", &["b"]);
    let Value::Array(rows) = client.cmd("LOCK.WAITERS b") else { panic!("no list") };
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (bulk_text(field(row, "owner").unwrap()), field(row, "locks").unwrap().clone()))
        .collect();
    assert_eq!(shown, [("bob".to_owned(), int(3)), ("carol".to_owned(), int(1))]);
}

#[test]
fn counters_count_each_lock_and_a_wait_once() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let mut waiter = waits(&server, "bob", &["a", "b", "c"]);
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 2 b c"), int(3));
    waiter.fence();
    let mut counter = |name: &str| client.counter(name);
    assert_eq!((counter("waits_started"), counter("waits_granted")), (1, 1));
    assert_eq!(counter("releases"), 3);
    assert_eq!(counter("grants"), 6);
}

#[test]
fn key_events_tell_of_each_lock_when_all_are_written() {
    let server = Server::builder().config("notify-keyspace-events", "KEA").start();
    let mut client = server.client();
    let mut subscriber = server.client();
    subscriber.cmd("PSUBSCRIBE __keyevent@0__:lock.*");
    takes(&mut client, "alice", &["a", "b"]).unwrap();
    let mut waiter = waits(&server, "bob", &["b", "a"]);
    assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 1 b"), int(2));
    waiter.fence();
    let mut heard = Vec::new();
    while heard.len() < 6 {
        let Value::Array(words) = subscriber.receive() else { panic!("no message") };
        let event = bulk_text(&words[2]).rsplit(':').next().unwrap().to_owned();
        heard.push(format!("{event} {}", bulk_text(&words[3])));
    }
    heard.sort();
    let mut expected = vec![
        "lock.acquired a",
        "lock.acquired b",
        "lock.handed-off a",
        "lock.handed-off b",
        "lock.released a",
        "lock.released b",
    ];
    expected.sort_unstable();
    assert_eq!(heard, expected);
}

#[test]
fn the_descriptions_of_the_commands_name_the_option() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in ["LOCK.ACQUIRE", "LOCK.RELEASE", "LOCK.EXTEND"] {
        let text = format!("{:?}", client.cmd(format!("COMMAND DOCS {command}")));
        for word in ["ALSO", "numkeys", "multiple"] {
            assert!(text.contains(word), "{command}: no {word} in {text}");
        }
        let info = format!("{:?}", client.cmd(format!("COMMAND INFO {command}")));
        for word in ["movablekeys", "keynum", "keyword"] {
            assert!(info.contains(word), "{command}: no {word} in {info}");
        }
    }
    let Value::Array(help) = client.cmd("LOCK.HELP") else { panic!("no help") };
    assert!(help.iter().any(|line| format!("{line:?}").contains("ALSO numkeys key [key ...]")));
}

#[test]
fn the_value_of_a_lock_says_nothing_of_the_others() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b"]).unwrap();
    assert_eq!(bulk_text(&client.cmd("GET b")), format!("{fence}:alice"));
    assert_eq!(client.info("b").unwrap().waiters, 0);
    assert_eq!(client.cmd(asks("alice", &["b", "a"])), int(fence));
}
