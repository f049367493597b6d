//! `LOCK.TOP`: which locks are contended most, and how much.

use super::{Figures, until_waited};
use crate::waiting::LONG;
use redis::Value;
use testkit::{Client, Server, Waiter, field, int, lacks, start_pair, wait_until_in_sync};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    key: Vec<u8>,
    db: i64,
    waits: i64,
    refused: i64,
    total: i64,
    longest: i64,
    missed: i64,
}

impl Row {
    fn name(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }
}

#[track_caller]
fn top(client: &mut Client, count: &str) -> Vec<Row> {
    let reply = client.cmd(["LOCK.TOP", count]);
    let Value::Array(rows) = reply else { panic!("{reply:?}") };
    rows.iter().map(row).collect()
}

fn row(row: &Value) -> Row {
    let number = |name| match field(row, name) {
        Some(&Value::Int(number)) => number,
        other => panic!("{name} is {other:?}"),
    };
    let Some(Value::BulkString(key)) = field(row, "key") else { panic!("{row:?}") };
    Row {
        key: key.clone(),
        db: number("db"),
        waits: number("waits"),
        refused: number("refused"),
        total: number("wait-total"),
        longest: number("wait-longest"),
        missed: number("missed"),
    }
}

/// Name, waits and refused tries of all, most contended first.
fn counts(client: &mut Client) -> Vec<(String, i64, i64)> {
    let row = |row: Row| (row.name(), row.waits, row.refused);
    top(client, "-1").into_iter().map(row).collect()
}

fn named(name: &str, waits: i64, refused: i64) -> (String, i64, i64) {
    (name.to_owned(), waits, refused)
}

/// Tries for a lock of alice's, in vain.
fn refuse(client: &mut Client, key: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(client.acquire(key, "stranger", LONG), None);
    }
}

#[test]
fn the_most_contended_comes_first_whether_waited_for_or_tried_for_until_a_reset() {
    let server = Server::builder().module_args("max-waiters-per-lock 5").start();
    let mut client = server.client();
    for key in ["tried", "both", "waited-for", "once", "free"] {
        client.grant(key, "alice", LONG);
    }
    // All of this is no contention.
    client.cmd("LOCK.ACQUIRE free alice 60000 BLOCK 0");
    assert!(client.extend("free", "alice", LONG) && !client.extend("free", "bob", LONG));
    assert!(!client.release("free", "bob") && client.release("free", "alice"));
    assert_eq!(client.cmd("LOCK.TOP"), Value::Array(Vec::new()));
    refuse(&mut client, "once", 1);
    refuse(&mut client, "tried", 3);
    // In transactions and scripts nobody waits.
    let blocking = "LOCK.ACQUIRE both dave 60000 BLOCK 0";
    assert_eq!(client.transaction(&[blocking]), [Value::Nil]);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'dave', 60000, 'BLOCK', 0)";
    client.cmd(["EVAL", script, "1", "both"]);
    let waits = |key, owner| Waiter::of(&server, key, owner);
    let mut waiters = vec![waits("both", "bob"), waits("both", "carol")];
    waiters
        .extend(["bob", "carol", "dave", "erin", "frank"].map(|owner| waits("waited-for", owner)));
    // There is no room for this one.
    let full = client.cmd("LOCK.ACQUIRE waited-for grace 60000 BLOCK 0");
    assert!(matches!(full, Value::ServerError(_)), "{full:?}");
    let expected =
        [named("waited-for", 5, 1), named("both", 2, 2), named("tried", 0, 3), named("once", 0, 1)];
    assert_eq!(counts(&mut client), expected);
    let script = "return redis.call('LOCK.TOP', 1)[1][6]";
    assert_eq!(client.cmd(["EVAL", script, "0"]), int(5), "waits, in a flat array");
    client.cmd("SELECT 3");
    client.grant("once", "alice", LONG);
    refuse(&mut client, "once", 7);
    let first = top(&mut client, "1").remove(0);
    assert_eq!((first.name(), first.db, first.refused), ("once".to_owned(), 3, 7));
    client.cmd("SELECT 0");
    let mut figures = Figures::of(&server);
    assert_eq!(client.cmd("LOCK.TOP reset"), Value::Okay);
    figures.moved(&[]);
    assert_eq!(counts(&mut client), []);
    // A wait that began before is not half counted.
    assert!(client.release("both", "alice"));
    waiters[0].fence();
    refuse(&mut client, "once", 1);
    assert_eq!(counts(&mut client), [named("once", 0, 1)]);
}

#[test]
fn the_times_of_waits_that_are_over_add_up_and_the_longest_is_kept() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    for (holder, owner, millis) in [("alice", "bob", 100), ("bob", "carol", 200)] {
        let mut waiter = Waiter::of(&server, "k", owner);
        until_waited(&mut client, "k", millis);
        assert!(client.release("k", holder));
        waiter.fence();
    }
    let row = top(&mut client, "-1").remove(0);
    assert_eq!((row.waits, row.refused, row.missed), (2, 0, 0), "{row:?}");
    assert!(row.longest >= 200 && row.total >= row.longest + 100, "{row:?}");
    let Value::Array(rows) = server.client_resp3().cmd("LOCK.TOP") else { panic!("no list") };
    assert!(lacks((7, 0), "maps in a module's reply") || matches!(rows[..], [Value::Map(_)]));
}

#[test]
fn names_are_bytes_and_long_ones_are_cut() {
    let server = Server::start();
    let mut client = server.client();
    let odd: &[u8] = b"nul \0, line \r\n and \xff\xfe";
    let (fits, cut, longer) = (vec![b'f'; 128], vec![b'c'; 129], vec![b'c'; 4_128]);
    let keys = [(odd, 4), (&fits[..], 3), (&cut[..], 2), (&longer[..], 1)];
    for (key, times) in keys {
        client.grant(key, "alice", LONG);
        for _ in 0..times {
            assert_eq!(client.acquire(key, "stranger", LONG), None);
        }
    }
    let shown: Vec<_> = top(&mut client, "-1").into_iter().map(|row| row.key).collect();
    let start = "c".repeat(128);
    let expected = [
        odd.to_vec(),
        fits.clone(),
        format!("{start}... (1 more bytes)").into_bytes(),
        // Told apart from the other, though it begins alike.
        format!("{start}... (4000 more bytes)").into_bytes(),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn what_was_counted_as_a_primary_is_still_told_by_a_replica() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    refuse(&mut client, "k", 2);
    wait_until_in_sync(&primary, &other);
    assert_eq!(counts(&mut other.client()), [], "it refused nobody");
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    assert_eq!(counts(&mut client), [named("k", 0, 2)]);
}
