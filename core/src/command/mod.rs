//! The commands: bytes in, a decision of [`crate::lock`], a reply out. Nothing here knows a server.
//!
//! Each command has a page, with the same parts: its [`Spec`], the request, its parser, and its reply. A page that may
//! change a lock [decides](Decide), and makes the reply from the [`Decision`]. A page that only reads returns the
//! reply.
//!
//! Mistakes are found in this order: the number of arguments, then the arguments from left to right, then the type of
//! the key.

pub mod acquire;
mod args;
pub mod check;
mod error;
pub mod extend;
pub mod guard;
pub mod help;
pub mod holders;
pub mod info;
pub mod log;
pub mod raise;
pub mod release;
mod reply;
mod spec;
pub mod top;
pub mod waiters;

use crate::lock::{Decision, FenceClock, Grace, Holders, Moment, Owner, Share, Standing, Wanted};

pub use args::{Also, parse_integer};
pub use error::Error;
pub use reply::Reply;
pub use spec::{ALSO, Access, Arg, ArgKind, Spec};

/// Every command, in the order in which people meet them.
pub static ALL: [&Spec; 12] = [
    &acquire::SPEC,
    &release::SPEC,
    &extend::SPEC,
    &raise::SPEC,
    &check::SPEC,
    &guard::SPEC,
    &info::SPEC,
    &holders::SPEC,
    &waiters::SPEC,
    &top::SPEC,
    &log::SPEC,
    &help::SPEC,
];

/// A request that may change one lock or several.
pub trait Decide {
    /// Whether the request gives up its owner's ticket.
    fn gives_up_ticket(&self) -> bool {
        false
    }

    /// The owner that makes the request.
    fn owner(&self) -> Result<Owner<'_>, Error>;

    /// How long the hold outlives the connection that it is bound to, if it is bound.
    fn grace(&self) -> Option<Grace> {
        None
    }

    /// The request's standing at one lock, given the lock's holders, as the owner sees them, and the number of other
    /// waiters.
    fn stand(&self, holders: &Holders<'_>, others: usize) -> Standing {
        Standing::new(holders, others, Share::EXCLUSIVE, 1)
    }

    /// The decision, given this standing at the locks.
    fn decide(
        &self,
        standings: &[Standing],
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error>;
}

/// A request whose client may be ready to wait.
pub trait MayWait: Decide {
    fn wanted(&self) -> Result<Wanted<'_>, Error>;

    /// Whether the client does not know its owner yet.
    fn is_minted(&self) -> bool;
}

#[cfg(test)]
mod testing {
    //! Shared by the tests of the pages: a server's key, without the server.

    use super::*;
    use crate::lock::{Deadline, Limits, Stored, Ttl, Value, Write};

    pub(super) const NOW: Moment = Moment::from_millis(1_763_000_000_000);
    pub(super) const LIMITS: Limits = Limits { max_ttl: Ttl::USUAL_LIMIT, max_holders: 3 };

    /// A lock held by `owner` for another `left` milliseconds.
    pub(super) struct Held {
        value: Value,
        deadline: Deadline,
        pub(super) fence_number: u64,
    }

    impl Held {
        pub(super) fn by(owner: &str, left: u64) -> Self {
            Self::sharing(owner, left, 1)
        }

        /// Like `by`, for a hold that tolerates `share` holders.
        pub(super) fn sharing(owner: &str, left: u64, share: u32) -> Self {
            let fence = FenceClock::new().mint(NOW).fence().unwrap();
            let deadline = Deadline::from_millis(NOW.millis().saturating_add(left));
            let (owner, share) =
                (Owner::new(owner.as_bytes()).unwrap(), Share::new(share).unwrap());
            Self {
                value: Value::of_hold(fence, owner, Some(deadline), share),
                deadline,
                fence_number: fence.number(),
            }
        }

        pub(super) fn stored(&self) -> Stored<'_> {
            Stored::Text { value: self.value.as_bytes(), deadline: Some(self.deadline) }
        }
    }

    pub(super) fn foreign(value: &str) -> Stored<'_> {
        Stored::Text { value: value.as_bytes(), deadline: None }
    }

    /// The decision on a request that may change a lock, given the key's value, and what is then written.
    pub(super) fn decide<'r>(
        request: &'r impl Decide,
        stored: Stored<'_>,
        waiters: usize,
        fences: &mut FenceClock,
    ) -> Result<(Decision<'r>, Write<'r>), Error> {
        let holders = stored.holders(request.owner()?, NOW, fences)?;
        let decision = request.decide(&[request.stand(&holders, waiters)], NOW, fences)?;
        let outcome = decision.outcome(0, &holders, NOW);
        Ok((decision, outcome.map_or(Write::Keep, |outcome| outcome.write(&holders))))
    }

    /// What such a request writes, and what the client is told.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Answer<'r> {
        pub(super) write: Write<'r>,
        pub(super) reply: Reply<'r>,
    }

    impl<'r> Answer<'r> {
        pub(super) fn unchanged(reply: Reply<'r>) -> Self {
            Self { write: Write::Keep, reply }
        }

        pub(super) fn to<R: Decide + 'r>(
            request: Result<R, Error>,
            stored: Stored<'_>,
            fences: &mut FenceClock,
            reply: impl FnOnce(&Decision<'_>, &Write<'_>) -> Reply<'r>,
        ) -> Result<Self, Error> {
            let request: &'r R = Box::leak(Box::new(request?));
            let (decision, write) = decide(request, stored, 0, fences)?;
            Ok(Self { reply: reply(&decision, &write), write })
        }
    }

    /// A request as a client sends it, split at spaces.
    pub(super) fn words(line: &str) -> Vec<&'static [u8]> {
        line.to_owned().leak().split(' ').map(str::as_bytes).collect()
    }

    /// Every command words the same mistake in the same way.
    #[track_caller]
    pub(super) fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, Error>, text: &str) {
        assert_eq!(outcome.unwrap_err().to_string(), text);
    }
}
