//! Counts of everything that happened since the start.

/// Each counter stops at the end of its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// New grants, including grants to waiters.
    pub grants: u64,
    /// Requests of the holder itself, which got its fence again.
    pub retries: u64,
    /// Tries that found the lock held or wanted by others, and did not wait.
    pub tries_refused: u64,
    pub waits_started: u64,
    /// Waits of owners whose try had just been refused.
    pub waits_started_after_try: u64,
    /// Waits that ended with the lock.
    pub waits_granted: u64,
    /// Waits that ended with the client's patience.
    pub waits_timed_out: u64,
    /// Waits that ended with the client's connection, or by CLIENT UNBLOCK.
    pub waits_abandoned: u64,
    /// Waits that ended with an error.
    pub waits_refused: u64,
    /// Requests to wait that found no room.
    pub queue_full: u64,
    /// Grants to waiters.
    pub hand_offs: u64,
    /// The largest number of waiters at any one time.
    pub waiters_most: u64,
    pub releases: u64,
    /// Releases by an owner that was not the holder, including late releases.
    pub releases_refused: u64,
    /// Releases after the end of the lease.
    pub releases_late: u64,
    pub extends: u64,
    pub extends_refused: u64,
    pub extends_late: u64,
    pub raises: u64,
    /// Leases that ended while somebody waited.
    pub expiries_with_waiters: u64,
    /// Holds that ended, or got a shorter lease, because their connection ended.
    pub bindings_ended: u64,
    /// Held locks that were evicted and written again.
    pub evictions_restored: u64,
}

impl Counters {
    pub(super) const fn new() -> Self {
        Self {
            grants: 0,
            retries: 0,
            tries_refused: 0,
            waits_started: 0,
            waits_started_after_try: 0,
            waits_granted: 0,
            waits_timed_out: 0,
            waits_abandoned: 0,
            waits_refused: 0,
            queue_full: 0,
            hand_offs: 0,
            waiters_most: 0,
            releases: 0,
            releases_refused: 0,
            releases_late: 0,
            extends: 0,
            extends_refused: 0,
            extends_late: 0,
            raises: 0,
            expiries_with_waiters: 0,
            bindings_ended: 0,
            evictions_restored: 0,
        }
    }
}

pub(super) const fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stops_at_the_end_of_its_range() {
        let mut counter = u64::MAX - 1;
        count(&mut counter);
        assert_eq!(counter, u64::MAX);
        count(&mut counter);
        assert_eq!(counter, u64::MAX);
    }
}
