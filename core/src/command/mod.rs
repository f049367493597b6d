//! The commands: bytes in, a decision of [`crate::lock`], a reply out. Nothing here knows a server.
//!
//! One page per command, each with the same parts: its [`Spec`], what a request is, how it is parsed,
//! and how it is answered. A page that changes a lock returns an [`Answer`]: the reply and the
//! [`Change`] that the server makes before it sends it. A page that only reads returns the reply.
//!
//! A mistake is found in this order: number of arguments, then the arguments from left to right, then
//! the type of the key.

pub mod acquire;
mod args;
pub mod check;
mod error;
pub mod extend;
pub mod help;
pub mod info;
pub mod log;
pub mod raise;
pub mod release;
mod reply;
mod spec;
pub mod top;
pub mod waiters;

use crate::lock::{Deadline, Fence, Grant, Owner, Ttl};

pub use args::parse_integer;
pub use error::Error;
pub use reply::Reply;
pub use spec::{Access, Arg, ArgKind, Spec};

/// Every command there is, in the order in which people meet them.
pub static ALL: [&Spec; 10] = [
    &acquire::SPEC,
    &release::SPEC,
    &extend::SPEC,
    &raise::SPEC,
    &check::SPEC,
    &info::SPEC,
    &waiters::SPEC,
    &top::SPEC,
    &log::SPEC,
    &help::SPEC,
];

/// What an operator allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_ttl: Ttl,
}

/// What is to be done to the key, and told to replicas and the append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Change<'r> {
    Nothing,
    Grant(Grant<'r>),
    /// The value stays, the lease ends here.
    Lease(Deadline),
    /// The grant has another fence from now on, and stays the owner's until the same end.
    Raise {
        owner: Owner<'r>,
        fence: Fence,
        deadline: Option<Deadline>,
    },
    Free,
}

/// What a command that may change the lock comes to.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Answer<'r> {
    pub change: Change<'r>,
    pub reply: Reply<'r>,
}

impl<'r> Answer<'r> {
    const fn unchanged(reply: Reply<'r>) -> Self {
        Self { change: Change::Nothing, reply }
    }
}

#[cfg(test)]
mod testing {
    //! What the pages' tests share: a server's key, without the server.

    use super::*;
    use crate::lock::{FenceClock, Moment, Owner, Stored, Value};

    pub(super) const NOW: Moment = Moment::from_millis(1_763_000_000_000);
    pub(super) const LIMITS: Limits = Limits { max_ttl: Ttl::USUAL_LIMIT };

    /// A lock held by `owner` for another `left` milliseconds.
    pub(super) struct Held {
        value: Value,
        deadline: Deadline,
        pub(super) fence_number: u64,
    }

    impl Held {
        pub(super) fn by(owner: &str, left: u64) -> Self {
            let fence = FenceClock::new().mint(NOW).fence().unwrap();
            Self {
                value: Value::new(fence, Owner::new(owner.as_bytes()).unwrap()),
                deadline: Deadline::from_millis(NOW.millis().saturating_add(left)),
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

    /// A request as a client sends it, split at spaces.
    pub(super) fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    /// Every command's request is refused in the same words for the same mistake.
    #[track_caller]
    pub(super) fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, Error>, text: &str) {
        assert_eq!(outcome.unwrap_err().to_string(), text);
    }
}
