//! Many contended locks, and commands of other clients that name them.

use super::crowd::Crowd;
use super::traffic::Batch;
use super::{Seed, Server, eventually, field};
use redis::Value;

/// A lease and a patience that outlast every test.
const LONG: u64 = 3_600_000;

/// How many words one command of a client that has not logged in may have.
const WORDS_WITHOUT_LOGIN: usize = 10;

/// Locks that are held, each with one waiter.
pub struct Contended {
    /// The names of these locks.
    pub names: Vec<String>,
    /// The waiters, which leave when this is dropped.
    _waiters: Crowd,
}

impl Contended {
    /// Holds this many locks in database 0, with names that begin with `prefix`.
    pub fn hold(server: &Server, prefix: &str, count: usize) -> Self {
        let names: Vec<_> = (0..count).map(|lock| format!("{prefix}{lock:012}")).collect();
        let mut client = server.client();
        for part in names.chunks(500) {
            let all: Vec<_> =
                part.iter().map(|name| format!("LOCK.ACQUIRE {name} holder {LONG}")).collect();
            let granted = client.pipeline(&all.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(granted.iter().all(|reply| matches!(reply, Value::Int(_))), "{granted:?}");
        }
        let mut waiters = Crowd::of(server, count);
        for (index, name) in names.iter().enumerate() {
            waiters.send(index, format!("LOCK.ACQUIRE {name} waiter {LONG} BLOCK 0"));
        }
        for part in names.chunks(500) {
            let all: Vec<_> = part.iter().map(|name| format!("LOCK.INFO {name}")).collect();
            let all: Vec<_> = all.iter().map(String::as_str).collect();
            eventually("everybody waits", || {
                let replies = client.pipeline(&all);
                let is_alone = |reply: &&Value| field(reply, "waiters") != Some(&Value::Int(1));
                replies.iter().find(is_alone).map_or(Ok(()), |one| Err(format!("{one:?}")))
            });
        }
        Self { names, _waiters: waiters }
    }

    /// The batches of clients that poll with `SET NX`: each batch tries sixteen random locks.
    pub fn polls(&self, seed: &mut Seed) -> Vec<Batch> {
        self.batches(seed, |name| format!("SET {name} old NX PX 1000"))
    }

    /// Batches of sixteen commands, each with the name of a random lock.
    pub fn batches(&self, seed: &mut Seed, command: impl Fn(&str) -> String) -> Vec<Batch> {
        let mut batch = || -> Vec<_> {
            (0..16).map(|_| command(&self.names[seed.below(self.names.len())])).collect()
        };
        (0..500).map(|_| Batch::of(&batch())).collect()
    }

    /// One command that names all of the locks.
    pub fn named_at_once(&self) -> Vec<Batch> {
        vec![Batch::of(&[format!("MGET {}", self.names.join(" "))])]
    }

    /// Commands that name all of the locks, each short enough for a client that has not logged in.
    pub fn named_in_short(&self) -> Vec<Batch> {
        let short = |names: &[String]| format!("MGET {}", names.join(" "));
        let all: Vec<_> = self.names.chunks(WORDS_WITHOUT_LOGIN - 1).map(short).collect();
        all.chunks(64).map(Batch::of).collect()
    }
}
