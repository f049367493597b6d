//! Every shape of reply. The module writes them in RESP2 or RESP3.

use super::Error;
use crate::lock::{Deadline, Moment, Share};

#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    Nil,
    /// The status of a command that has nothing to report.
    Ok,
    Integer(i64),
    Bytes(&'a [u8]),
    Array(Vec<Reply<'a>>),
    /// A map. In RESP2, a flat array of names and values.
    Map(Vec<(&'static str, Reply<'a>)>),
    /// Status lines, as in the server's own HELP.
    Lines(Vec<String>),
    Error(Error),
}

impl Reply<'_> {
    /// 1 means done, 0 means not the holder.
    pub(crate) const DONE: Self = Self::Integer(1);
    pub(super) const NOT_HOLDER: Self = Self::Integer(0);

    /// No end, as in the server's own PTTL and PEXPIRETIME.
    pub(super) const FOREVER: Self = Self::Integer(-1);

    /// Nothing that the module counts comes near the end of the signed range.
    pub fn number(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// The rest of a lease, and its deadline.
    pub(super) fn lease(deadline: Option<Deadline>, now: Moment) -> (Self, Self) {
        deadline.map_or((Self::FOREVER, Self::FOREVER), |deadline| {
            (Self::number(deadline.millis_left(now)), Self::number(deadline.millis()))
        })
    }

    pub fn share(share: Share) -> Self {
        Self::number(share.number().into())
    }

    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl<'a> From<Result<Reply<'a>, Error>> for Reply<'a> {
    fn from(outcome: Result<Reply<'a>, Error>) -> Self {
        outcome.unwrap_or_else(Reply::Error)
    }
}
