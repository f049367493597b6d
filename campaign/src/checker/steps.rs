//! The operations of one grant that succeeded, and the leases that they set.

/// An operation that succeeded.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) record: u32,
    pub(super) earliest: i64,
    pub(super) latest: i64,
    pub(super) ttl: i64,
    /// The step of the same grant that was sent no earlier than the earliest moment of this one,
    /// perhaps this one itself.
    pub(super) since: usize,
    /// The step without which this one might have been later: the lease that it was within, or a
    /// step after it.
    pub(super) before: Option<usize>,
}

impl Step {
    /// The end of its lease, if that began as early as possible.
    pub(super) fn ends(&self) -> i64 {
        self.earliest + self.ttl
    }

    /// The end of its lease, if that began as late as possible.
    pub(super) fn reaches(&self) -> i64 {
        self.latest + self.ttl
    }
}

/// A step that set or extended the lease.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    pub(super) step: usize,
    /// Of this step and the leases before it, the one whose lease may last longest.
    pub(super) longest: usize,
}
