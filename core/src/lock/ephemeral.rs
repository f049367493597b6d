//! Holds that end with a connection.

use super::lease::{Monotonic, Patience, Ttl};

/// How long a hold outlives the connection that it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    millis: u64,
}

impl Grace {
    /// Bounded like patience, so that adding it to a time cannot overflow.
    pub const LONGEST_MILLIS: u64 = Patience::LONGEST_MILLIS;

    /// 0 ends the hold with the connection. `None` above [`Grace::LONGEST_MILLIS`].
    pub fn from_millis(millis: u64) -> Option<Self> {
        (millis <= Self::LONGEST_MILLIS).then_some(Self { millis })
    }

    pub const fn millis(self) -> u64 {
        self.millis
    }

    /// What is left of the grace, if the connection ended at `since`. `None` if it is over.
    pub fn left(self, since: Monotonic, now: Monotonic) -> Option<Ttl> {
        Ttl::from_millis(self.millis.saturating_sub(now.millis_since(since)))
    }
}

/// The connection that a hold is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ephemeral {
    /// A client id. The server gives no id twice.
    pub connection: u64,
    pub grace: Grace,
}
