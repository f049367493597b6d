//! How often what happened, since the start.

/// Each stops at the end of its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// New grants, those to waiters included.
    pub grants: u64,
    /// Requests of the holder itself, which was told its fence again.
    pub retries: u64,
    /// Tries that found the lock held or wanted by others, and did not wait.
    pub tries_refused: u64,
    pub waits_started: u64,
    /// Waits of owners that had just tried, and been refused.
    pub waits_started_after_try: u64,
    /// Waits that ended with the lock.
    pub waits_granted: u64,
    /// Waits that ended with the client's patience.
    pub waits_timed_out: u64,
    /// Waits that ended with the client's connection, or by CLIENT UNBLOCK.
    pub waits_abandoned: u64,
    /// Waits that ended with an error.
    pub waits_refused: u64,
    /// Requests to wait for which there was no room.
    pub queue_full: u64,
    /// Grants to waiters.
    pub hand_offs: u64,
    /// The most that ever waited at once.
    pub waiters_most: u64,
    pub releases: u64,
    /// Releases by somebody who was not the holder, the late ones included.
    pub releases_refused: u64,
    /// Releases after the lease had run out.
    pub releases_late: u64,
    pub extends: u64,
    pub extends_refused: u64,
    pub extends_late: u64,
    pub raises: u64,
    /// Leases that ran out while somebody waited.
    pub expiries_with_waiters: u64,
    /// Holds that ended, or got a shorter lease, because the connection ended that they were bound to.
    pub bindings_ended: u64,
    /// Locks that were evicted while they were held, and put back.
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
