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
pub mod drop;
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
pub static ALL: [&Spec; 13] = [
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
    &drop::SPEC,
    &help::SPEC,
];

/// A request that may change one lock or several.
pub trait Decide {
    fn gives_up_ticket(&self) -> bool {
        false
    }

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
    //! Shared by the tests of the pages.

    use crate::lock::{Limits, Moment, Ttl};

    pub(super) const NOW: Moment = Moment::from_millis(1_763_000_000_000);
    pub(super) const LIMITS: Limits = Limits { max_ttl: Ttl::USUAL_LIMIT, max_holders: 3 };

    /// A request as a client sends it, split at spaces.
    pub(super) fn words(line: &str) -> Vec<&'static [u8]> {
        line.to_owned().leak().split(' ').map(str::as_bytes).collect()
    }
}
