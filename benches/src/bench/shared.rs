//! A lock with several holders: what do one who joins and one who leaves cost, with few and with many who stay?
//!
//! All ways do the same: so many hold the lock all the time; in turns, one more takes it, and the one that has held it the
//! longest gives it back. Nothing is waited for.

use super::Effort;
use super::contenders::{Lock, RELEASE, load_script};
use super::load::{Load, OKAY, ONE, Reply, Samples, Shape, Work, compare, sent_to_replicas};
use super::report::Report;
use super::table::Table;
use redis::Value;
use testkit::{Server, start_pair, wait_until_in_sync};

const SHAPE: Shape = Shape { connections: 1, depth: 32 };

/// How many hold the lock all the time.
const HOLDERS: [usize; 4] = [1, 10, 100, 1_000];

/// About how many take it in one sample.
const TURNS: usize = 2_048;

const SHARED: &str = "Leasehold, SHARE";
const EXCLUSIVE: &str = "Leasehold, exclusive";
const SORTED_SET: &str = "Lua, a sorted set";
const PERMITS: &str = "a key per permit";

/// The semaphore that one finds in most recipes: its holders by the ends of their leases.
const SORTED_SET_ACQUIRE: &str = "\
    local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) \
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) \
    if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then \
    redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1]) \
    redis.call('PEXPIRE', KEYS[1], ARGV[3]) return 1 end return 0";

const SORTED_SET_RELEASE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

/// One way to be one of several holders: how the holder with a number takes it and gives it back, where so many may.
struct Way {
    name: &'static str,
    acquire: String,
    acquired: Reply,
    release: String,
}

/// Those that are compared where so many hold the lock all the time: one more may.
fn ways(server: &Server, holders: usize) -> [Way; 4] {
    let most = holders + 1;
    let [add, remove, delete] = [SORTED_SET_ACQUIRE, SORTED_SET_RELEASE, RELEASE]
        .map(|script| format!("EVALSHA {} 1", load_script(server, script)));
    let way = |name, acquire: String, acquired, release: &str| Way {
        name,
        acquire,
        acquired,
        release: release.to_owned(),
    };
    [
        way(
            SHARED,
            format!("LOCK.ACQUIRE shared {{owner}} {{ttl}} SHARE {most}"),
            Reply::Number,
            "LOCK.RELEASE shared {owner}",
        ),
        way(
            EXCLUSIVE,
            "LOCK.ACQUIRE {key} {owner} {ttl}".to_owned(),
            Reply::Number,
            "LOCK.RELEASE {key} {owner}",
        ),
        way(
            SORTED_SET,
            format!("{add} set {{owner}} {most} {{ttl}}"),
            ONE,
            &format!("{remove} set {{owner}}"),
        ),
        way(
            PERMITS,
            "SET {permit} {owner} NX PX {ttl}".to_owned(),
            OKAY,
            &format!("{delete} {{permit}} {{owner}}"),
        ),
    ]
}

/// Round the ring once: afterwards those hold it who held it before. The first holders take it, and stay until the ring has
/// gone round.
fn begin(server: &Server, way: &Way, holders: usize, turns: usize) -> Work {
    let line = |line: &str, turn: usize| {
        let permit = format!("permit:{}", turn % (holders + 1));
        Lock::numbered(turn).in_line(&line.replace("{permit}", &permit))
    };
    let mut client = server.client();
    for turn in 0..holders {
        let reply = client.cmd(line(&way.acquire, turn));
        assert!(matches!(reply, Value::Int(_) | Value::Okay), "{}: {reply:?}", way.name);
    }
    Work::of(SHAPE, &(0..turns).collect::<Vec<_>>(), |turn| {
        vec![
            (line(&way.acquire, (turn + holders) % turns), vec![way.acquired]),
            (line(&way.release, *turn), vec![ONE]),
        ]
    })
}

/// What one way takes with so many holders.
struct Measured {
    name: &'static str,
    holders: usize,
    /// Of an acquisition and a release.
    samples: Samples,
    /// What replicas are sent for each command.
    bytes: f64,
}

fn measure(holders: usize, effort: Effort) -> Vec<Measured> {
    // So many turns that each permit is at the same place again.
    let about = effort.pick(TURNS / 8, TURNS, TURNS).max(holders + 1);
    let turns = about / (holders + 1) * (holders + 1);
    let setup = || Server::builder().module_args("max-holders 2000");
    let server = setup().start();
    let ways = ways(&server, holders);
    let works = ways.each_ref().map(|way| begin(&server, way, holders, turns));
    let in_turns = works.each_ref().map(|work| (0, vec![work]));
    let all = compare(effort.pick(1, 20, 60), &mut [Load::on(&server, SHAPE)], &in_turns);

    let (primary, replica) = start_pair(setup(), setup());
    let mut load = Load::on(&primary, SHAPE);
    let ways = self::ways(&primary, holders);
    let measured = ways.iter().zip(all).map(|(way, mut samples)| {
        let work = begin(&primary, way, holders, turns);
        load.measure(&work);
        let before = sent_to_replicas(&primary);
        load.measure(&work);
        let bytes = (sent_to_replicas(&primary) - before) as f64 / (2 * turns) as f64;
        Measured { name: way.name, holders, samples: samples.remove(0), bytes }
    });
    let measured = measured.collect();
    wait_until_in_sync(&primary, &replica);
    measured
}

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let counts = &HOLDERS[..effort.pick(2, HOLDERS.len(), HOLDERS.len())];
    let all: Vec<Vec<Measured>> = counts.iter().map(|&count| measure(count, effort)).collect();
    let mut page = Table::new(&[
        "Holders",
        "By",
        "µs of the server's processor a command",
        "half are between",
        "Leasehold against it",
        "bytes to a replica a command",
    ]);
    for group in &all {
        let ours = group[0].samples.processor().median;
        for (number, one) in group.iter().enumerate() {
            // Of one command of the two.
            let processor = one.samples.processor();
            let [low, median, high] =
                [processor.low, processor.median, processor.high].map(|time| time / 2.0 * 1e6);
            let first = if number == 0 { one.holders.to_string() } else { String::new() };
            page.row(vec![
                first,
                one.name.to_owned(),
                format!("{median:.2}"),
                format!("{low:.2}–{high:.2}"),
                if number == 0 {
                    "–".to_owned()
                } else {
                    format!("{:.2} ×", processor.median / ours)
                },
                format!("{:.0}", one.bytes),
            ]);
        }
        targets(group, report);
    }
    report.table("shared", &page);
}

fn targets(group: &[Measured], report: &mut Report) {
    let of = |name| group.iter().find(|one| one.name == name).unwrap();
    let (ours, holders) = (of(SHARED), of(SHARED).holders);
    let what = format!("shared acquire + release, {holders} holders");
    let against_exclusive = ours.samples.against(&of(EXCLUSIVE).samples).median;
    let (pair, time) = ((&*what, "the exclusive pair"), (against_exclusive, 2));
    match holders {
        10 => {
            report.target(pair, "≤ 1.60 × the time", time);
            let faster = of(SORTED_SET).samples.against(&ours.samples).median;
            report.target(("a semaphore of 10", SORTED_SET), "≥ 2.50 ×", (faster, 2));
        }
        100 => report.target(pair, "≤ 3.00 × the time", time),
        1_000 => {
            let micros = ours.samples.processor().median / 2.0 * 1e6;
            report.target((&what, ""), "≤ 10 µs a command", (micros, 2));
        }
        _ => {}
    }
    let sent = format!("{what}: sent to a replica");
    report.target((&sent, ""), "≤ 260 bytes a command", (ours.bytes, 0));
}
