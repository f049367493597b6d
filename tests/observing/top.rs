//! `LOCK.TOP`: which locks are contended most, and how much.

use super::{Figures, until_waited};
use crate::waiting::LONG;
use redis::Value;
use std::collections::HashMap;
use testkit::{
    Client, Seed, Server, Waiter, bulk, field, int, lacks, start_pair, wait_until_in_sync,
};

const DAY: u64 = 86_400_000;

/// How many locks there are counters for.
const COUNTED: usize = 128;

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
fn a_lock_that_nobody_contends_for_is_not_in_the_list() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    client.grant("k", "alice", LONG);
    client.cmd("LOCK.ACQUIRE k alice 60000 BLOCK 0");
    assert!(client.extend("k", "alice", LONG));
    assert!(!client.release("k", "bob"));
    assert!(!client.extend("k", "bob", LONG));
    assert!(client.release("k", "alice"));
    assert_eq!(top(&mut client, "-1"), []);
    assert_eq!(client.cmd("LOCK.TOP"), Value::Array(Vec::new()));
}

#[test]
fn the_most_contended_comes_first_whether_waited_for_or_tried_for() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["tried", "both", "waited-for", "once"] {
        client.grant(key, "alice", LONG);
    }
    refuse(&mut client, "once", 1);
    refuse(&mut client, "tried", 3);
    refuse(&mut client, "both", 2);
    let mut waiters =
        vec![Waiter::of(&server, "both", "bob"), Waiter::of(&server, "both", "carol")];
    for owner in ["bob", "carol", "dave", "erin", "frank"] {
        waiters.push(Waiter::of(&server, "waited-for", owner));
    }
    let expected =
        [named("waited-for", 5, 0), named("both", 2, 2), named("tried", 0, 3), named("once", 0, 1)];
    assert_eq!(counts(&mut client), expected);
    refuse(&mut client, "once", 5);
    assert_eq!(counts(&mut client)[0], named("once", 0, 6));
}

#[test]
fn of_two_that_are_contended_alike_the_one_waited_for_longer_in_all_comes_first() {
    let server = Server::start();
    let mut client = server.client();
    for (key, millis) in [("short", 1), ("long", 1_500), ("middle", 700)] {
        client.grant(key, "alice", DAY);
        let mut bob = Waiter::of(&server, key, "bob");
        until_waited(&mut client, key, millis);
        assert!(client.release(key, "alice"));
        bob.fence();
    }
    let names: Vec<_> = top(&mut client, "-1").iter().map(Row::name).collect();
    assert_eq!(names, ["long", "middle", "short"]);
}

#[test]
fn the_times_of_waits_that_are_over_add_up_and_the_longest_is_kept() {
    let server = Server::start();
    let mut client = server.client();
    let times = |client: &mut Client, waits| {
        let rows = top(client, "-1");
        assert_eq!((rows.len(), rows[0].waits), (1, waits));
        (rows[0].total, rows[0].longest)
    };
    client.grant("k", "alice", DAY);
    let mut bob = Waiter::sends(&server, &format!("LOCK.ACQUIRE k bob {DAY} BLOCK 0"));
    until_waited(&mut client, "k", 300);
    assert_eq!(times(&mut client, 1), (0, 0), "it is not over");
    assert!(client.release("k", "alice"));
    bob.fence();
    let (first, longest) = times(&mut client, 1);
    assert!(first >= 300 && longest == first, "{first}, {longest}");
    // One that gives up, one that is killed, and one that goes on in a newer request.
    let patience = first + 400;
    let mut carol = Waiter::sends(&server, &format!("LOCK.ACQUIRE k carol 60000 BLOCK {patience}"));
    assert_eq!(carol.reply(), Value::Nil);
    let (total, longest) = times(&mut client, 2);
    assert!(longest >= patience, "{longest} of {patience}");
    // Each row is in whole milliseconds.
    assert!((first + longest..=first + longest + 1).contains(&total), "{total}");
    let mut former = Waiter::of(&server, "k", "dave");
    until_waited(&mut client, "k", 200);
    let newer = Waiter::of(&server, "k", "dave");
    assert!(matches!(former.reply(), Value::ServerError(_)));
    assert_eq!(times(&mut client, 4), (total, longest), "it goes on");
    client.cmd(format!("CLIENT KILL ID {}", newer.id));
    let after = times(&mut client, 4).0;
    assert!(after >= total + 200, "{after} after {total}");
    assert_eq!(top(&mut client, "-1")[0].refused, 0);
}

#[test]
fn every_hand_off_of_a_long_queue_ends_one_wait() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let names: Vec<_> = (0..20).map(|number| format!("w{number}")).collect();
    let mut waiters: Vec<_> = names.iter().map(|name| Waiter::of(&server, "k", name)).collect();
    refuse(&mut client, "k", 2);
    assert!(client.release("k", "alice"));
    for (waiter, name) in waiters.iter_mut().zip(&names) {
        waiter.fence();
        assert!(client.release("k", name));
    }
    assert_eq!(counts(&mut client), [named("k", 20, 2)]);
    refuse_free(&mut client);
}

/// A lock that is free again is granted, which is no contention.
fn refuse_free(client: &mut Client) {
    let before = counts(client);
    client.grant("k", "alice", LONG);
    assert_eq!(counts(client), before);
}

#[test]
fn requests_for_which_there_is_no_room_are_refused_tries() {
    let server = Server::builder().module_args("max-waiters 1").start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let _bob = Waiter::of(&server, "k", "bob");
    for _ in 0..3 {
        let full = client.cmd("LOCK.ACQUIRE k carol 60000 BLOCK 0");
        assert!(matches!(full, Value::ServerError(_)), "{full:?}");
    }
    assert_eq!(counts(&mut client), [named("k", 1, 3)]);
}

#[test]
fn in_transactions_and_scripts_each_request_is_counted_once() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let blocking = "LOCK.ACQUIRE k bob 60000 BLOCK 0";
    assert_eq!(
        client.transaction(&["LOCK.ACQUIRE k bob 60000", blocking]),
        [Value::Nil, Value::Nil]
    );
    assert_eq!(counts(&mut client), [named("k", 0, 2)]);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0)";
    client.cmd(["EVAL", script, "1", "k"]);
    assert_eq!(counts(&mut client), [named("k", 0, 3)]);
    let script = "return redis.call('LOCK.TOP')[1][6]";
    assert_eq!(client.cmd(["EVAL", script, "0"]), int(0), "waits, in a flat array");
    assert_eq!(client.transaction(&["LOCK.TOP 1"]).len(), 1);
}

#[test]
fn databases_are_told_apart() {
    let server = Server::start();
    let mut client = server.client();
    for (db, times) in [(0, 1), (3, 3), (15, 2)] {
        client.cmd(format!("SELECT {db}"));
        client.grant("k", "alice", LONG);
        refuse(&mut client, "k", times);
    }
    let dbs: Vec<_> = top(&mut client, "-1").iter().map(|row| (row.db, row.refused)).collect();
    assert_eq!(dbs, [(3, 3), (15, 2), (0, 1)]);
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
fn a_count_limits_the_list_and_ten_is_the_usual_one() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..15 {
        let key = format!("k{number}");
        client.grant(&key, "alice", LONG);
        refuse(&mut client, &key, number + 1);
    }
    let all = top(&mut client, "-1");
    assert_eq!((all.len(), all[0].name().as_str()), (15, "k14"));
    for (count, shown) in [("1", 1), ("14", 14), ("15", 15), ("1000", 15)] {
        assert_eq!(top(&mut client, count), all[..shown], "{count}");
    }
    let Value::Array(usual) = client.cmd("LOCK.TOP") else { panic!("no list") };
    assert_eq!(usual.iter().map(row).collect::<Vec<_>>(), all[..10]);
}

#[test]
fn reset_begins_anew_and_leaves_the_totals_alone() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    client.grant("other", "alice", LONG);
    refuse(&mut client, "k", 3);
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut figures = Figures::of(&server);
    assert_eq!(client.cmd("LOCK.TOP reset"), Value::Okay);
    figures.moved(&[]);
    assert_eq!(counts(&mut client), []);
    refuse(&mut client, "other", 1);
    // A wait that began before is not half counted.
    assert!(client.release("k", "alice"));
    bob.fence();
    assert_eq!(counts(&mut client), [named("other", 0, 1)]);
    refuse(&mut client, "k", 2);
    assert_eq!(counts(&mut client), [named("k", 0, 2), named("other", 0, 1)]);
}

#[test]
fn each_lock_is_a_map_in_resp3_and_flat_in_resp2() {
    let server = Server::start();
    let (mut client, mut resp3) = (server.client(), server.client_resp3());
    client.grant("k", "alice", LONG);
    refuse(&mut client, "k", 2);
    let fields = [
        (bulk("key"), bulk("k")),
        (bulk("db"), int(0)),
        (bulk("waits"), int(0)),
        (bulk("refused"), int(2)),
        (bulk("wait-total"), int(0)),
        (bulk("wait-longest"), int(0)),
        (bulk("missed"), int(0)),
    ];
    let map = Value::Array(vec![Value::Map(fields.to_vec())]);
    let flat = fields.into_iter().flat_map(|(name, value)| [name, value]).collect();
    let flat = Value::Array(vec![Value::Array(flat)]);
    assert_eq!(client.cmd("LOCK.TOP"), flat);
    let expected = if lacks((7, 0), "maps in a module's reply") { flat } else { map };
    assert_eq!(resp3.cmd("LOCK.TOP"), expected);
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

/// Sends many commands at once.
fn send_all(client: &mut Client, commands: &[String]) -> Vec<Value> {
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    commands.chunks(500).flat_map(|chunk| client.pipeline(chunk)).collect()
}

#[test]
fn among_far_more_locks_than_counters_the_heavy_ones_are_found_and_the_figures_are_bounds() {
    let server = Server::start();
    let (mut client, mut seed) = (server.client(), Seed::announced());
    let names: Vec<_> = (0..2_000).map(|number| format!("k{number}")).collect();
    let hold = |name: &String| format!("LOCK.ACQUIRE {name} alice {LONG}");
    send_all(&mut client, &names.iter().map(hold).collect::<Vec<_>>());
    let mut tries = Vec::new();
    for (number, name) in names.iter().enumerate() {
        // Ten heavy ones, the lightest of which has 300.
        let times = if number < 10 { 300 + 50 * number } else { 1 + seed.below(3) };
        tries.extend(vec![name.clone(); times]);
    }
    for at in (1..tries.len()).rev() {
        tries.swap(at, seed.below(at + 1));
    }
    let mut truth: HashMap<&str, i64> = HashMap::new();
    for name in &tries {
        *truth.entry(name).or_default() += 1;
    }
    let commands: Vec<_> =
        tries.iter().map(|name| format!("LOCK.ACQUIRE {name} bob {LONG}")).collect();
    assert!(send_all(&mut client, &commands).iter().all(|reply| *reply == Value::Nil));
    let rows = top(&mut client, "-1");
    assert_eq!(rows.len(), COUNTED);
    for row in &rows {
        let real = truth[row.name().as_str()];
        assert_eq!(row.waits, 0);
        assert!((row.refused..=row.refused + row.missed).contains(&real), "{real}: {row:?}");
    }
    let sure = i64::try_from(tries.len() / COUNTED).unwrap();
    let heavy: Vec<_> = truth.iter().filter(|(_, real)| **real > sure).collect();
    assert!(heavy.len() >= 10, "{}", heavy.len());
    for (name, real) in heavy {
        assert!(rows.iter().any(|row| row.name() == *name), "{name} with {real} is missing");
    }
    let first: Vec<_> = rows[..10].iter().map(Row::name).collect();
    assert!((0..10).all(|number| first.contains(&format!("k{number}"))), "{first:?}");
    assert_eq!(client.counter("tries_refused"), u64::try_from(tries.len()).unwrap());
}

#[test]
fn up_to_as_many_locks_as_there_are_counters_everything_is_exact() {
    let server = Server::start();
    let mut client = server.client();
    let mut commands = Vec::new();
    for number in 0..COUNTED {
        commands.push(format!("LOCK.ACQUIRE k{number} alice {LONG}"));
        commands.extend(vec![format!("LOCK.ACQUIRE k{number} bob {LONG}"); 1 + number % 7]);
    }
    send_all(&mut client, &commands);
    let rows = top(&mut client, "-1");
    assert_eq!(rows.len(), COUNTED);
    for row in &rows {
        let number: i64 = row.name()[1..].parse().unwrap();
        assert_eq!((row.refused, row.missed), (1 + number % 7, 0), "{row:?}");
    }
    assert!(rows.is_sorted_by_key(|row| -row.refused));
    // One more takes the counters of a lock with one try, and says so.
    client.grant("more", "alice", LONG);
    refuse(&mut client, "more", 1);
    let rows = top(&mut client, "-1");
    assert_eq!(rows.len(), COUNTED);
    let more = rows.iter().find(|row| row.name() == "more").unwrap();
    assert_eq!((more.refused, more.missed), (1, 1));
}
