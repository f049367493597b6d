//! What can go wrong. That somebody else has the lock is no error, unless one was to wait for it.

use crate::Loss;
use redis::RedisError;
use std::fmt;
use std::time::Duration;

/// Why there is no lock, or no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting has no sense. Names the variable, or the method, that gave it.
    Setting {
        /// The variable of the environment, or what else the setting is called.
        name: String,
        /// What was wrong, and what is allowed.
        reason: String,
    },
    /// Somebody else had the lock for as long as one was ready to wait.
    Busy {
        /// The lock.
        name: String,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// Nobody answered in time, or nobody who may grant locks.
    Unreachable {
        /// What the last of the tries came to.
        reason: String,
    },
    /// The server answered with an error that another try would not mend.
    Refused {
        /// The error, as the server worded it.
        reason: String,
    },
    /// The lock was granted, too few replicas heard of it, and it was released again.
    TooFewReplicas {
        /// The lock.
        name: String,
        /// How many replicas had heard of it when the time was over.
        acknowledged: u64,
        /// How many were asked for.
        wanted: u64,
    },
    /// The lock was granted, and the answer came when the lease had run out.
    TooLate {
        /// The lock.
        name: String,
    },
    /// The lock was lost, and the work under it was dropped half-way:
    /// [`Locks::run`](crate::Locks::run).
    Lost {
        /// The lock.
        name: String,
        /// Why it is held no more.
        loss: Loss,
    },
    /// The lock is held no more, so the command of a `Guard::run_command` was not run.
    NotRun {
        /// The lock.
        name: String,
        /// Why it is held no more.
        loss: Loss,
    },
    /// The command of a `Guard::run_command` was sent, and nobody answered: it may have been run, once at the most.
    Unanswered {
        /// What became of the connection.
        reason: String,
    },
    /// The command of a `Guard::run_command` was run, and its reply is of another type than the caller asked for.
    UnexpectedReply {
        /// What was asked for, and what came.
        reason: String,
    },
    /// The client was closed, or the runtime that it was started on has ended.
    Closed,
}

impl Error {
    pub(crate) fn setting(name: &str, reason: &str) -> Self {
        Self::Setting { name: name.to_owned(), reason: reason.to_owned() }
    }

    pub(crate) fn unreachable(error: &RedisError) -> Self {
        Self::Unreachable { reason: error.to_string() }
    }

    /// It goes on.
    pub(crate) fn unanswered_release() -> Self {
        Self::Unreachable { reason: "the release has not been answered yet".to_owned() }
    }

    pub(crate) fn refused(error: &RedisError) -> Self {
        let words = [error.code(), error.detail()].map(Option::unwrap_or_default);
        let reason = words.join(" ").trim().to_owned();
        Self::Refused { reason: if reason.is_empty() { error.to_string() } else { reason } }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { name, reason } => write!(f, "{name}: {reason}"),
            Self::Busy { name, waited } => {
                write!(f, "the lock {name} was held by others for {} ms", waited.as_millis())
            }
            Self::Unreachable { reason } => write!(f, "no server that grants locks: {reason}"),
            Self::Refused { reason } => write!(f, "the server refused: {reason}"),
            Self::TooFewReplicas { name, acknowledged, wanted } => {
                write!(f, "{acknowledged} of {wanted} replicas have heard of the lock {name}")
            }
            Self::TooLate { name } => {
                write!(f, "the lock {name} was granted, and its lease over when the answer came")
            }
            Self::Lost { name, loss } => {
                let why = why(*loss);
                write!(f, "the work was stopped because the lock {name} was lost: {why}")
            }
            Self::NotRun { name, loss } => {
                write!(f, "nothing was run because the lock {name} was lost: {}", why(*loss))
            }
            Self::Unanswered { reason } => {
                write!(f, "nobody answered, and the command may have been run: {reason}")
            }
            Self::UnexpectedReply { reason } => {
                write!(f, "the command was run, and its reply is of another type: {reason}")
            }
            Self::Closed => f.write_str("the client was closed, or its runtime has ended"),
        }
    }
}

fn why(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "its lease could have ended",
        Loss::Taken => "the server says that it is not held",
        Loss::Released => "it was released",
        Loss::Closed => "the client was closed",
    }
}

impl std::error::Error for Error {}
