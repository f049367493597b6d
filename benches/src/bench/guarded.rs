//! A write that only the holder of a lock can make, against the script that checks and writes, and against the bare write.

use super::Effort;
use super::contenders::{Lock, load_script};
use super::load::{Load, OKAY, Shape, Work, compare, sent_to_replicas};
use super::report::Report;
use super::table::Table;
use redis::Value;
use testkit::{Server, start_pair, wait_until_in_sync};

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
    let bytes = replicated();
    for (name, shape) in SHAPES {
        let server = Server::start();
        let works = works(&server, shape);
        let turns = works.each_ref().map(|work| (0, vec![work]));
        let all = compare(effort.pick(1, 30, 90), &mut [Load::on(&server, shape)], &turns);
        let [guard, script, bare] = [0, 1, 2].map(|way| &all[way][0]);
        let (against_script, against_bare) =
            (script.against(guard).median, guard.against(bare).median);
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

/// What each way does with locks that are all held, those of the script by keys of their own.
fn works(server: &Server, shape: Shape) -> [Work; 3] {
    let mut client = server.client();
    let held = |number| {
        let lock = Lock::numbered(number);
        let fence = client.grant(&lock.key, &lock.owner, 3_600_000);
        let set = lock.in_line("SET mine:{key} {owner}");
        assert_eq!(client.cmd(set), Value::Okay);
        (lock, fence)
    };
    let locks: Vec<_> = (0..LOCKS).map(held).collect();
    let script = load_script(server, SCRIPT);
    WAYS.map(|way| {
        Work::of(shape, &locks, |(lock, fence)| {
            let line = match way {
                GUARD => format!("LOCK.GUARD {{key}} {{owner}} {fence} SET {{counter}} {VALUE}"),
                EVALSHA => format!("EVALSHA {script} 2 mine:{{key}} {{counter}} {{owner}} {VALUE}"),
                _ => format!("SET {{counter}} {VALUE}"),
            };
            vec![(lock.in_line(&line), vec![OKAY])]
        })
    })
}

/// What a replica is sent for each request, which is counted by the server.
fn replicated() -> [f64; 3] {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let (_, shape) = SHAPES[0];
    let mut load = Load::on(&primary, shape);
    let bytes = works(&primary, shape).map(|work| {
        let before = sent_to_replicas(&primary);
        load.measure(&work);
        (sent_to_replicas(&primary) - before) as f64 / LOCKS as f64
    });
    wait_until_in_sync(&primary, &replica);
    bytes
}
