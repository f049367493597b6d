//! What is sent for a request, and how the answer reads. Pure: no connection.
//!
//! Both dialects keep a lock in the same key with the same value, `<fence>:<owner>` with a fence of sixteen digits, so
//! clients that speak one and clients that speak the other keep each other out.

pub(crate) mod native;
pub(crate) mod plain;
pub(crate) mod scripts;

use crate::share::Share;
use redis::{Cmd, ErrorKind, RedisError, Value};
use scripts::Script;
use std::time::Duration;

/// How a client speaks with the server that it is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// The server has the module: its commands, its queue, its fences.
    Native,
    /// It has not: scripts, or commands that compare where there are some. Whoever waits polls.
    Plain,
}

/// Which commands that compare a server without the module has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compares {
    /// None: scripts do it.
    Scripts,
    /// `SET key value IFEQ value`: Valkey 8.1.
    Set,
    /// That and `DELEX`: Redis 8.4.
    Delex,
    /// That and `DELIFEQ`: Valkey 9.0.
    Delifeq,
}

/// What a connection found out about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Native,
    Plain(Compares),
}

/// What is said where a server takes no more than one lock in a request.
pub(crate) const NO_ALSO: &str = "several locks in one request need a newer module";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Question<'a> {
    Acquire {
        owner: &'a str,
        share: Share,
        ttl: Duration,
        /// Binds the hold to the connection, which it may outlive by so long; only native.
        grace: Option<Duration>,
        /// The keys of other locks that are to be had with this one, by one grant; only native.
        also: &'a [String],
    },
    /// Waits in the queue for so long, or without limit; only native.
    Wait {
        owner: &'a str,
        share: Share,
        ttl: Duration,
        patience: Option<Duration>,
        also: &'a [String],
    },
    /// Keeps a place in the queue for so long, without waiting, and says so on a channel when it is granted; only native.
    Ticket {
        owner: &'a str,
        share: Share,
        ttl: Duration,
        grace: Option<Duration>,
        kept: Duration,
        channel: Option<&'a str>,
        also: &'a [String],
    },
    Extend {
        owner: &'a str,
        fence: u64,
        ttl: Duration,
    },
    Release {
        owner: &'a str,
        fence: u64,
    },
    /// Whatever fence it has.
    ReleaseAny {
        owner: &'a str,
        also: &'a [String],
    },
    /// Gives the grant a larger fence; the answer is the one now in force.
    Raise {
        owner: &'a str,
        fence: u64,
    },
}

impl Server {
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::Native => Dialect::Native,
            Self::Plain(_) => Dialect::Plain,
        }
    }

    pub(crate) fn command(self, key: &str, question: Question<'_>) -> Cmd {
        match self {
            Self::Native => native::command(key, question),
            Self::Plain(compares) => plain::command(compares, key, question),
        }
    }

    /// Refuses what would mean something else in this dialect: without the module a lock has one
    /// holder, and its hold does not end with a connection.
    pub(crate) fn check(self, question: Question<'_>) -> Result<(), RedisError> {
        let (share, grace, also) = match question {
            Question::Acquire { share, grace, also, .. }
            | Question::Ticket { share, grace, also, .. } => (share, grace, also),
            Question::Wait { share, also, .. } => (share, None, also),
            _ => return Ok(()),
        };
        let (option, reason) = match self {
            Self::Plain(_) if share != Share::Exclusive => (
                "SHARE",
                "a lock with several holders needs the module, which this server does not have",
            ),
            Self::Plain(_) if grace.is_some() => {
                ("EPHEMERAL", "an ephemeral hold needs the module, which this server does not have")
            }
            Self::Plain(_) if !also.is_empty() => ("ALSO", NO_ALSO),
            _ => return Ok(()),
        };
        // As the detail, which is shown as it is. Behind a description the kind of the error would be named.
        Err(RedisError::from((ErrorKind::InvalidClientConfig, option, reason.to_owned())))
    }

    /// Asks whether this owner has the lock.
    pub(crate) fn ask_holder(self, key: &str, owner: &str) -> Cmd {
        match self {
            Self::Native => native::check(key, owner),
            Self::Plain(_) => redis::cmd("GET").arg(key).take(),
        }
    }

    /// The fence that the reply to that shows, if this owner has the lock.
    pub(crate) fn fence_in(self, reply: &Value, owner: &str) -> Option<u64> {
        match self {
            Self::Native => number(reply).ok().flatten(),
            Self::Plain(_) => plain::fence_in(reply, owner),
        }
    }

    /// The script that this question takes, if it takes one.
    pub(crate) fn script(self, question: Question<'_>) -> Option<Script> {
        match self {
            Self::Native => None,
            Self::Plain(compares) => plain::script_for(compares, question),
        }
    }

    /// The same with the script itself, for a server that may not know it.
    pub(crate) fn command_in_full(self, key: &str, question: Question<'_>) -> Cmd {
        match self {
            Self::Native => native::command(key, question),
            Self::Plain(compares) => plain::command_in_full(compares, key, question),
        }
    }
}

/// A number, in digits or not; nil and false are none, and OK is 1.
pub(crate) fn number(reply: &Value) -> Result<Option<u64>, RedisError> {
    let number = match reply {
        Value::Nil => return Ok(None),
        Value::Okay => Some(1),
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(digits) => std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok()),
        _ => None,
    };
    let surprise = || RedisError::from((ErrorKind::UnexpectedReturnType, "neither number nor nil"));
    number.map(Some).ok_or_else(surprise)
}

/// Whole milliseconds, at least one.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
pub(crate) fn words(command: &Cmd) -> String {
    let words = command.args_iter().map(|arg| match arg {
        redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
        _ => "?".to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_numbers_or_nil() {
        assert_eq!(number(&Value::Nil).unwrap(), None);
        assert_eq!(number(&Value::Int(7)).unwrap(), Some(7));
        assert_eq!(number(&Value::Okay).unwrap(), Some(1));
        assert_eq!(number(&Value::BulkString(b"0000000000000007".to_vec())).unwrap(), Some(7));
        assert!(number(&Value::Int(-1)).is_err());
        assert!(number(&Value::Array(Vec::new())).is_err());
    }

    #[test]
    fn a_duration_is_sent_as_at_least_a_millisecond() {
        assert_eq!(millis(Duration::from_micros(10)), 1);
        assert_eq!(millis(Duration::from_secs(2)), 2_000);
    }
}
