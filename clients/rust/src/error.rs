//! Errors. A lock that others hold is not one, unless the request had to wait for it.

use crate::outcome::Loss;
use redis::{ErrorKind, RedisError};
use std::io;
use std::time::Duration;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, an option or a name is invalid. Nothing was sent.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting, or the environment variable.
        setting: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// Others held the lock until the patience of the request ended.
    #[error("the lock {lock} was held by others for {} ms", waited.as_millis())]
    Busy {
        /// The lock.
        lock: String,
        /// How long the request waited.
        waited: Duration,
    },
    /// No server that grants locks answered in time.
    #[error("no server that grants locks: {source}")]
    Unreachable {
        /// The error of the last try.
        source: RedisError,
    },
    /// The server refused, and another try would not help.
    #[error("the server refused: {}", words(source))]
    Refused {
        /// The server's error. [`RedisError::code`] is its first word, such as `NOPERM`.
        source: RedisError,
    },
    /// Too few replicas acknowledged the grant in time, and the lock was released again. For a
    /// [durable](crate::Request::durable) grant, the server itself may not have written the grant to disk in time.
    #[error("{}", too_few(lock, *acknowledged, *wanted))]
    TooFewReplicas {
        /// The lock.
        lock: String,
        /// How many replicas acknowledged the grant in time.
        acknowledged: u64,
        /// How many the request asked for.
        wanted: u64,
    },
    /// The lock was granted, but its lease ended before the answer arrived.
    #[error("the lock {lock} was granted, and its lease over when the answer came")]
    TooLate {
        /// The lock.
        lock: String,
    },
    /// The guard no longer holds the lock.
    #[error("the lock {lock} was lost: {loss}")]
    Lost {
        /// The lock.
        lock: String,
        /// Why the guard lost the lock.
        loss: Loss,
    },
    /// No answer came to the command of [`Guard::run_command`](crate::Guard::run_command). It ran once or not at all.
    #[error("nobody answered, and the command may have been run: {source}")]
    Unanswered {
        /// The error of the connection.
        source: RedisError,
    },
    /// The command ran, and its reply has another type than expected.
    #[error("the reply is of another type: {source}")]
    UnexpectedReply {
        /// The expected and the actual type.
        source: RedisError,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// The client belongs to the tokio runtime of its first use. This is another runtime, or none.
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

/// The server's own words, if the error is the server's.
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

pub(crate) fn unanswered() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

pub(crate) fn unexpected() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "the reply is of an unexpected type").into()
}

pub(crate) fn surprise() -> Error {
    Error::UnexpectedReply { source: unexpected() }
}
