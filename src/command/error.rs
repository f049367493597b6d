//! Every error a client can get, worded once: what was wrong, and what is allowed.

use crate::lock::{Fence, Owner, Ttl};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// Worded by the server, which names the command.
    WrongArity,
    OwnerLength,
    TtlNotPositive,
    TtlAboveLimit {
        limit: Ttl,
    },
    FenceNotANumber,
    UnknownOption,
    WrongType,
    NoFenceLeft,
    /// The server would not take the change for its replicas and its append-only file.
    NotReplicated,
    /// A panic was caught.
    Internal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongArity => write!(f, "ERR wrong number of arguments"),
            Self::OwnerLength => write!(f, "ERR owner must be 1 to {} bytes long", Owner::LONGEST),
            Self::TtlNotPositive => write!(f, "ERR ttl must be a positive integer (milliseconds)"),
            Self::TtlAboveLimit { limit } => write!(
                f,
                "ERR ttl must be at most {} milliseconds (config leasehold.max-ttl)",
                limit.millis()
            ),
            Self::FenceNotANumber => {
                write!(f, "ERR fence must be an integer from 0 to {}", Fence::LAST.number())
            }
            Self::UnknownOption => write!(f, "ERR unknown option, expected nothing after ttl"),
            Self::WrongType => {
                write!(f, "WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            Self::NoFenceLeft => {
                write!(f, "ERR no fence left: the server's clock is past the year 2255")
            }
            Self::NotReplicated => {
                write!(f, "ERR the server cannot replicate SET or DEL, nothing was changed")
            }
            Self::Internal => write!(f, "ERR internal error, see the server's log"),
        }
    }
}
