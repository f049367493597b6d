//! What can go wrong. That somebody else has the lock is no error, unless one was to wait for it.

use crate::outcome::Loss;
use redis::{ErrorKind, RedisError};
use std::io;
use std::time::Duration;

/// Why there is no lock, or no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, an option or a name makes no sense. Nothing was asked.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting, or the variable of the environment.
        setting: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// Others had the lock for as long as the request was to wait.
    #[error("the lock {lock} was held by others for {} ms", waited.as_millis())]
    Busy {
        /// The lock.
        lock: String,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// No server that grants locks answered in time.
    #[error("no server that grants locks: {source}")]
    Unreachable {
        /// What the last try came to.
        source: RedisError,
    },
    /// The server answered with an error that another try would not mend.
    #[error("the server refused: {}", words(source))]
    Refused {
        /// The error. [`RedisError::code`] has its first word, such as `NOPERM`.
        source: RedisError,
    },
    /// The lock was granted, too few replicas acknowledged it in time, and it was released again. Of a
    /// [durable](crate::Request::durable) grant it can also be the server that did not write it to disk in time.
    #[error("{}", too_few(lock, *acknowledged, *wanted))]
    TooFewReplicas {
        /// The lock.
        lock: String,
        /// How many replicas had acknowledged the grant when the time was over.
        acknowledged: u64,
        /// How many were asked for.
        wanted: u64,
    },
    /// The lock was granted, and its lease was over when the answer came.
    #[error("the lock {lock} was granted, and its lease over when the answer came")]
    TooLate {
        /// The lock.
        lock: String,
    },
    /// The guard does not hold the lock any more.
    #[error("the lock {lock} was lost: {loss}")]
    Lost {
        /// The lock.
        lock: String,
        /// Why it is held no more.
        loss: Loss,
    },
    /// The command of [`Guard::run_command`](crate::Guard::run_command) was sent, and nobody answered: it may have been
    /// run, once at the most.
    #[error("nobody answered, and the command may have been run: {source}")]
    Unanswered {
        /// What became of the connection.
        source: RedisError,
    },
    /// The server did as it was told, and its reply is of another type than was expected.
    #[error("the reply is of another type: {source}")]
    UnexpectedReply {
        /// What was expected, and what came.
        source: RedisError,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// The client belongs to another tokio runtime, on which it was used first, or there is no runtime here.
    #[error(
        "the client belongs to the tokio runtime on which it was used first, and this is another one, or none"
    )]
    OtherRuntime,
}

impl Error {
    pub(crate) fn setting(setting: &str, reason: impl Into<String>) -> Self {
        Self::Setting { setting: setting.to_owned(), reason: reason.into() }
    }
}

/// The server's own words, where these are the server's.
fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

fn too_few(lock: &str, acknowledged: u64, wanted: u64) -> String {
    if acknowledged >= wanted {
        format!("the server has not written the lock {lock} to disk in time")
    } else {
        format!("{acknowledged} of {wanted} replicas have acknowledged the lock {lock}")
    }
}

/// Nobody answered for so long.
pub(crate) fn unanswered() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

pub(crate) fn unexpected() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "the reply is of an unexpected type").into()
}

pub(crate) fn surprise() -> Error {
    Error::UnexpectedReply { source: unexpected() }
}
