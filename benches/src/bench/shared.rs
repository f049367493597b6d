//! A lock with several holders: what do one who joins and one who leaves cost, with few and with many who stay?
//!
//! All ways do the same: so many hold the lock all the time; in turns, one more takes it, and the one that has held it the
//! longest gives it back. Nothing is waited for.

use super::contenders::{Batch, ONE, Reply, TTL, load_script};
use super::load::{Load, Shape, Work, sent_to_replicas};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use super::{Effort, in_turns};
use redis::Value;
use testkit::{Client, Server, encoded, start_pair, wait_until_in_sync};

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

const PERMIT_RELEASE: &str = super::contenders::RELEASE;

type Words = Vec<Vec<u8>>;

/// One way to be one of several holders.
struct Way {
    name: &'static str,
    acquire: Box<dyn Fn(usize) -> Words>,
    acquired: Reply,
    release: Box<dyn Fn(usize) -> Words>,
}

/// As long as a UUID.
fn owner(number: usize) -> String {
    format!("{number:08x}-5a1c-4e6b-9d2f-{number:012x}")
}

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(|word| word.as_bytes().to_vec()).into()
}

impl Way {
    /// Those that are compared where so many hold the lock all the time: one more may.
    fn all(server: &Server, holders: usize) -> Vec<Self> {
        let most = holders + 1;
        let script = |text| load_script(server, text);
        let shared = Self {
            name: SHARED,
            acquire: Box::new(move |turn| {
                let (owner, most) = (owner(turn), most.to_string());
                words(["LOCK.ACQUIRE", "shared", &owner, TTL, "SHARE", &most])
            }),
            acquired: Reply::Number,
            release: Box::new(|turn| words(["LOCK.RELEASE", "shared", &owner(turn)])),
        };
        let name = |turn| format!("lock:{turn:07}");
        let exclusive = Self {
            name: EXCLUSIVE,
            acquire: Box::new(move |turn| words(["LOCK.ACQUIRE", &name(turn), &owner(turn), TTL])),
            acquired: Reply::Number,
            release: Box::new(move |turn| words(["LOCK.RELEASE", &name(turn), &owner(turn)])),
        };
        let (acquire, release) = (script(SORTED_SET_ACQUIRE), script(SORTED_SET_RELEASE));
        let sorted_set = Self {
            name: SORTED_SET,
            acquire: Box::new(move |turn| {
                let (owner, most) = (owner(turn), most.to_string());
                words(["EVALSHA", &acquire, "1", "set", &owner, &most, TTL])
            }),
            acquired: ONE,
            release: Box::new(move |turn| words(["EVALSHA", &release, "1", "set", &owner(turn)])),
        };
        let release = script(PERMIT_RELEASE);
        let permit = move |turn| format!("permit:{}", turn % most);
        let permits = Self {
            name: PERMITS,
            acquire: Box::new(move |turn| {
                words(["SET", &permit(turn), &owner(turn), "NX", "PX", TTL])
            }),
            acquired: super::contenders::OKAY,
            release: Box::new(move |turn| {
                words(["EVALSHA", &release, "1", &permit(turn), &owner(turn)])
            }),
        };
        vec![shared, exclusive, sorted_set, permits]
    }

    /// The first holders take it, and stay until the ring has gone round.
    fn begin(&self, client: &mut Client, holders: usize) {
        for turn in 0..holders {
            let reply = client.cmd((self.acquire)(turn));
            assert!(matches!(reply, Value::Int(_) | Value::Okay), "{}: {reply:?}", self.name);
        }
    }

    /// Round the ring once: afterwards those hold it who held it before.
    fn work(&self, holders: usize, turns: usize) -> Work {
        let numbers: Vec<usize> = (0..turns).collect();
        Work::shared(SHAPE, &numbers, |numbers| {
            let batch = |turns_of_batch: &[usize]| {
                let mut batch = Batch { bytes: Vec::new(), replies: Vec::new() };
                for turn in turns_of_batch {
                    batch.bytes.extend(encoded((self.acquire)((turn + holders) % turns)));
                    batch.bytes.extend(encoded((self.release)(*turn)));
                    batch.replies.extend([self.acquired, ONE]);
                }
                batch
            };
            numbers.chunks(SHAPE.depth).map(batch).collect()
        })
    }
}

/// What one way takes with so many holders.
struct Measured {
    name: &'static str,
    holders: usize,
    /// Of the server's processor for each command, by round.
    processor: Vec<f64>,
    wall: Vec<f64>,
    /// What replicas are sent for each command.
    bytes: f64,
}

/// So many turns that each permit is at the same place again.
fn turns(holders: usize, effort: Effort) -> usize {
    let about = effort.pick(TURNS / 8, TURNS, TURNS).max(holders + 1);
    about / (holders + 1) * (holders + 1)
}

fn measure(holders: usize, effort: Effort) -> Vec<Measured> {
    let (server, turns) = (server(), turns(holders, effort));
    let ways = Way::all(&server, holders);
    let mut client = server.client();
    let mut load = Load::on(&server, SHAPE);
    let work: Vec<Work> = ways.iter().map(|way| way.work(holders, turns)).collect();
    for (way, work) in ways.iter().zip(&work) {
        way.begin(&mut client, holders);
        load.measure(work, 2 * turns);
    }
    let mut measured: Vec<Measured> = ways
        .iter()
        .map(|way| Measured {
            name: way.name,
            holders,
            processor: Vec::new(),
            wall: Vec::new(),
            bytes: 0.0,
        })
        .collect();
    in_turns(effort.pick(1, 20, 60), ways.len(), |_, one| {
        let sample = load.measure(&work[one], 2 * turns);
        measured[one].processor.push(sample.processor);
        measured[one].wall.push(sample.wall);
    });
    replicate(holders, turns, &mut measured);
    measured
}

fn server() -> Server {
    Server::builder().module_args("max-holders 2000").start()
}

/// What a replica is sent, which is counted by the server.
fn replicate(holders: usize, turns: usize, measured: &mut [Measured]) {
    let setup = || Server::builder().module_args("max-holders 2000");
    let (primary, replica) = start_pair(setup(), setup());
    let (mut client, mut load) = (primary.client(), Load::on(&primary, SHAPE));
    for (way, measured) in Way::all(&primary, holders).iter().zip(measured) {
        way.begin(&mut client, holders);
        let work = way.work(holders, turns);
        load.measure(&work, 2 * turns);
        let before = sent_to_replicas(&mut client);
        load.measure(&work, 2 * turns);
        measured.bytes = (sent_to_replicas(&mut client) - before) as f64 / (2 * turns) as f64;
    }
    wait_until_in_sync(&primary, &replica);
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
        let ours = Spread::of(group[0].processor.iter().copied()).median;
        for (number, one) in group.iter().enumerate() {
            let processor = Spread::of(one.processor.iter().map(|time| time * 1e6));
            let first = if number == 0 { one.holders.to_string() } else { String::new() };
            page.row(vec![
                first,
                one.name.to_owned(),
                format!("{:.2}", processor.median),
                format!("{:.2}–{:.2}", processor.low, processor.high),
                if number == 0 {
                    "–".to_owned()
                } else {
                    format!("{:.2} ×", processor.median / (ours * 1e6))
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
    let against_exclusive = Spread::of_ratios(&ours.wall, &of(EXCLUSIVE).wall);
    let (pair, time) = ((&*what, "the exclusive pair"), (against_exclusive.median, 2));
    match holders {
        10 => {
            report.target(pair, "≤ 1.60 × the time", time);
            let faster = Spread::of_ratios(&of(SORTED_SET).wall, &ours.wall).median;
            report.target(("a semaphore of 10", SORTED_SET), "≥ 2.50 ×", (faster, 2));
        }
        100 => report.target(pair, "≤ 3.00 × the time", time),
        1_000 => {
            let micros = Spread::of(ours.processor.iter().copied()).median * 1e6;
            report.target((&what, ""), "≤ 10 µs a command", (micros, 2));
        }
        _ => {}
    }
    let sent = format!("{what}: sent to a replica");
    report.target((&sent, ""), "≤ 260 bytes a command", (ours.bytes, 0));
}
