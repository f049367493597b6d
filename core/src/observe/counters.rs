//! Counts of everything that happened since the start.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Each counter stops at the end of its range.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(super) const ZERO: Self = Self { $($name: 0,)* };
        }
    };
}

counters! {
    /// New grants, including grants to waiters.
    grants,
    /// Requests of the holder itself, which got its fence again.
    retries,
    /// Tries that found the lock held or wanted by others, and did not wait.
    tries_refused,
    waits_started,
    /// Waits of owners whose try had just been refused.
    waits_started_after_try,
    /// Waits that ended with the lock.
    waits_granted,
    /// Waits that ended with the client's patience.
    waits_timed_out,
    /// Waits that ended with the client's connection, or by CLIENT UNBLOCK.
    waits_abandoned,
    /// Waits that ended with an error.
    waits_refused,
    /// Requests to wait that found no room.
    queue_full,
    /// Grants to waiters.
    hand_offs,
    /// The largest number of waiters at any one time.
    waiters_most,
    releases,
    /// Releases by an owner that was not the holder, including late releases.
    releases_refused,
    /// Releases after the end of the lease.
    releases_late,
    extends,
    extends_refused,
    extends_late,
    raises,
    /// Leases that ended while somebody waited.
    expiries_with_waiters,
    /// Holds that ended, or got a shorter lease, because their connection ended.
    bindings_ended,
    /// Held locks that were evicted and written again.
    evictions_restored,
}

pub(super) const fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
