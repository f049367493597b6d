//! The ways to wait for a lock that are compared. Each worker has connections and a thread of its own.

use super::contenders::{RELEASE, TTL, load_script};
use super::load::{ONE, Reply};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::{LineClient, Server, encoded};

/// Acquires the lock, or returns for how long it is still held.
const TRY: &str = "\
    if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return -1 end \
    return redis.call('PTTL', KEYS[1])";

/// Releases the lock and tells the waiters.
const RELEASE_AND_TELL: &str = "\
    if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) \
    redis.call('PUBLISH', KEYS[2], '0') return 1 end return 0";

/// The lock that all want, and its channel.
const KEY: &str = "contended";
const CHANNEL: &str = "contended:free";

/// How a worker gets the lock.
pub(crate) trait Waiting: Send {
    /// Returns when it has the lock. The result is the moment when its first request was sent.
    fn acquire(&mut self) -> Instant;
    fn release(&mut self);
}

/// A way to wait, which makes a worker of its kind.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    worker: Worker,
    socket: PathBuf,
    scripts: Scripts,
}

#[derive(Clone)]
struct Scripts {
    compare_and_delete: String,
    try_or_ttl: String,
    release_and_tell: String,
}

#[derive(Clone, Copy)]
enum Worker {
    Queueing,
    ByTicket,
    Passing,
    Polling { pause: Pause },
    Listening,
}

/// The pause between two tries, in milliseconds.
#[derive(Clone, Copy)]
struct Pause {
    least: u64,
    most: u64,
}

pub(crate) const QUEUE: &str = "Leasehold, BLOCK";
pub(crate) const BATON: &str = "BLPOP, LPUSH";
pub(crate) const POLLING: [&str; 2] = ["polling as redis-py", "polling as node-redlock"];

impl Way {
    pub(crate) fn all(server: &Server) -> Vec<Self> {
        let socket = server.socket();
        let scripts = Scripts {
            compare_and_delete: load_script(server, RELEASE),
            try_or_ttl: load_script(server, TRY),
            release_and_tell: load_script(server, RELEASE_AND_TELL),
        };
        let polling = |least, most| Worker::Polling { pause: Pause { least, most } };
        let [redis_py, node_redlock] = POLLING;
        let ways = [
            (QUEUE, Worker::Queueing),
            ("Leasehold, TICKET", Worker::ByTicket),
            (BATON, Worker::Passing),
            ("PUBLISH as Redisson", Worker::Listening),
            ("polling, 5 ms", polling(5, 5)),
            (redis_py, polling(100, 100)),
            (node_redlock, polling(100, 300)),
        ];
        let way = |(name, worker)| Self {
            name,
            worker,
            socket: socket.clone(),
            scripts: scripts.clone(),
        };
        ways.map(way).into()
    }

    /// Makes the lock free before a run.
    pub(crate) fn prepare(&self, server: &Server) {
        server.cmd("FLUSHALL");
        if matches!(self.worker, Worker::Passing) {
            server.cmd(["LPUSH", KEY, "1"]);
        }
    }

    pub(crate) fn worker(&self, number: usize) -> Box<dyn Waiting> {
        let line = LineClient::over_unix(&self.socket).unwrap();
        let owner = format!("{number:08x}-5a1c-4e6b-9d2f-{number:012x}");
        let scripts = &self.scripts;
        let by_script = |script: &str| encoded(["EVALSHA", script, "1", KEY, &owner]);
        match self.worker {
            Worker::Queueing | Worker::ByTicket => {
                let ear = matches!(self.worker, Worker::ByTicket).then(|| {
                    let mut ear = LineClient::over_unix(&self.socket).unwrap();
                    ear.send(&encoded(format!("SUBSCRIBE grants:{number}")));
                    // Three elements, the last of them a number.
                    (0..6).for_each(|_| drop(ear.line().to_vec()));
                    ear
                });
                let waits = match ear {
                    Some(_) => format!("TICKET {TTL} NOTIFY grants:{number}"),
                    None => "BLOCK 0".to_owned(),
                };
                let acquire = encoded(format!("LOCK.ACQUIRE {KEY} {owner} {TTL} {waits}"));
                let release = encoded(format!("LOCK.RELEASE {KEY} {owner}"));
                Box::new(Queueing { line, ear, acquire, release })
            }
            Worker::Passing => Box::new(Passing {
                line,
                receive: encoded(format!("BLPOP {KEY} 0")),
                pass_on: encoded(format!("LPUSH {KEY} 1")),
            }),
            Worker::Polling { pause } => Box::new(Polling {
                line,
                attempt: encoded(format!("SET {KEY} {owner} NX PX {TTL}")),
                release: by_script(&scripts.compare_and_delete),
                pause,
            }),
            Worker::Listening => Box::new(Listening {
                line,
                ear: LineClient::over_unix(&self.socket).unwrap(),
                attempt: encoded(["EVALSHA", &scripts.try_or_ttl, "1", KEY, &owner, TTL]),
                release: encoded(["EVALSHA", &scripts.release_and_tell, "2", KEY, CHANNEL, &owner]),
            }),
        }
    }
}

/// Waits in the server's queue, or keeps a place there and hears of its grant.
struct Queueing {
    line: LineClient,
    /// The connection on which messages arrive, if places are kept.
    ear: Option<LineClient>,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Waiting for Queueing {
    fn acquire(&mut self) -> Instant {
        self.line.send(&self.acquire);
        let sent = Instant::now();
        match (self.line.line(), &mut self.ear) {
            // A message is three elements, in seven lines.
            (b"$-1", Some(ear)) => (0..7).for_each(|_| drop(ear.line().to_vec())),
            (fence, _) => Reply::Number.check(fence),
        }
        sent
    }

    fn release(&mut self) {
        ONE.check(self.line.ask(&self.release));
    }
}

/// Waits for the one element of a list. Such a lock has no owner, and never ends if its holder dies.
struct Passing {
    line: LineClient,
    receive: Vec<u8>,
    pass_on: Vec<u8>,
}

impl Waiting for Passing {
    fn acquire(&mut self) -> Instant {
        self.line.send(&self.receive);
        let sent = Instant::now();
        // The key and the element, each after its length.
        let lines = [&b"*2"[..], b"$9", KEY.as_bytes(), b"$1", b"1"];
        for expected in lines {
            assert_eq!(self.line.line(), expected);
        }
        sent
    }

    fn release(&mut self) {
        Reply::Number.check(self.line.ask(&self.pass_on));
    }
}

/// Tries, and sleeps, and tries again.
struct Polling {
    line: LineClient,
    attempt: Vec<u8>,
    release: Vec<u8>,
    pause: Pause,
}

impl Waiting for Polling {
    fn acquire(&mut self) -> Instant {
        self.line.send(&self.attempt);
        let sent = Instant::now();
        loop {
            match self.line.line() {
                b"+OK" => return sent,
                b"$-1" => {}
                other => panic!("answered {}", other.escape_ascii()),
            }
            let Pause { least, most } = self.pause;
            sleep(Duration::from_millis(rand::random_range(least..=most)));
            self.line.send(&self.attempt);
        }
    }

    fn release(&mut self) {
        ONE.check(self.line.ask(&self.release));
    }
}

/// Subscribes to the channel of a held lock, and tries again at each message or when the lease has ended.
struct Listening {
    line: LineClient,
    /// The connection on which messages arrive.
    ear: LineClient,
    attempt: Vec<u8>,
    release: Vec<u8>,
}

impl Listening {
    /// Tries the lock. Returns for how long it is still held, if it is.
    fn attempt(&mut self) -> Option<Duration> {
        let reply = self.line.ask(&self.attempt);
        let number = reply.strip_prefix(b":").and_then(|digits| str::from_utf8(digits).ok());
        match number.expect("a number").parse::<i64>().unwrap() {
            -1 => None,
            // -2: the lock became free meanwhile.
            left => Some(Duration::from_millis(left.max(1) as u64)),
        }
    }

    /// The reply to each of the two commands is three elements, the last of them a number.
    fn subscribe(&mut self, command: &str) {
        self.ear.send(&encoded([command, CHANNEL]));
        // Earlier messages come first.
        while !self.ear.line().starts_with(b":") {}
    }
}

impl Waiting for Listening {
    fn acquire(&mut self) -> Instant {
        let sent = Instant::now();
        if self.attempt().is_none() {
            return sent;
        }
        self.subscribe("SUBSCRIBE");
        while let Some(left) = self.attempt() {
            self.ear.set_deadline(Some(left));
            // A message is three elements, in seven lines.
            if self.ear.line_in_time().is_some() {
                (1..7).for_each(|_| drop(self.ear.line().to_vec()));
            }
        }
        self.subscribe("UNSUBSCRIBE");
        sent
    }

    fn release(&mut self) {
        ONE.check(self.line.ask(&self.release));
    }
}
