//! Pipelining clients that change locks all the time, and the comparison of what servers hold.

use redis::Value;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use testkit::{LineClient, Server, encoded, is_older_than, wait_until_in_sync};

const WRITERS: usize = 3;

/// So many that a change which a replica has missed is not made good by the next change of that key before it is noticed.
const KEYS_OF_EACH: usize = 6_000;

const AT_ONCE: usize = 60;

/// With them, as many locks are granted that nobody names again: who has missed such a grant never gets it. At some ten
/// thousand changes a second each of the others is made good within a second.
const ONCE_AT_ONCE: usize = AT_ONCE;

/// What is done to each key in turn, to most of them, to one in four, and to one in sixteen. `{k}` stands for the key.
const ROUND: [[&str; 3]; 5] = [
    [
        "LOCK.ACQUIRE {k} a 60000000",
        "LOCK.ACQUIRE {k} a 60000000 SHARE 0",
        "LOCK.ACQUIRE {k} a 60000000",
    ],
    ["LOCK.EXTEND {k} a 70000000", "LOCK.ACQUIRE {k} b 80000000 SHARE 0", "EVAL {extend} 1 {k}"],
    ["LOCK.RELEASE {k} a", "LOCK.RELEASE {k} a", "LOCK.RELEASE {k} a"],
    ["LOCK.ACQUIRE {k} b 60000000", "LOCK.RELEASE {k} b", "EVAL {acquire} 1 {k}"],
    ["LOCK.RELEASE {k} b", "LOCK.ACQUIRE {k} c 60000000 SHARE 0", "LOCK.RELEASE {k} b"],
];
const EXTEND: &str = "return redis.call('LOCK.EXTEND', KEYS[1], 'a', 86000000)";
const ACQUIRE: &str = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'b', 86000000)";

fn key(writer: usize, number: usize) -> String {
    format!("load:{writer}:{number:05}")
}

/// The requests of a writer, many at a time, for ever the same.
fn batches(writer: usize) -> Vec<Vec<u8>> {
    let request = |pattern: &str, number: usize| {
        let key = key(writer, number);
        let words = pattern.split(' ').map(|word| match word {
            "{k}" => key.clone(),
            "{extend}" => EXTEND.to_owned(),
            "{acquire}" => ACQUIRE.to_owned(),
            word => word.to_owned(),
        });
        encoded(words.map(String::into_bytes).collect::<Vec<_>>())
    };
    let mut batches = Vec::new();
    for patterns in ROUND {
        for first in (0..KEYS_OF_EACH).step_by(AT_ONCE) {
            let numbers = first..first + AT_ONCE;
            let pattern = |number: usize| match number % 16 {
                3 => patterns[2],
                rest if rest % 4 == 0 => patterns[1],
                _ => patterns[0],
            };
            batches.push(numbers.flat_map(|number| request(pattern(number), number)).collect());
        }
    }
    batches
}

/// The socket of a server, and the how manieth it is: one that was started again has the same.
#[derive(Clone, PartialEq, Eq)]
struct Target {
    socket: PathBuf,
    number: u64,
}

/// Writers, until it is dropped. They go on with another server when told to.
pub(super) struct Load {
    /// Where they write. Held to be read by each that writes.
    target: Arc<RwLock<Target>>,
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn on(server: &Server) -> Self {
        let target = Target { socket: server.socket(), number: 0 };
        let target = Arc::new(RwLock::new(target));
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writers = (0..WRITERS).map(|writer| {
            let (target, over, answered) = (target.clone(), over.clone(), answered.clone());
            thread::spawn(move || write(writer, &target, &over, &answered))
        });
        let writers = writers.collect();
        Self { target, over, answered, writers }
    }

    /// Does something while nobody writes.
    pub(super) fn paused<T>(&self, act: impl FnOnce() -> T) -> T {
        let _nobody = self.target.write().unwrap_or_else(PoisonError::into_inner);
        self.assert_alive();
        act()
    }

    /// The same, after which all write to the server that comes out of it.
    pub(super) fn moved(&self, act: impl FnOnce() -> PathBuf) {
        let mut target = self.target.write().unwrap_or_else(PoisonError::into_inner);
        self.assert_alive();
        *target = Target { socket: act(), number: target.number + 1 };
    }

    #[track_caller]
    fn assert_alive(&self) {
        assert!(!self.writers.iter().any(JoinHandle::is_finished), "a writer failed");
    }

    /// How many requests were answered.
    pub(super) fn finish(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        for writer in self.writers.drain(..) {
            writer.join().expect("a writer failed");
        }
        self.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn once(writer: usize, grants: &mut usize) -> Vec<u8> {
    let numbers = *grants..*grants + ONCE_AT_ONCE;
    *grants = numbers.end;
    let grant = |number| encoded(format!("LOCK.ACQUIRE once:{writer}:{number} a 60000000"));
    numbers.flat_map(grant).collect()
}

fn write(writer: usize, target: &RwLock<Target>, over: &AtomicBool, answered: &AtomicU64) {
    let batches = batches(writer);
    let mut connected: Option<(Target, LineClient)> = None;
    let mut grants = 0;
    for batch in batches.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let target = target.read().unwrap_or_else(PoisonError::into_inner);
        if connected.as_ref().is_none_or(|(former, _)| *former != *target) {
            let client = LineClient::over_unix(&target.socket).expect("the server is up");
            connected = Some((target.clone(), client));
        }
        let Some((_, client)) = &mut connected else { return };
        client.send(batch);
        client.send(&once(writer, &mut grants));
        for _ in 0..AT_ONCE + ONCE_AT_ONCE {
            let reply = client.line();
            assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
        }
        answered.fetch_add((AT_ONCE + ONCE_AT_ONCE) as u64, Ordering::Relaxed);
    }
}

/// What a server holds of the writers' keys, and a digest of all that it holds.
#[derive(PartialEq, Eq)]
pub(super) struct Holdings {
    digest: String,
    deadlines: Vec<String>,
}

impl Holdings {
    pub(super) fn of(server: &Server) -> Self {
        let digest = match server.cmd("DEBUG DIGEST") {
            Value::SimpleString(digest) => digest,
            other => panic!("DEBUG DIGEST: {other:?}"),
        };
        let mut deadlines = Vec::new();
        if is_older_than((7, 0)) {
            return Self { digest, deadlines };
        }
        let mut client = server.line_client();
        for writer in 0..WRITERS {
            for first in (0..KEYS_OF_EACH).step_by(AT_ONCE * 10) {
                let keys = (first..first + AT_ONCE * 10).map(|number| key(writer, number));
                let ask = |key: String| encoded(["PEXPIRETIME", &key]);
                client.send(&keys.clone().flat_map(ask).collect::<Vec<_>>());
                deadlines.extend(
                    keys.map(|key| format!("{key} {}", String::from_utf8_lossy(client.line()))),
                );
            }
        }
        Self { digest, deadlines }
    }

    /// Panics unless both are the same, and says what is not.
    #[track_caller]
    pub(super) fn assert_same(&self, other: &Self, what: &str) {
        if self == other {
            return;
        }
        let mut text = String::new();
        let both = self.deadlines.iter().zip(&other.deadlines);
        for (ours, theirs) in both.filter(|(ours, theirs)| ours != theirs).take(5) {
            write!(text, "\n  {ours}, not {theirs}").unwrap();
        }
        panic!("{what}: {} and {}{text}", self.digest, other.digest);
    }
}

/// Both at the same point of the stream, while nobody writes.
#[track_caller]
pub(super) fn assert_same(primary: &Server, replica: &Server, what: &str) {
    wait_until_in_sync(primary, replica);
    Holdings::of(primary).assert_same(&Holdings::of(replica), what);
}
