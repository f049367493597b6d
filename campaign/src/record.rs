//! One operation of a client, in 48 bytes: a hundred million of them fit into five gigabytes.
//!
//! ```text
//!   asked ├──────────────┤ told          microseconds of the wall clock, by which leases end too
//!               ▲ somewhere in between it took effect
//! ```

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// `LOCK.ACQUIRE`, not waiting.
    Try,
    /// `LOCK.ACQUIRE … BLOCK`.
    Wait,
    /// `LOCK.EXTEND`.
    Extend,
    /// `LOCK.RELEASE`.
    Release,
    /// `LOCK.CHECK`.
    Check,
    /// Another client deleted the key in some way. The lock is free from then on.
    Delete,
    /// `LOCK.WAITERS` showed this owner in the queue.
    Seen,
    /// The connection that a hold was bound to has ended. `ttl` is the grace, `asked` the last request on it
    /// that was answered, or the moment just before it was closed.
    Closed,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Granted, extended, released, held.
    Ok,
    /// Nil, or 0.
    Refused,
    /// The connection was lost, or the reply is of no use. The operation may take effect at any
    /// time after it was sent, or never.
    Unknown,
    /// An error. Nothing was done, but a request that waits may have been in the queue until then.
    Failed,
    /// A release of several locks, of which some were released, and nobody knows which. Either way its owner holds
    /// this one no more.
    Over,
}

/// For [`Record::lock`]: every lock.
pub const EVERY_LOCK: u32 = u32::MAX;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// When it was sent.
    pub asked: u64,
    /// When the reply had been read, or was given up.
    pub told: u64,
    /// The fence in the reply. Without one, the fence that the owner believes it holds, or 0.
    pub fence: u64,
    /// The lease that it asks for, in milliseconds.
    pub ttl: u32,
    /// The owner that asks.
    pub owner: u32,
    /// The number of the lock, or [`EVERY_LOCK`].
    pub lock: u32,
    /// The operation.
    pub op: Op,
    /// The outcome of an operation.
    pub outcome: Outcome,
    /// The number of the server that was asked.
    pub server: u8,
    /// For a request that acquires: how many holders at a time it tolerates, itself included. 0: any
    /// number.
    pub share: u8,
    /// The number of a request for several locks, which has a record for each of them, side by side. 0: it is for one.
    pub set: u32,
    /// A wait by a ticket. It ends for a moment, and begins anew, whenever the lock is granted to it and deleted.
    pub is_ticket: bool,
    /// The request binds the hold to its connection.
    pub is_bound: bool,
}

const _: () = assert!(size_of::<Record>() == 48);

impl Record {
    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self.op, Op::Try | Op::Wait)
    }

    /// Whether a success gives the owner a new lease.
    pub(crate) fn is_lease(&self) -> bool {
        self.is_acquire() || self.op == Op::Extend
    }

    /// The share as a number that is larger if it tolerates more.
    pub(crate) fn tolerance(&self) -> u32 {
        match self.share {
            0 => u32::MAX,
            share => share.into(),
        }
    }

    pub(crate) fn asked_millis(&self) -> i64 {
        millis(self.asked)
    }

    pub(crate) fn told_millis(&self) -> i64 {
        millis(self.told)
    }
}

pub(crate) fn millis(micros: u64) -> i64 {
    i64::try_from(micros / 1_000).unwrap_or(i64::MAX / 4)
}
