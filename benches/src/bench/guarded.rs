//! A write that only the holder of a lock can make, against the script that checks and writes, and against the bare write.

use super::contenders::{Batch, Lock, OKAY, load_script};
use super::load::{Load, Shape, Work, sent_to_replicas};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use super::{Effort, in_turns};
use redis::Value;
use testkit::{Client, Server, encoded, start_pair, wait_until_in_sync};

const SHAPES: [(&str, Shape); 2] = [
    ("pipelined 32", Shape { connections: 1, depth: 32 }),
    ("unpipelined", Shape { connections: 1, depth: 1 }),
];

/// How many locks take turns, each with a key that it guards.
const LOCKS: usize = 1_024;

/// As long as an owner.
const VALUE: &str = "0123456789abcdef0123456789abcdef0123";

/// What users do without the module: the lock is `SET lock owner NX PX ttl`.
const SCRIPT: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('SET', KEYS[2], ARGV[2]) end return false";

const GUARD: &str = "LOCK.GUARD … SET";
const EVALSHA: &str = "EVALSHA that checks and sets";
const BARE: &str = "SET";
const WAYS: [&str; 3] = [GUARD, EVALSHA, BARE];

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let mut table = Table::new(&[
        "A guarded SET",
        "as fast as the EVALSHA",
        "time of the bare SET",
        "bytes to a replica",
        "of the EVALSHA",
        "of the bare SET",
    ]);
    let bytes = replicated(effort);
    for (name, shape) in SHAPES {
        let [guard, script, bare] = measure(effort, shape);
        let against_script = Spread::of_ratios(&script, &guard).median;
        let against_bare = Spread::of_ratios(&guard, &bare).median;
        let mut row =
            vec![name.to_owned(), format!("{against_script:.2} ×"), format!("{against_bare:.2} ×")];
        row.extend(bytes.iter().map(|bytes| format!("{bytes:.0}")));
        table.row(row);
        let what = format!("LOCK.GUARD with SET, {name}");
        report.target((&what, EVALSHA), "≥ 2.0 ×", (against_script, 2));
        report.target((&what, "the time of SET"), "≤ 3.2 ×", (against_bare, 2));
    }
    report.table("guarded", &table);
}

/// The request of one way for this lock.
fn request(way: &str, lock: &Lock, fence: u64, script: &str) -> Vec<u8> {
    let (key, owner, data) = (&lock.key, &lock.owner, &lock.counter);
    match way {
        GUARD => encoded(["LOCK.GUARD", key, owner, &fence.to_string(), "SET", data, VALUE]),
        // The lock of the script is a key of its own.
        EVALSHA => encoded(["EVALSHA", script, "2", &script_key(lock), data, owner, VALUE]),
        _ => encoded(["SET", data, VALUE]),
    }
}

fn script_key(lock: &Lock) -> String {
    lock.key.replace("lock:", "mine:")
}

/// All locks are held, of either kind. What each way does with them.
fn works(client: &mut Client, server: &Server, shape: Shape) -> [Work; 3] {
    const LONG: u64 = 3_600_000;
    let held = |number| {
        let lock = Lock::numbered(number);
        let fence = client.grant(&lock.key, &lock.owner, LONG);
        assert_eq!(client.cmd(["SET", &script_key(&lock), &lock.owner]), Value::Okay);
        (lock, fence)
    };
    let locks: Vec<_> = (0..LOCKS).map(held).collect();
    let script = load_script(server, SCRIPT);
    WAYS.map(|way| {
        Work::shared(shape, &locks, |locks| {
            let batch = |locks: &[(Lock, u64)]| Batch {
                bytes: locks
                    .iter()
                    .flat_map(|(lock, fence)| request(way, lock, *fence, &script))
                    .collect(),
                replies: vec![OKAY; locks.len()],
            };
            locks.chunks(shape.depth).map(batch).collect()
        })
    })
}

/// The seconds that each takes, by round.
fn measure(effort: Effort, shape: Shape) -> [Vec<f64>; 3] {
    let server = Server::start();
    let works = works(&mut server.client(), &server, shape);
    let mut load = Load::on(&server, shape);
    let mut measured = [const { Vec::new() }; 3];
    in_turns(effort.pick(1, 30, 90), works.len(), |_, way| {
        measured[way].push(load.measure(&works[way], LOCKS).wall);
    });
    measured
}

/// What a replica is sent for each request, which is counted by the server.
fn replicated(effort: Effort) -> [f64; 3] {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut client = primary.client();
    let (_, shape) = SHAPES[0];
    let works = works(&mut client, &primary, shape);
    let mut load = Load::on(&primary, shape);
    let rounds = effort.pick(1, 2, 4);
    let bytes = works.map(|work| {
        let before = sent_to_replicas(&mut client);
        for _ in 0..rounds {
            load.measure(&work, LOCKS);
        }
        (sent_to_replicas(&mut client) - before) as f64 / (rounds * LOCKS) as f64
    });
    wait_until_in_sync(&primary, &replica);
    bytes
}
