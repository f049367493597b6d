//! The meaning of server errors. Pure.

use crate::error::{Error, unexpected};
use redis::{ErrorKind, RedisError, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The connection is useless, and the request may have reached the server.
    Broken,
    /// This server no longer grants locks: find the one that does.
    Elsewhere,
    /// A later try may succeed.
    Again,
    /// A newer request of this owner took the place in the queue.
    Replaced,
    UnknownCommand,
    UnknownScript,
    /// The server has loaded the module meanwhile.
    HasModule,
    /// The server has no tickets, or this user may not subscribe.
    NoTickets,
    /// The server keeps places for at most this many milliseconds.
    KeepsFor(u64),
    /// A later try would fail too.
    Refused,
}

pub(crate) fn verdict(error: &RedisError) -> Verdict {
    let Some(code) = error.code() else {
        return match error.kind() {
            ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::RESP3NotSupported
            | ErrorKind::UnexpectedReturnType
            | ErrorKind::Client => Verdict::Refused,
            _ => Verdict::Broken,
        };
    };
    let (code, detail) = unwrapped(code, error.detail().unwrap_or_default());
    match code {
        "READONLY" | "UNBLOCKED" => Verdict::Elsewhere,
        "TRYAGAIN" | "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" | "QUEUEFULL" | "NOREPLICAS" | "MISCONF"
        // The redis crate follows redirections, and gives up after some.
        | "MOVED" | "ASK" => Verdict::Again,
        "REPLACED" => Verdict::Replaced,
        "NOSCRIPT" => Verdict::UnknownScript,
        "LEASEHOLD" => Verdict::HasModule,
        "NOPERM" if detail.contains("channel") => Verdict::NoTickets,
        "ERR" if detail.starts_with("unknown command") => Verdict::UnknownCommand,
        "ERR" if detail.starts_with("max number of clients reached") => Verdict::Again,
        "ERR" if detail.starts_with("NOTIFY is not possible") => Verdict::NoTickets,
        "ERR" if detail.starts_with("unknown option") => Verdict::NoTickets,
        "ERR" => match detail.strip_prefix("TICKET must be an integer from 1 to ") {
            Some(longest) => leading_number(longest).map_or(Verdict::Refused, Verdict::KeepsFor),
            None => Verdict::Refused,
        },
        _ => Verdict::Refused,
    }
}

/// The code and the detail of an error. Redis 6.2 wraps the error of a command that a script calls:
/// `ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY You can't write …`.
fn unwrapped<'e>(code: &'e str, detail: &'e str) -> (&'e str, &'e str) {
    match detail.split_once(": -") {
        Some((wrapping, said)) if wrapping.starts_with("Error running script") => {
            said.split_once(' ').unwrap_or((said, ""))
        }
        _ => (code, detail),
    }
}

pub(crate) fn told(error: RedisError) -> Error {
    // An error code comes from the server, so its words say more than "unreachable".
    if error.kind() == ErrorKind::UnexpectedReturnType {
        Error::UnexpectedReply { source: error }
    } else if error.code().is_some() || verdict(&error) == Verdict::Refused {
        Error::Refused { source: error }
    } else {
        Error::Unreachable { source: error }
    }
}

/// Whether a later try may succeed: the server is silent, or not ready.
pub(crate) fn may_pass(error: &Error) -> bool {
    match error {
        Error::Refused { source } => matches!(verdict(source), Verdict::Again | Verdict::Elsewhere),
        error => is_silence(error),
    }
}

/// Whether the server is silent or absent, and has refused nothing.
pub(crate) fn is_silence(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. })
}

pub(crate) fn number(reply: &Value) -> Result<Option<u64>, RedisError> {
    match reply {
        Value::Nil => Ok(None),
        Value::Int(number) => u64::try_from(*number).map(Some).map_err(|_| unexpected()),
        Value::BulkString(bytes) => match std::str::from_utf8(bytes).map(str::parse) {
            Ok(Ok(number)) => Ok(Some(number)),
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

fn leading_number(text: &str) -> Option<u64> {
    let digits = text.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::make_extension_error;

    fn of(code: &str, detail: &str) -> Verdict {
        verdict(&make_extension_error(code.to_owned(), Some(detail.to_owned())))
    }

    #[test]
    fn codes_that_the_module_made_up_are_known() {
        assert_eq!(of("REPLACED", "a newer request"), Verdict::Replaced);
        assert_eq!(of("UNBLOCKED", "this server became a replica"), Verdict::Elsewhere);
        assert_eq!(of("QUEUEFULL", "too many waiters"), Verdict::Again);
        assert_eq!(of("WRONGTYPE", "Operation against"), Verdict::Refused);
        assert_eq!(of("ERR", "max number of clients reached"), Verdict::Again);
        let ticket = "TICKET must be an integer from 1 to 60000 (leasehold.max-ticket)";
        assert_eq!(of("ERR", ticket), Verdict::KeepsFor(60_000));
        assert_eq!(of("NOPERM", "No permissions to access a channel"), Verdict::NoTickets);
        assert_eq!(of("NOPERM", "User has no permissions to run"), Verdict::Refused);
        let wrapped = "Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't";
        assert_eq!(of("ERR", wrapped), Verdict::Elsewhere);
    }

    #[test]
    fn the_end_of_a_connection_is_no_answer() {
        let error = RedisError::from(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        assert_eq!(verdict(&error), Verdict::Broken);
    }

    #[test]
    fn who_is_not_let_in_need_not_try_again() {
        let error = RedisError::from((ErrorKind::AuthenticationFailed, "no"));
        assert_eq!(verdict(&error), Verdict::Refused);
    }
}
