//! What an error means for whoever asked. Pure.

use redis::{ErrorKind, RedisError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The connection is of no more use, and nobody knows whether the request was heard.
    Broken,
    /// This server does not grant locks any more: look for the one that does.
    Elsewhere,
    /// The slot is there now.
    Moved { slot: u16, to: String },
    /// This once, ask there.
    Ask { to: String },
    /// In a moment it may be different.
    Again,
    /// The server takes no more clients, or so few that none should be added to wait.
    Crowded,
    /// A newer request of the same owner took the place in the queue.
    Replaced,
    /// The server does not know the command: it has not what it had, or what was thought.
    UnknownCommand,
    /// It does not know the script yet.
    UnknownScript,
    /// It has the module by now, which it had not.
    HasModule,
    /// Another try would come to the same.
    Refused,
}

/// What a server says to a client that is one too many.
pub(crate) const CROWDED: &str = "max number of clients reached";

pub(crate) fn verdict(error: &RedisError) -> Verdict {
    let Some(code) = error.code() else {
        return match error.kind() {
            ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::RESP3NotSupported
            | ErrorKind::Client => Verdict::Refused,
            _ => Verdict::Broken,
        };
    };
    let redirected = error.redirect_node().map(|(to, slot)| (to.to_owned(), slot));
    match (code, redirected) {
        ("MOVED", Some((to, slot))) => Verdict::Moved { slot, to },
        ("ASK", Some((to, _))) => Verdict::Ask { to },
        ("READONLY" | "UNBLOCKED", _) => Verdict::Elsewhere,
        (
            "TRYAGAIN" | "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" | "QUEUEFULL"
            | "NOREPLICAS" | "MISCONF",
            _,
        ) => Verdict::Again,
        ("REPLACED", _) => Verdict::Replaced,
        ("NOSCRIPT", _) => Verdict::UnknownScript,
        ("LEASEHOLD", _) => Verdict::HasModule,
        ("ERR", _) if begins(error, "unknown command") => Verdict::UnknownCommand,
        ("ERR", _) if begins(error, CROWDED) => Verdict::Crowded,
        _ => Verdict::Refused,
    }
}

fn begins(error: &RedisError, with: &str) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with(with))
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
        assert_eq!(of("ERR", "max number of clients reached"), Verdict::Crowded);
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
