//! `LOCK.LOG`: what happened to locks that somebody should know of.

use super::{Figures, evict, let_run_out, pass, until_waited};
use crate::waiting::LONG;
use redis::Value;
use std::time::Duration;
use testkit::{
    Client, Clock, Server, Waiter, bulk, deadline, eventually, field, int, is_older_than, lacks,
    start_pair,
};

const DAY: u64 = 86_400_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    id: i64,
    time: i64,
    event: String,
    db: i64,
    key: Vec<u8>,
    owner: Vec<u8>,
    ms: i64,
}

#[track_caller]
fn log(client: &mut Client, count: &str) -> Vec<Entry> {
    let reply = client.cmd(["LOCK.LOG", count]);
    let Value::Array(entries) = reply else { panic!("{reply:?}") };
    entries.iter().map(entry).collect()
}

fn entry(entry: &Value) -> Entry {
    let number = |name| match field(entry, name) {
        Some(&Value::Int(number)) => number,
        other => panic!("{name} is {other:?}"),
    };
    let bytes = |name| match field(entry, name) {
        Some(Value::BulkString(bytes)) => bytes.clone(),
        other => panic!("{name} is {other:?}"),
    };
    Entry {
        id: number("id"),
        time: number("time"),
        event: String::from_utf8(bytes("event")).unwrap(),
        db: number("db"),
        key: bytes("key"),
        owner: bytes("owner"),
        ms: number("ms"),
    }
}

/// Event and owner of all entries, oldest first.
fn events(client: &mut Client) -> Vec<(String, String)> {
    let entries = log(client, "-1").into_iter().rev();
    let shown = |entry: Entry| (entry.event, String::from_utf8(entry.owner).unwrap());
    entries.map(shown).collect()
}

fn named(event: &str, owner: &str) -> (String, String) {
    (event.to_owned(), owner.to_owned())
}

/// Does what makes the one and only entry of a new log, of database 3 and `k`. What the server's clock said
/// before and after, and the entry.
#[track_caller]
fn noted(client: &mut Client, act: impl FnOnce(&mut Client)) -> (i64, i64, Entry) {
    let before = client.now();
    act(client);
    let entry = eventually("it is noted", || log(client, "-1").pop().ok_or(()));
    let after = client.now();
    assert!((before..=after).contains(&entry.time), "{entry:?} from {before} to {after}");
    assert_eq!((entry.id, entry.db, &entry.key[..]), (1, 3, &b"k"[..]), "{entry:?}");
    assert_eq!(log(client, "-1").len(), 1, "and nothing else");
    (before, after, entry)
}

/// A connection to database 3 of a new server.
fn in_three(server: &Server) -> Client {
    let mut client = server.client();
    client.cmd("SELECT 3");
    client
}

/// Bob waits for `k` in database 3.
fn bob_waits(server: &Server) -> Waiter {
    Waiter::sends_on(in_three(server), server, "LOCK.ACQUIRE k bob 60000 BLOCK 0")
}

#[test]
fn a_late_release_or_extension_says_by_how_much_it_was_late() {
    for (event, request) in
        [("late-release", "LOCK.RELEASE k alice"), ("late-extend", "LOCK.EXTEND k alice 60000")]
    {
        for somebody_waits in [false, true] {
            let server = Server::start();
            let mut client = in_three(&server);
            client.grant("k", "alice", 100);
            let end = deadline(&mut client, b"k");
            if somebody_waits {
                bob_waits(&server).fence();
            } else {
                let_run_out(&mut client, "k");
            }
            let (before, after, entry) = noted(&mut client, |client| {
                assert_eq!(client.cmd(request), int(0));
            });
            assert_eq!((&entry.event[..], &entry.owner[..]), (event, &b"alice"[..]));
            assert_eq!(entry.ms, entry.time - end);
            assert!((before - end..=after - end).contains(&entry.ms), "{entry:?}");
            assert!(entry.ms > 0, "{entry:?}");
        }
    }
}

#[test]
fn each_late_holder_is_noted_once() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    client.grant("k", "bob", 5);
    let_run_out(&mut client, "k");
    for _ in 0..3 {
        assert!(!client.release("k", "bob"));
        assert!(!client.extend("k", "alice", LONG));
        assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {first}")), int(0));
    }
    assert!(!client.release("k", "carol"), "who never held it");
    let expected = [named("late-release", "bob"), named("late-extend", "alice")];
    assert_eq!(events(&mut client), expected);
}

/// What takes alice's lock `k` away by hand.
const DELETIONS: [&str; 8] = [
    "DEL k",
    "UNLINK k",
    "RENAME k elsewhere",
    "MOVE k 5",
    "FLUSHALL",
    "FLUSHDB",
    "PEXPIRE k 0",
    "EVAL return(redis.call('DEL',KEYS[1])) 1 k",
];

#[test]
fn a_lock_that_is_gone_is_noted_when_its_holder_comes_back() {
    for (number, deletion) in DELETIONS.into_iter().enumerate() {
        let server = Server::start();
        let mut client = in_three(&server);
        client.grant("k", "alice", LONG);
        let end = deadline(&mut client, b"k");
        client.cmd(deletion);
        assert_eq!(log(&mut client, "-1"), [], "{deletion}: nobody has looked");
        let (before, after, entry) = noted(&mut client, |client| {
            let request = ["LOCK.RELEASE k alice", "LOCK.EXTEND k alice 60000"][number % 2];
            assert_eq!(client.cmd(request), int(0), "{deletion}");
        });
        assert_eq!((&entry.event[..], &entry.owner[..]), ("deleted", &b"alice"[..]), "{deletion}");
        assert!((end - after..=end - before).contains(&entry.ms), "{deletion}: {entry:?}");
    }
}

#[test]
fn a_lock_that_is_gone_is_noted_when_the_next_is_granted_it_with_an_owner_that_is_not_known() {
    let server = Server::start();
    let mut client = in_three(&server);
    client.grant("k", "alice", LONG);
    let end = deadline(&mut client, b"k");
    client.cmd("DEL k");
    let (before, after, entry) = noted(&mut client, |client| {
        client.grant("k", "bob", LONG);
    });
    assert_eq!((&entry.event[..], &entry.owner[..]), ("deleted", &b""[..]));
    assert!((end - after..=end - before).contains(&entry.ms), "{entry:?}");
    assert!(!client.release("k", "alice"), "which is not told again");
    assert_eq!(log(&mut client, "-1").len(), 1);
}

#[test]
fn a_lock_that_is_gone_is_noted_at_once_when_somebody_waits() {
    for deletion in DELETIONS {
        let server = Server::start();
        let mut client = in_three(&server);
        client.grant("k", "alice", LONG);
        let end = deadline(&mut client, b"k");
        let mut bob = bob_waits(&server);
        let (before, after, entry) = noted(&mut client, |client| {
            client.cmd(deletion);
        });
        assert_eq!((&entry.event[..], &entry.owner[..]), ("deleted", &b"alice"[..]), "{deletion}");
        assert!((end - after..=end - before).contains(&entry.ms), "{deletion}: {entry:?}");
        bob.fence();
        assert!(!client.release("k", "alice"));
        assert_eq!(log(&mut client, "-1").len(), 1, "{deletion}: it is told once");
    }
}

#[test]
fn of_a_lock_without_an_end_minus_1_was_left() {
    let server = Server::start();
    let mut client = in_three(&server);
    client.grant("k", "alice", LONG);
    client.cmd("PERSIST k");
    let mut bob = bob_waits(&server);
    let (_, _, entry) = noted(&mut client, |client| {
        client.cmd("DEL k");
    });
    bob.fence();
    assert_eq!((&entry.event[..], &entry.owner[..], entry.ms), ("deleted", &b"alice"[..], -1));
}

#[test]
fn a_lock_that_was_overwritten_is_noted_by_a_waiter_at_once_and_else_by_its_holder() {
    for somebody_waits in [true, false] {
        let server = Server::start();
        let mut client = in_three(&server);
        client.grant("k", "alice", LONG);
        let end = deadline(&mut client, b"k");
        let bob = somebody_waits.then(|| bob_waits(&server));
        let (before, after, entry) = noted(&mut client, |client| {
            client.cmd("SET k stranger");
            if !somebody_waits {
                assert_eq!(log(client, "-1"), []);
                assert!(!client.extend("k", "alice", LONG));
            }
        });
        assert_eq!((&entry.event[..], &entry.owner[..]), ("overwritten", &b"alice"[..]));
        assert!((end - after..=end - before).contains(&entry.ms), "{entry:?}");
        if let Some(bob) = bob {
            bob.assert_waits(&server);
        }
        assert!(!client.release("k", "alice"));
        assert!(client.release("k", "stranger"));
        assert_eq!(log(&mut client, "-1").len(), 1, "it is told once");
    }
}

#[test]
fn a_lock_that_was_put_back_after_an_eviction_is_noted() {
    let server = Server::builder().config("maxmemory-policy", "volatile-lru").start();
    let mut client = in_three(&server);
    client.grant("k", "alice", LONG);
    let bob = bob_waits(&server);
    let times = usize::try_from(evict(&mut client, &mut Figures::of(&server))).unwrap();
    let entries = log(&mut client, "-1");
    assert!((1..=times).contains(&entries.len()), "once a second at most: {entries:?}");
    for entry in entries {
        assert_eq!((&entry.event[..], &entry.owner[..]), ("restored", &b"alice"[..]));
        assert_eq!((entry.db, &entry.key[..], entry.ms), (3, &b"k"[..], 0));
    }
    bob.assert_waits(&server);
    assert!(client.release("k", "alice"), "and it is not lost");
}

#[test]
fn where_an_evicted_lock_is_lost_it_is_noted_as_deleted_when_its_holder_comes_back() {
    // Newer servers tell of an eviction in time, and the lock is put back.
    if !is_older_than((7, 2)) {
        return;
    }
    let server = Server::builder().config("maxmemory-policy", "volatile-lru").start();
    let mut client = in_three(&server);
    client.grant("k", "alice", LONG);
    client.cmd("CONFIG SET maxmemory 1");
    eventually("the lock is evicted", || {
        client.cmd("SET filler x");
        client.info("k").map_or(Ok(()), Err)
    });
    client.cmd("CONFIG SET maxmemory 0");
    let (_, _, entry) = noted(&mut client, |client| assert!(!client.release("k", "alice")));
    assert_eq!((&entry.event[..], &entry.owner[..]), ("deleted", &b"alice"[..]));
}

#[test]
fn a_wait_is_long_from_ten_seconds_on_however_it_ends() {
    const LONG_MILLIS: i64 = 10_000;
    let server = Server::start();
    let mut client = in_three(&server);
    let waits = |key: &str, patience: u64| {
        in_three(&server).acquire(key, "alice", DAY);
        let request = format!("LOCK.ACQUIRE {key} bob {DAY} BLOCK {patience}");
        Waiter::sends_on(in_three(&server), &server, &request)
    };
    let mut short = waits("short", 5_000);
    let mut impatient = waits("impatient", 10_000);
    let killed = waits("killed", 0);
    let mut replaced = waits("granted", 0);
    until_waited(&mut client, "granted", LONG_MILLIS);
    assert_eq!(short.reply(), Value::Nil);
    assert_eq!(impatient.reply(), Value::Nil);
    client.cmd(format!("CLIENT KILL ID {}", killed.id));
    let mut granted = waits("granted", 0);
    assert!(matches!(replaced.reply(), Value::ServerError(_)), "which goes on, and is no end");
    assert!(client.release("granted", "alice"));
    granted.fence();
    let waited: Vec<_> = log(&mut client, "-1").into_iter().rev().collect();
    assert_eq!(events(&mut client), vec![named("long-wait", "bob"); 3]);
    for (entry, key) in waited.iter().zip(["impatient", "killed", "granted"]) {
        assert!((LONG_MILLIS..LONG_MILLIS + 5_000).contains(&entry.ms), "{entry:?}");
        assert_eq!((entry.db, &entry.key[..]), (3, key.as_bytes()));
    }
}

/// The ids of the entries after bob has waited for so many milliseconds.
fn waits(server: &Server, millis: i64) -> Vec<i64> {
    let mut client = server.client();
    client.cmd("SET k old");
    let mut bob = Waiter::of(server, "k", "bob");
    until_waited(&mut client, "k", millis);
    client.cmd("LOCK.RELEASE k old");
    bob.fence();
    assert!(client.release("k", "bob"));
    log(&mut client, "-1").iter().map(|entry| entry.id).collect()
}

#[test]
fn what_a_long_wait_is_can_be_set_and_0_is_never() {
    let setup = |args| Server::builder().module_args(args);
    let server = setup("log-long-wait 3000").start();
    assert_eq!(waits(&server, 10), [0_i64; 0]);
    assert_eq!(waits(&server, 3_000), [1]);
    let never = setup("log-long-wait 0").start();
    assert_eq!(waits(&never, 500), [0_i64; 0]);
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    server.cmd("CONFIG SET leasehold.log-long-wait 200");
    assert_eq!(waits(&server, 200), [2, 1]);
    server.cmd("CONFIG SET leasehold.log-long-wait 0");
    assert_eq!(waits(&server, 500), [2, 1]);
}

#[test]
fn a_full_queue_is_noted_once_a_second() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).module_args("max-waiters 0").start();
    let mut client = in_three(&server);
    client.grant("k", "alice", DAY);
    for noted in 1..=3 {
        let full = client.pipeline(&["LOCK.ACQUIRE k carol 60000 BLOCK 0"; 20]);
        assert!(full.iter().all(|reply| matches!(reply, Value::ServerError(_))), "{full:?}");
        assert_eq!(events(&mut client), vec![named("queue-full", "carol"); noted]);
        pass(&mut client, &mut clock, Duration::from_secs(1));
    }
    let newest = log(&mut client, "1").remove(0);
    assert_eq!((newest.db, &newest.key[..], newest.ms), (3, &b"k"[..], 0));
}

/// Makes so many entries.
fn make(client: &mut Client, entries: usize) {
    for number in 0..entries {
        let key = format!("made-{number}");
        client.grant(&key, "alice", LONG);
        client.cmd(format!("DEL {key}"));
        assert!(!client.release(&key, "alice"));
    }
}

fn ids(client: &mut Client, count: &str) -> Vec<i64> {
    log(client, count).iter().map(|entry| entry.id).collect()
}

#[test]
fn the_newest_come_first_ten_of_them_unless_told_how_many() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.cmd("LOCK.LOG"), Value::Array(Vec::new()));
    make(&mut client, 15);
    let all: Vec<_> = (1..=15).rev().collect();
    assert_eq!(ids(&mut client, "-1"), all);
    for (count, shown) in [("1", 1), ("14", 14), ("15", 15), ("1000", 15)] {
        assert_eq!(ids(&mut client, count), all[..shown], "{count}");
    }
    let Value::Array(usual) = client.cmd("LOCK.LOG") else { panic!("no list") };
    assert_eq!(usual.iter().map(|usual| entry(usual).id).collect::<Vec<_>>(), all[..10]);
    let entries = log(&mut client, "-1");
    assert!(entries.is_sorted_by(|newer, older| newer.time >= older.time));
    assert_eq!(entries[0].key, b"made-14");
}

#[test]
fn reset_forgets_the_entries_and_not_the_number_nor_the_counters() {
    let server = Server::start();
    let mut client = server.client();
    make(&mut client, 3);
    let mut figures = Figures::of(&server);
    assert_eq!(client.cmd("LOCK.LOG Reset"), Value::Okay);
    figures.moved(&[("log_len", -3)]);
    assert_eq!(ids(&mut client, "-1"), [0_i64; 0]);
    make(&mut client, 1);
    assert_eq!(ids(&mut client, "-1"), [4]);
    // Who was told of once is not told of again.
    assert!(!client.release("made-0", "alice"));
    assert_eq!(ids(&mut client, "-1"), [4]);
}

#[test]
fn the_log_keeps_as_many_as_it_may_and_drops_the_oldest() {
    let length = |server: &Server| server.client().counter("log_len");
    for (args, kept) in [("", 128), ("log-max-len 1", 1), ("log-max-len 0", 0)] {
        let server = Server::builder().module_args(args).start();
        let mut client = server.client();
        make(&mut client, 130);
        let expected: Vec<_> = (1..=130).rev().take(kept).collect();
        assert_eq!(ids(&mut client, "-1"), expected, "{args}");
        assert_eq!(length(&server), u64::try_from(kept).unwrap());
    }
}

#[test]
fn a_length_set_while_the_server_runs_drops_the_oldest_at_once() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    make(&mut client, 20);
    client.cmd("CONFIG SET leasehold.log-max-len 3");
    assert_eq!(client.counter("log_len"), 3);
    assert_eq!(ids(&mut client, "-1"), [20, 19, 18]);
    make(&mut client, 1);
    assert_eq!(ids(&mut client, "-1"), [21, 20, 19]);
    client.cmd("CONFIG SET leasehold.log-max-len 5");
    make(&mut client, 1);
    assert_eq!(ids(&mut client, "-1"), [22, 21, 20, 19]);
    client.cmd("CONFIG SET leasehold.log-max-len 0");
    make(&mut client, 2);
    assert_eq!(ids(&mut client, "-1"), [0_i64; 0]);
    let refused = client.cmd("CONFIG SET leasehold.log-max-len 10001");
    assert!(matches!(refused, Value::ServerError(_)), "{refused:?}");
}

#[test]
fn names_and_owners_are_bytes_and_long_ones_are_cut() {
    let server = Server::start();
    let mut client = server.client();
    let (key, owner) = (vec![b'k'; 1_128], [&b"\0 \r\n\xff"[..], &[b'o'; 250]].concat());
    client.grant(&key, &owner, LONG);
    client.cmd([b"DEL", &key[..]]);
    assert!(!client.release(&key, &owner));
    let entry = log(&mut client, "1").remove(0);
    assert_eq!(entry.key, format!("{}... (1000 more bytes)", "k".repeat(128)).into_bytes());
    let cut = [&owner[..128], b"... (127 more bytes)"].concat();
    assert_eq!(entry.owner, cut);
}

#[test]
fn each_event_is_a_map_in_resp3_and_flat_in_resp2_and_in_scripts() {
    let server = Server::start();
    let (mut client, mut resp3) = (server.client(), server.client_resp3());
    make(&mut client, 1);
    let entry = log(&mut client, "1").remove(0);
    let fields = [
        (bulk("id"), int(1)),
        (bulk("time"), int(entry.time)),
        (bulk("event"), bulk("deleted")),
        (bulk("db"), int(0)),
        (bulk("key"), bulk("made-0")),
        (bulk("owner"), bulk("alice")),
        (bulk("ms"), int(entry.ms)),
    ];
    let map = Value::Array(vec![Value::Map(fields.to_vec())]);
    let flat = fields.into_iter().flat_map(|(name, value)| [name, value]).collect();
    let flat = Value::Array(vec![Value::Array(flat)]);
    assert_eq!(client.cmd("LOCK.LOG"), flat);
    assert_eq!(client.cmd(["EVAL", "return redis.call('LOCK.LOG')", "0"]), flat);
    assert_eq!(client.transaction(&["LOCK.LOG"])[0], flat);
    let expected = if lacks((7, 0), "maps in a module's reply") { flat } else { map };
    assert_eq!(resp3.cmd("LOCK.LOG"), expected);
}

#[test]
fn what_was_noted_as_a_primary_is_still_told_by_a_replica() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    make(&mut client, 2);
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    assert_eq!(ids(&mut client, "-1"), [2, 1]);
    assert_eq!(other.cmd("LOCK.LOG -1"), Value::Array(Vec::new()));
    assert_eq!(client.cmd("LOCK.LOG RESET"), Value::Okay);
    assert_eq!(ids(&mut client, "-1"), [0_i64; 0]);
}
