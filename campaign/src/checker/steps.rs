//! The operations of one grant that succeeded, and the leases that they set.

/// An operation that succeeded.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) record: u32,
    pub(super) earliest: i64,
    pub(super) latest: i64,
    pub(super) ttl: i64,
    /// The step that gives this one its earliest moment, because steps take effect in order. Often this step itself.
    pub(super) since: usize,
    /// The step that limits the latest moment of this one: the lease that it was within, or a later step.
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
    /// Of this step and the leases before it, the step whose lease may last longest.
    pub(super) longest: usize,
}
