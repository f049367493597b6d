//! `LOCK.LOG`: what happened to locks that somebody should know of.

use super::{Figures, let_run_out, until_waited};
use crate::waiting::LONG;
use redis::Value;
use testkit::{
    Client, Server, Waiter, deadline, eventually, field, int, is_older_than, lacks, start_pair,
};

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

/// What takes alice's lock `k` away by hand, and the event that it is.
const LOSSES: [(&str, &str); 9] = [
    ("DEL k", "deleted"),
    ("UNLINK k", "deleted"),
    ("RENAME k elsewhere", "deleted"),
    ("MOVE k 5", "deleted"),
    ("FLUSHALL", "deleted"),
    ("FLUSHDB", "deleted"),
    ("PEXPIRE k 0", "deleted"),
    ("EVAL return(redis.call('DEL',KEYS[1])) 1 k", "deleted"),
    ("SET k stranger", "overwritten"),
];

#[test]
fn a_lost_lock_is_noted_at_once_when_somebody_waits_and_else_when_its_holder_comes_back() {
    for (number, (way, event)) in LOSSES.into_iter().enumerate() {
        for somebody_waits in [true, false] {
            let server = Server::start();
            let mut client = in_three(&server);
            client.grant("k", "alice", LONG);
            let end = deadline(&mut client, b"k");
            let mut bob = somebody_waits.then(|| bob_waits(&server));
            let (before, after, entry) = noted(&mut client, |client| {
                client.cmd(way);
                if !somebody_waits {
                    assert_eq!(log(client, "-1"), [], "{way}: nobody has looked");
                    let request = ["LOCK.RELEASE k alice", "LOCK.EXTEND k alice 60000"][number % 2];
                    assert_eq!(client.cmd(request), int(0), "{way}");
                }
            });
            assert_eq!((&entry.event[..], &entry.owner[..]), (event, &b"alice"[..]), "{way}");
            assert!((end - after..=end - before).contains(&entry.ms), "{way}: {entry:?}");
            match &mut bob {
                Some(bob) if event == "deleted" => drop(bob.fence()),
                Some(bob) => bob.assert_waits(&server),
                None => {}
            }
            assert!(!client.release("k", "alice"));
            assert_eq!(log(&mut client, "-1").len(), 1, "{way}: it is told once");
        }
    }
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
fn a_wait_is_long_from_the_threshold_on_however_it_ends() {
    const LONG_MILLIS: i64 = 500;
    let server = Server::builder().module_args("log-long-wait 500").start();
    let mut client = in_three(&server);
    let waits = |key: &str, patience: u64| {
        in_three(&server).acquire(key, "alice", LONG);
        let request = format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK {patience}");
        Waiter::sends_on(in_three(&server), &server, &request)
    };
    let mut short = waits("short", 200);
    let mut impatient = waits("impatient", 500);
    let killed = waits("killed", 0);
    let mut replaced = waits("granted", 0);
    until_waited(&mut client, "granted", LONG_MILLIS);
    assert_eq!((short.reply(), impatient.reply()), (Value::Nil, Value::Nil));
    client.cmd(format!("CLIENT KILL ID {}", killed.id));
    let mut granted = waits("granted", 0);
    assert!(matches!(replaced.reply(), Value::ServerError(_)), "which goes on, and is no end");
    assert!(client.release("granted", "alice"));
    granted.fence();
    let waited: Vec<_> = log(&mut client, "-1").into_iter().rev().collect();
    assert_eq!(waited.len(), 3, "{waited:?}");
    for (entry, key) in waited.iter().zip(["impatient", "killed", "granted"]) {
        assert_eq!((&entry.event[..], &entry.owner[..]), ("long-wait", &b"bob"[..]));
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
    let never = Server::builder().module_args("log-long-wait 0").start();
    assert_eq!(waits(&never, 500), [0_i64; 0]);
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    never.cmd("CONFIG SET leasehold.log-long-wait 200");
    assert_eq!(waits(&never, 200), [1]);
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
fn the_newest_come_first_as_many_as_are_asked_for_and_kept() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.cmd("LOCK.LOG"), Value::Array(Vec::new()));
    make(&mut client, 15);
    let all: Vec<_> = (1..=15).rev().collect();
    for (count, shown) in [("-1", 15), ("1", 1), ("14", 14), ("15", 15), ("1000", 15)] {
        assert_eq!(ids(&mut client, count), all[..shown], "{count}");
    }
    let Value::Array(usual) = client.cmd("LOCK.LOG") else { panic!("no list") };
    assert_eq!(usual.iter().map(|usual| entry(usual).id).collect::<Vec<_>>(), all[..10]);
    let entries = log(&mut client, "-1");
    assert!(entries.is_sorted_by(|newer, older| newer.time >= older.time));
    assert_eq!(entries[0].key, b"made-14");
    let Value::Array(rows) = server.client_resp3().cmd("LOCK.LOG 1") else { panic!("no list") };
    assert!(lacks((7, 0), "maps in a module's reply") || matches!(rows[..], [Value::Map(_)]));
    let mut figures = Figures::of(&server);
    assert_eq!(client.cmd("LOCK.LOG Reset"), Value::Okay);
    figures.moved(&[("log_len", -15)]);
    assert_eq!(ids(&mut client, "-1"), [0_i64; 0]);
    // The numbers go on, and who was told of once is not told of again.
    make(&mut client, 5);
    assert!(!client.release("made-10", "alice"));
    assert_eq!(ids(&mut client, "-1"), [20, 19, 18, 17, 16]);
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    for (length, made, kept) in
        [(3, 0, &[20, 19, 18][..]), (3, 1, &[21, 20, 19]), (5, 1, &[22, 21, 20, 19]), (0, 2, &[])]
    {
        client.cmd(format!("CONFIG SET leasehold.log-max-len {length}"));
        make(&mut client, made);
        assert_eq!(ids(&mut client, "-1"), kept, "{length}");
        assert_eq!(client.counter("log_len"), u64::try_from(kept.len()).unwrap());
    }
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
