//! One operation of a client, in 48 bytes: a hundred million records fit into five gigabytes.
//!
//! ```text
//!   asked ├──────────────┤ told          microseconds of the wall clock, which also ends leases
//!               ▲ somewhere in between it took effect
//! ```

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// `LOCK.ACQUIRE` without waiting.
    Try,
    /// `LOCK.ACQUIRE … BLOCK`.
    Wait,
    /// `LOCK.EXTEND`.
    Extend,
    /// `LOCK.RELEASE`.
    Release,
    /// `LOCK.CHECK`.
    Check,
    /// Another client deleted the key in any way. The lock is free from then on.
    Delete,
    /// `LOCK.WAITERS` showed this owner in the queue.
    Seen,
    /// The connection to which a hold was bound has ended. `ttl` is the grace. `asked` is the last answered request on
    /// that connection, or the moment just before it was closed.
    Closed,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Granted, extended, released or held.
    Ok,
    /// Nil or 0.
    Refused,
    /// The connection was lost, or the reply says nothing. The operation may take effect at any time after it was
    /// sent, or never.
    Unknown,
    /// An error. Nothing was done, but a waiter may have been in the queue until then.
    Failed,
    /// A release of several locks, of which an unknown part was released. In any case its owner does not hold this
    /// lock any more.
    Over,
}

/// For [`Record::lock`]: every lock.
pub const EVERY_LOCK: u32 = u32::MAX;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// When the request was sent.
    pub asked: u64,
    /// When the reply had been read, or the client gave up.
    pub told: u64,
    /// The fence in the reply. Without one, the fence that the owner believes it holds, or 0.
    pub fence: u64,
    /// The lease that the request asks for, in milliseconds.
    pub ttl: u32,
    /// The owner that asks.
    pub owner: u32,
    /// The number of the lock, or [`EVERY_LOCK`].
    pub lock: u32,
    /// The operation.
    pub op: Op,
    /// The outcome of the operation.
    pub outcome: Outcome,
    /// The number of the server that was asked.
    pub server: u8,
    /// For a request that acquires: how many holders at a time it tolerates, itself included. 0: any number.
    pub share: u8,
    /// The number of a request for several locks, which has adjacent records, one for each lock. 0: a request for one
    /// lock.
    pub set: u32,
    /// A wait by a ticket. The wait is interrupted and starts anew whenever the lock was granted to the ticket and
    /// then deleted.
    pub is_ticket: bool,
    /// The request binds the hold to its connection.
    pub is_bound: bool,
}

const _: () = assert!(size_of::<Record>() == 48);

impl Record {
    /// An exclusive one of one lock, which had its effect, without a fence and a lease.
    pub const fn new(op: Op, owner: u32, lock: u32, (asked, told): (u64, u64)) -> Self {
        Self {
            asked,
            told,
            fence: 0,
            ttl: 0,
            owner,
            lock,
            op,
            outcome: Outcome::Ok,
            server: 0,
            share: 1,
            set: 0,
            is_ticket: false,
            is_bound: false,
        }
    }

    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self.op, Op::Try | Op::Wait)
    }

    /// Whether a success gives the owner a new lease.
    pub(crate) fn is_lease(&self) -> bool {
        self.is_acquire() || self.op == Op::Extend
    }

    /// The share as a number that grows with tolerance.
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
