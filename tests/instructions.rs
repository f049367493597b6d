//! What each command takes, counted in instructions of the whole server: the same on every run, however busy the
//! machine is, so that what makes a command slower is seen by those who test it.
//!
//! The server runs under callgrind, which writes down what was executed since the last time whenever the server
//! executes `TIME`. So start-up, and what one client does between two commands, are in no count.
//!
//! Each command is compared with one of the server's own, and that is what the budget is about: both change together
//! from compiler to compiler. A shared lock is compared with an exclusive one.

use redis::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use testkit::waiter::{id_of, wait_until_parked};
use testkit::{
    Client, ReplicationStream, Server, announce, is_older_than, is_valkey_since, server_name,
};

/// Enough that what the server does now and then does not count.
const COMMANDS: usize = 2_000;

/// So many other keys that the tables of the server have the room they need, and do not grow while it counts.
const OTHER_KEYS: usize = 6_000;

/// Few enough that what is sent, and the replies, fit the server's buffers: else it depends on the machine how often it
/// needs larger ones.
const AT_ONCE: usize = 50;

/// The least counts: the first time, tables grow and buffers are made, and what the server does by the clock comes on
/// top.
const TIMES: usize = 3;

/// By how much a ratio may be above its budget.
const TOLERANCE: f64 = 1.10;

const ACQUIRE_SCRIPT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
    return redis.call('INCR', KEYS[2]) end return false";
const RELEASE_SCRIPT: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const GUARD_SCRIPT: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('SET', KEYS[2], ARGV[1]) end return false";

/// What is counted: its name, what is sent, and of which other it is to be a multiple. `{k}` stands for the key, `{o}`
/// for the owner, `{d}` for one of a few other keys, and `{fence}` for the fence that all locks have. Each finds what
/// those before it left; what has no name is sent for that alone. A release comes right after the acquisition: some
/// servers store a short value in another way once a module has read it, and take long for that.
const COUNTED: [(&str, &str, &str); 19] = [
    ("LOCK.ACQUIRE", "LOCK.ACQUIRE {k} {o} 30000", "SET NX PX"),
    ("LOCK.RELEASE", "LOCK.RELEASE {k} {o}", "DEL"),
    ("", "LOCK.ACQUIRE {k} {o} 30000", ""),
    ("LOCK.EXTEND", "LOCK.EXTEND {k} {o} 40000", "SET NX PX"),
    ("LOCK.CHECK", "LOCK.CHECK {k} {o}", "GET"),
    ("LOCK.INFO", "LOCK.INFO {k}", "GET"),
    ("", "LOCK.RAISE {k} {o} {fence}", ""),
    ("LOCK.GUARD", "LOCK.GUARD {k} {o} {fence} SET {d} {o}", "SET"),
    ("", "LOCK.RELEASE {k} {o}", ""),
    ("SET", "SET {d} {o}", "SET"),
    ("SET NX PX", "SET {k} {o} NX PX 30000", "SET NX PX"),
    ("GET", "GET {k}", "GET"),
    ("DEL", "DEL {k}", "DEL"),
    ("", "SET {k} {o} NX PX 30000", ""),
    ("EVALSHA guard", "EVALSHA {guard} 2 {k} {d} {o}", "SET"),
    (DELETE_IF_EQUAL, "{delete-if-equal}", "DEL"),
    ("INCR", "INCR fences", "INCR"),
    ("EVALSHA acquire", "EVALSHA {acquire} 2 {k} fences {o} 30000", "SET NX PX"),
    ("EVALSHA release", "EVALSHA {release} 1 {k} {o}", "DEL"),
];

/// The same where somebody listens: the server has a backlog, which is told every change. In the order in which they are sent.
const TOLD: [(&str, &str, &str); 4] = [
    ("told-ACQUIRE", "LOCK.ACQUIRE {k} {o} 30000", TOLD_SET),
    ("told-RELEASE", "LOCK.RELEASE {k} {o}", TOLD_DEL),
    (TOLD_SET, "SET {k} {o} NX PX 30000", TOLD_SET),
    (TOLD_DEL, "DEL {k}", TOLD_DEL),
];
const TOLD_SET: &str = "told SET NX PX";
const TOLD_DEL: &str = "told DEL";

/// A lock that clients take in turn, and its unit: a token that they pass on. What is held when they begin to wait, how the
/// first of them comes to it, and what each sends, in one packet, when it has had its turn.
const HANDED_ON: [(&str, &str, &str, &str, &str); 2] = [
    (
        HAND_OFF,
        "LOCK.ACQUIRE turn nobody 3000000",
        "LOCK.RELEASE turn nobody",
        "LOCK.RELEASE turn {o}",
        "LOCK.ACQUIRE turn {o} 30000 BLOCK 0",
    ),
    (LIST, "PING", "RPUSH item 1", "RPUSH item 1", "BLPOP item 0"),
];

/// So many clients take it in turn.
const IN_TURN: usize = 16;

/// A lock that so many hold all the time, while one more takes it and gives it back, again and again.
const SHARED: [(&str, usize); 4] =
    [("shared-1", 1), ("shared-10", 10), ("shared-100", 100), ("shared-1000", 1_000)];

/// So often that the value is written anew at least once, however many hold it.
const SHARED_TIMES: usize = 800;

/// What it is compared with: the same of a lock that nobody else holds.
const EXCLUSIVE: &str = "exclusive";

/// The owner of a ticket asks again, and what that is compared with: one who is refused, of the same lock.
const TICKET: &str = "TICKET-again";
const REFUSED: &str = "refused try";

const HAND_OFF: &str = "hand-off";

const LIST: &str = "RPUSH, BLPOP";

/// Deletes the key if it holds the owner; where the server has no such command, it is deleted anyway.
const DELETE_IF_EQUAL: &str = "DELIFEQ or its like";

fn delete_if_equal() -> &'static str {
    if is_valkey_since((9, 0)) {
        "DELIFEQ {k} {o}"
    } else if is_older_than((8, 4)) {
        "DEL {k}"
    } else {
        "DELEX {k} IFEQ {o}"
    }
}

/// For the build that users load: see `scripts/test-release`.
#[test]
#[ignore = "it is about the release build, and needs valgrind"]
fn what_each_command_takes_is_within_the_budget() {
    let Ok(version) = Command::new("valgrind").arg("--version").output() else {
        return announce("skipped: instructions are not counted, because valgrind is missing");
    };
    let counts = Counter::start().count();
    let server = server_name();
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    println!("instructions on {server}, pipelined ({version})");
    let budget = budget_of(&server);
    let mut too_many = Vec::new();
    let named = COUNTED.into_iter().filter(|(name, ..)| !name.is_empty());
    let compared = named.map(|(name, _, unit)| (name, unit));
    let compared = compared.chain(TOLD.map(|(name, _, unit)| (name, unit)));
    let compared = compared.chain(HANDED_ON.map(|(name, ..)| (name, LIST)));
    let compared = compared.chain(SHARED.map(|(name, _)| (name, EXCLUSIVE)));
    let mut ours = HashSet::new();
    for (name, unit) in compared.chain([(TICKET, REFUSED), (REFUSED, REFUSED)]) {
        if name != unit && !name.starts_with("EVALSHA") && name != DELETE_IF_EQUAL {
            ours.insert(name);
        }
        let ratio = counts[name] / counts[unit];
        print!("{name:20} {:>7.0}", counts[name]);
        match budget.get(name) {
            Some(most) => {
                println!("  {ratio:5.2} x {unit:9}  budget {most:.2}");
                if ratio > most * TOLERANCE {
                    too_many.push(format!("{name} takes {ratio:.2} x {unit}, not {most:.2}"));
                }
            }
            None if name == unit => println!(),
            None => println!("  {ratio:5.2} x {unit}"),
        }
    }
    let all = |names: &[&str]| names.iter().map(|&name| counts[name]).sum::<f64>();
    let pair = counts[EXCLUSIVE];
    println!("{:20} {pair:>7.0}", "acquire and release");
    for (others, commands) in [
        ("SET, DEL", &["SET NX PX", "DEL"][..]),
        ("SET, INCR, DELIFEQ", &["SET NX PX", "INCR", DELETE_IF_EQUAL]),
        ("EVALSHA, EVALSHA", &["EVALSHA acquire", "EVALSHA release"]),
    ] {
        println!("{others:20} {:>7.0}  {:5.2} x that", all(commands), all(commands) / pair);
    }
    if budget.is_empty() {
        announce(&format!("skipped: {BUDGET} says nothing of {server}"));
    } else {
        let budgeted = budget.keys().map(String::as_str).collect::<HashSet<_>>();
        assert_eq!(budgeted, ours, "what {BUDGET} has for {server}");
    }
    assert!(too_many.is_empty(), "above {BUDGET}: {}", too_many.join("; "));
}

const BUDGET: &str = "benches/instructions.budget";

/// What the budget allows on this server, by command.
fn budget_of(server: &str) -> HashMap<String, f64> {
    let file = Path::new(crate::ROOT).join(BUDGET);
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [product, version, command, most] => (format!("{product} {version}"), command, most),
        _ => panic!("{BUDGET}: {line}"),
    });
    let ours = entries.filter(|(of, _, _)| of == server);
    ours.map(|(_, command, most)| (command.to_owned(), most.parse().unwrap())).collect()
}

/// As long as a UUID.
fn owner(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

/// A server under callgrind.
struct Counter {
    dir: TempDir,
    server: Server,
    client: Client,
    dumps: usize,
}

impl Counter {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let out = format!("--callgrind-out-file={}", dir.path().join("out").display());
        let callgrind = ["valgrind", "--quiet", "--tool=callgrind", "--dump-before=timeCommand"];
        let runner = [&callgrind[..], &[&out]].concat();
        // What the server does by the clock is done as rarely as can be.
        let server = Server::builder().under(&runner).config("hz", "1");
        let server = server.module_args("max-holders 2000").start();
        let mut client = server.client();
        // Else the buffer for replies gets smaller now and then, by the clock. Redis 6.2 knows neither that nor this.
        client.cmd("DEBUG REPLYBUFFER RESIZING 0");
        Self { dir, server, client, dumps: 0 }
    }

    /// Instructions of each command, by name.
    fn count(mut self) -> HashMap<&'static str, f64> {
        let fill = "for i = 1, ARGV[1] do redis.call('SET', 'other:' .. i, i, 'PX', 9000000) end";
        self.client.cmd(["EVAL", fill, "0", &OTHER_KEYS.to_string()]);
        let [acquire, release, guard] =
            [ACQUIRE_SCRIPT, RELEASE_SCRIPT, GUARD_SCRIPT].map(|script| {
                match self.client.cmd(["SCRIPT", "LOAD", script]) {
                    Value::BulkString(sha) => String::from_utf8(sha).unwrap(),
                    other => panic!("SCRIPT LOAD: {other:?}"),
                }
            });
        let mut counts = HashMap::<_, f64>::new();
        let mut note = |name: &'static str, count: f64| {
            let least = counts.entry(name).or_insert(count);
            *least = least.min(count);
        };
        for _ in 0..TIMES {
            let fence = self.later_fence().to_string();
            for (name, pattern, _) in COUNTED {
                let pattern = pattern.replace("{delete-if-equal}", delete_if_equal());
                let pattern = pattern.replace("{acquire}", &acquire).replace("{release}", &release);
                let pattern = pattern.replace("{guard}", &guard).replace("{fence}", &fence);
                note(name, self.instructions(&pattern));
            }
        }
        for _ in 0..TIMES {
            for (name, hold, begin, give, take) in HANDED_ON {
                note(name, self.handed_on(hold, begin, give, take));
            }
        }
        for _ in 0..TIMES {
            for (name, holders) in SHARED {
                note(name, self.shared(holders));
            }
        }
        for _ in 0..TIMES {
            for (name, count) in self.refused() {
                note(name, count);
            }
        }
        // It leaves a backlog behind.
        drop(ReplicationStream::of(&self.server));
        for _ in 0..TIMES {
            for (name, pattern, _) in TOLD {
                note(name, self.instructions(pattern));
            }
        }
        drop(self.server);
        counts.insert(EXCLUSIVE, counts["LOCK.ACQUIRE"] + counts["LOCK.RELEASE"]);
        counts
    }

    /// A fence that is larger than those of the locks that are granted until it is used.
    fn later_fence(&mut self) -> u64 {
        const AN_HOUR: u64 = 3_600_000_000;
        let fence = self.client.grant("turn", "nobody", 1_000);
        self.client.cmd("DEL turn");
        fence + AN_HOUR
    }

    /// Instructions of one acquisition with its release, beside so many who hold the lock all the time.
    fn shared(&mut self, holders: usize) -> f64 {
        self.client.cmd("DEL shared");
        let acquire = |owner: &str| format!("LOCK.ACQUIRE shared {owner} 3000000 SHARE 0");
        let others = (0..holders).map(|number| acquire(&owner(COMMANDS + number)));
        self.send(&others.collect::<Vec<_>>());
        let pairs = (0..SHARED_TIMES).map(owner);
        let pairs = pairs.flat_map(|one| [acquire(&one), format!("LOCK.RELEASE shared {one}")]);
        let pairs: Vec<_> = pairs.collect();
        self.dump();
        self.send(&pairs);
        self.counted(SHARED_TIMES)
    }

    /// Instructions of one who asks again for its ticket, and of one without, while another holds the lock.
    fn refused(&mut self) -> [(&'static str, f64); 2] {
        self.client.cmd("DEL turn");
        self.client.cmd("LOCK.ACQUIRE turn somebody 3000000");
        let ask = |pattern: &str| {
            let ask = |number| pattern.replace("{o}", &owner(number));
            (0..COMMANDS).map(ask).collect::<Vec<_>>()
        };
        let by_ticket = ask("LOCK.ACQUIRE turn {o} 30000 TICKET 3000000");
        let refused = ask("LOCK.ACQUIRE turn other-{o} 30000");
        self.send_in_vain(&by_ticket);
        let counts = [(TICKET, by_ticket), (REFUSED, refused)].map(|(name, lines)| {
            self.dump();
            self.send_in_vain(&lines);
            (name, self.counted(COMMANDS))
        });
        self.send_in_vain(&ask("LOCK.RELEASE turn {o}"));
        self.client.cmd("DEL turn");
        counts
    }

    /// Instructions of one turn.
    fn handed_on(&mut self, hold: &str, begin: &str, give: &str, take: &str) -> f64 {
        let of = |pattern: &str, number: usize| pattern.replace("{o}", &format!("client-{number}"));
        self.client.cmd(hold);
        let mut clients: Vec<_> = (0..IN_TURN)
            .map(|number| {
                let mut client = self.server.client();
                let id = id_of(&mut client);
                client.send(of(take, number));
                wait_until_parked(&self.server, id);
                client
            })
            .collect();
        self.client.cmd(begin);
        clients[0].receive();
        self.dump();
        for turn in 0..COMMANDS {
            let (number, next) = (turn % IN_TURN, (turn + 1) % IN_TURN);
            clients[number].send_all(&[&of(give, number), &of(take, number)]);
            clients[number].receive();
            clients[next].receive();
        }
        let count = self.counted(COMMANDS);
        self.client.cmd("CLIENT KILL TYPE normal");
        self.client.cmd("DEL turn item");
        count
    }

    fn instructions(&mut self, pattern: &str) -> f64 {
        let lines: Vec<_> = (0..COMMANDS)
            .map(|number| {
                let pattern = pattern.replace("{k}", &format!("lock:{number:06}"));
                pattern
                    .replace("{o}", &owner(number))
                    .replace("{d}", &format!("data:{:02}", number % 64))
            })
            .collect();
        self.dump();
        self.send(&lines);
        self.counted(COMMANDS)
    }

    fn send(&mut self, lines: &[String]) {
        self.pipelined(lines, |reply| {
            !matches!(reply, Value::Nil | Value::Int(0) | Value::ServerError(_))
        });
    }

    fn send_in_vain(&mut self, lines: &[String]) {
        self.pipelined(lines, |reply| matches!(reply, Value::Nil | Value::Int(0)));
    }

    fn pipelined(&mut self, lines: &[String], is_expected: impl Fn(&Value) -> bool) {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for batch in lines.chunks(AT_ONCE) {
            for (line, reply) in batch.iter().zip(self.client.pipeline(batch)) {
                assert!(is_expected(&reply), "{line}: {reply:?}");
            }
        }
    }

    /// What was executed since the last time, by so many times that the same was done.
    fn counted(&mut self, times: usize) -> f64 {
        let file = self.dump();
        let text = fs::read_to_string(&file).unwrap_or_else(|error| {
            panic!("callgrind does not know the server's functions by name: {file:?}: {error}")
        });
        let mut totals = text.lines().filter_map(|line| line.strip_prefix("totals: "));
        totals.next().unwrap().trim().parse::<f64>().unwrap() / times as f64
    }

    /// Where it is written down what was executed since the last time.
    fn dump(&mut self) -> PathBuf {
        self.client.cmd("TIME");
        self.dumps += 1;
        self.dir.path().join(format!("out.{}", self.dumps))
    }
}
