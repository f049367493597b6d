//! What a server told in one round, as data.

use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// When this machine received the replies.
    pub(crate) at: Instant,
    pub(crate) facts: Facts,
    pub(crate) locks: Vec<Lock>,
    /// The newest first.
    pub(crate) events: Vec<Event>,
    /// The holders and waiters of the opened lock, if it is on this server.
    pub(crate) opened: Option<Opened>,
    pub(crate) part: Part,
    /// What this server does not tell, and why.
    pub(crate) notes: Vec<String>,
}

/// What a server says about itself. None if the server did not tell it, or has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) version: String,
    /// None without the module. Then there are no queues.
    pub(crate) module: Option<String>,
    pub(crate) is_replica: bool,
    /// The run id, which changes with each start.
    pub(crate) run: String,
    /// The server's clock, in microseconds of Unix time.
    pub(crate) clock: u64,
    pub(crate) held: u64,
    pub(crate) waiters: u64,
    pub(crate) most_waiters: Option<u64>,
    pub(crate) tickets: u64,
    pub(crate) most_tickets: Option<u64>,
    pub(crate) clients: u64,
    pub(crate) most_clients: Option<u64>,
    pub(crate) memory: u64,
    pub(crate) most_memory: Option<u64>,
    pub(crate) grants: u64,
    pub(crate) hand_offs: u64,
    pub(crate) queue_full: u64,
    pub(crate) wait_p50: Duration,
    pub(crate) wait_p99: Duration,
    pub(crate) longest_wait: Duration,
    pub(crate) quarantine: Duration,
    pub(crate) evictions_pending: u64,
    pub(crate) panics: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) key: Vec<u8>,
    /// The name as people see it: without the configured prefix.
    pub(crate) name: String,
    pub(crate) hold: Hold,
    /// None if the server has no queue.
    pub(crate) waiters: Option<u64>,
    /// How long the next waiter has waited.
    pub(crate) oldest: Option<Duration>,
    pub(crate) contention: Contention,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The hold that has lasted longest, and how many holders there are.
    Held {
        hold: Holder,
        holders: u64,
    },
    Free,
    /// The server was not asked, or did not say. The text says why.
    Unknown(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: String,
    pub(crate) fence: u64,
    /// None if it has no expiry.
    pub(crate) left: Option<Duration>,
    /// None if the server does not know it.
    pub(crate) share: Option<u64>,
}

/// Counted since the start of the server, or since its counters were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    pub(crate) waits: u64,
    pub(crate) refused: u64,
    pub(crate) wait_total: Duration,
    pub(crate) wait_longest: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) owner: String,
    pub(crate) client: u64,
    pub(crate) waited: Duration,
    pub(crate) patience: Option<Duration>,
    pub(crate) share: u64,
    pub(crate) kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) key: Vec<u8>,
    /// The first ones, up to the limit of a request.
    pub(crate) holders: Vec<Holder>,
    pub(crate) waiters: Vec<Waiter>,
}

/// An entry of `LOCK.LOG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: u64,
    /// In milliseconds of Unix time, by the clock of the server.
    pub(crate) time: u64,
    pub(crate) what: String,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) millis: Option<u64>,
}

impl Event {
    /// Whether somebody may have worked without the lock.
    pub(crate) fn is_loss(&self) -> bool {
        ["late-release", "late-extend", "deleted", "overwritten"].contains(&self.what.as_str())
    }
}

/// How much of a server's keys is known. A round scans only a part of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) keys: u64,
    pub(crate) looked_at: u64,
    /// Locks that were found but not followed, for lack of room.
    pub(crate) left_out: u64,
}

impl Part {
    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            keys: self.keys.saturating_add(other.keys),
            looked_at: self.looked_at.saturating_add(other.looked_at),
            left_out: self.left_out.saturating_add(other.left_out),
        }
    }

    pub(crate) fn is_all(self) -> bool {
        self.looked_at >= self.keys && self.left_out == 0
    }
}
