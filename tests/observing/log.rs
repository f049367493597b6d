//! `LOCK.LOG`: what happened to locks that somebody should know of.

use super::{let_run_out, play, until_waited};
use crate::waiting::LONG;
use redis::Value;
use testkit::{
    Client, Server, Waiter, deadline, eventually, field, int, items, number, start_pair,
    wait_until_in_sync,
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
    let number = |name| number(entry, name);
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

#[test]
fn the_newest_come_first_and_as_many_are_kept_as_is_set() {
    play(
        "log-max-len 3",
        "",
        "
        # until they are forgotten
        LOCK.LOG -> (empty)
        LOCK.ACQUIRE k a 60000; DEL k; LOCK.RELEASE k a; LOCK.LOG -> A; 1; 0; deleted(a)
        LOCK.ACQUIRE k b 60000; DEL k; LOCK.RELEASE k b; LOCK.LOG -> B; 1; 0; deleted(b) deleted(a)
        LOCK.ACQUIRE k c 60000; DEL k; LOCK.RELEASE k c -> C; 1; 0
        LOCK.ACQUIRE k d 60000; DEL k; LOCK.RELEASE k d -> D; 1; 0
        LOCK.LOG -1; LOCK.LOG 2 -> deleted(d) deleted(c) deleted(b); deleted(d) deleted(c)
        INFO leasehold_log_len -> 3
        LOCK.RELEASE k d; LOCK.LOG Reset; LOCK.LOG -1 -> 0; OK; (empty)
        LOCK.RELEASE k d; LOCK.LOG -1 -> 0; (empty)
        ",
    );
}

#[test]
fn what_was_noted_as_a_primary_is_still_told_by_a_replica() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    assert_eq!(client.acquire("k", "bob", LONG), None);
    client.cmd("DEL k");
    assert!(!client.release("k", "alice"));
    wait_until_in_sync(&primary, &other);
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    for list in ["LOCK.LOG", "LOCK.TOP"] {
        assert_eq!(items(&client.cmd(list)).len(), 1, "{list}");
        assert_eq!(other.cmd(list), Value::Array(Vec::new()), "{list}");
        assert_eq!(client.cmd(format!("{list} RESET")), Value::Okay);
        assert_eq!(client.cmd(list), Value::Array(Vec::new()), "{list}");
    }
}
