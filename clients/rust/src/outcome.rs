//! What became of a request of a holder. None of these is an error.

/// What a release came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a late release means that the work may have been done without the lock"]
#[non_exhaustive]
pub enum Released {
    /// It was held until now, and is free or the next one's.
    Released,
    /// It was lost before: the lease had run out, or the key was deleted, and somebody else may have it. The ttl is too
    /// short for the work.
    Late,
    /// It is still held, by another guard of the same owner, or because one of them was told to
    /// [keep](crate::Guard::keep) it.
    StillHeld,
    /// It was held until now, and the server frees it when the time of
    /// [`hold_at_least`](crate::Options::hold_at_least) is over.
    Later,
}

impl Released {
    /// Whether the lock was this owner's up to the release.
    ///
    /// ```
    /// use leasehold_client::Released;
    ///
    /// assert!(Released::Released.in_time());
    /// assert!(!Released::Late.in_time());
    /// ```
    #[must_use]
    pub fn in_time(self) -> bool {
        self != Self::Late
    }
}

/// What an extension came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was not extended is lost"]
#[non_exhaustive]
pub enum Extended {
    /// The lease ends a ttl from now.
    Extended,
    /// The lock is not this guard's any more.
    Lost,
}

/// Why a guard holds nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease has run out, or could have, before it was renewed.
    Expired,
    /// The server says that it is not this guard's: it was deleted, or somebody else has it.
    Taken,
    /// The guard was released, dropped, or told to keep the lock.
    Released,
    /// The client was closed, and gave the lock back: [`Locks::close`](crate::Locks::close).
    Closed,
}
