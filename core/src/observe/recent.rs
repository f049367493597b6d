//! Recent grants. They tell a late release from a release without any hold, and a deleted lock from one whose lease
//! ran out.
//!
//! ```text
//!    hash of db and key ──► one of 8,192 entries:  which lock │ current grant │ the one before it
//!                                                                   │
//!                              its owner (hashed), fence, deadline ─┘  and: running, released or told of
//! ```
//!
//! The key of a lock is gone when its lease has run out, and a server reports that only to subscribers of all expiries
//! of all keys. This table needs no event, and touches one cache line for each grant and release.
//!
//! The table is a memory aid, not the state of a lock. Two locks with the same entry displace each other, and then a
//! late release counts as merely refused: what is told is true, but not everything is told. The entry keeps the
//! previous grant, because most late holders come after the lock was granted to another owner.

use super::identity;
use crate::lock::{Deadline, Fence, Grant, Moment, OtherHolders, Proof};

/// Bits of the hash that find the entry.
const INDEX_BITS: u32 = 13;

const ENTRIES: usize = 1 << INDEX_BITS;

#[derive(Debug)]
pub(super) struct Recent {
    /// Empty until the first grant.
    entries: Vec<Entry>,
    /// Nothing is concluded about how grants up to this fence ended.
    unsure_up_to: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The whole hash of the lock.
    lock: u64,
    current: Known,
    former: Known,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// 0 in an empty place, since no grant has fence 0.
    fence_number: u64,
    deadline: Deadline,
    owner: u32,
    end: End,
}

/// What is known about the end of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing: the grant is in force, has run out, or was deleted.
    Unknown,
    Released,
    /// The lease ran out, and this was told. The holder's lateness was not.
    RanOut,
    /// The grant ended before its release, and everything about it was told.
    Told,
}

/// What was wrong with a refused release or extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lateness {
    /// The lease had run out.
    RanOut { by_ms: u64 },
    /// The lease had not run out, but the lock was gone: deleted or overwritten by hand.
    Vanished { left_ms: u64 },
}

/// How much about the end of a grant was already told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    First,
    /// The loss was told, the holder's lateness was not.
    OfLateness,
    Again,
}

impl Known {
    const EMPTY: Self =
        Self { fence_number: 0, deadline: Deadline::from_millis(0), owner: 0, end: End::Released };

    fn runs(&self, now: Moment) -> bool {
        self.end == End::Unknown && !self.deadline.has_passed(now)
    }
}

impl Entry {
    const EMPTY: Self = Self { lock: 0, current: Known::EMPTY, former: Known::EMPTY };

    /// The latest grant that fits.
    fn find(&mut self, fits: impl Fn(&Known) -> bool) -> Option<&mut Known> {
        [&mut self.current, &mut self.former].into_iter().find(|known| fits(known))
    }
}

impl Recent {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), unsure_up_to: 0 }
    }

    /// Notes a grant. `lock` is the lock's hash, here and below. If the lock was free although the lease of its last
    /// grant had not ended, returns how many milliseconds were left.
    pub(super) fn granted(
        &mut self,
        lock: u64,
        grant: &Grant<'_>,
        others: OtherHolders,
        now: Moment,
    ) -> Option<u64> {
        if self.entries.is_empty() {
            self.entries = vec![Entry::EMPTY; ENTRIES];
        }
        let entry = self.entries.get_mut(index(lock))?;
        if entry.lock != lock {
            *entry = Entry { lock, ..Entry::EMPTY };
        }
        let left_ms = entry.current.deadline.millis_left(now);
        // With no time left, the server may have treated the key as expired.
        let is_early = others == OtherHolders::None
            && entry.current.runs(now)
            && left_ms > 0
            && entry.current.fence_number > self.unsure_up_to;
        if is_early {
            entry.current.end = End::Told;
        }
        // A released grant makes room first, unless the grant before it has the same owner and would then look like
        // the owner's last.
        if entry.current.end != End::Released || entry.current.owner == entry.former.owner {
            entry.former = entry.current;
        }
        entry.current = Known {
            fence_number: grant.fence.number(),
            deadline: grant.deadline,
            owner: identity::hash_of_owner(grant.owner.as_bytes()),
            end: End::Unknown,
        };
        is_early.then_some(left_ms)
    }

    pub(super) fn extended(&mut self, lock: u64, fence: Fence, deadline: Deadline) {
        if let Some(known) = self.with_fence(lock, fence) {
            known.deadline = deadline;
            known.end = End::Unknown;
        }
    }

    pub(super) fn raised(&mut self, lock: u64, former: Fence, fence: Fence) {
        if let Some(known) = self.with_fence(lock, former) {
            known.fence_number = fence.number();
        }
    }

    /// Keeps the grant as released, so that a second release is not taken for a late release of the grant before it.
    pub(super) fn released(&mut self, lock: u64, fence: Fence) {
        if let Some(known) = self.with_fence(lock, fence) {
            known.end = End::Released;
        }
    }

    /// Notes that the end of this lease was told.
    pub(super) fn ran_out(&mut self, lock: u64, fence: Fence) {
        if let Some(known) = self.with_fence(lock, fence).filter(|known| known.end == End::Unknown)
        {
            known.end = End::RanOut;
        }
    }

    /// Notes that the loss of the current grant was told by other means.
    pub(super) fn lost(&mut self, lock: u64) {
        if let Some(known) = self.entry(lock).map(|entry| &mut entry.current)
            && known.end == End::Unknown
        {
            known.end = End::Told;
        }
    }

    /// What a refused proof was about, if its grant is known and was not released.
    pub(super) fn lateness(
        &mut self,
        lock: u64,
        proof: &Proof<'_>,
        now: Moment,
    ) -> Option<(Lateness, Telling)> {
        let owner = identity::hash_of_owner(proof.owner.as_bytes());
        let unsure_up_to = self.unsure_up_to;
        let known = self.entry(lock)?.find(|known| {
            known.owner == owner
                && known.fence_number > unsure_up_to
                && proof.fence.is_none_or(|fence| fence == known.fence_number)
        })?;
        let telling = match known.end {
            End::Released => return None,
            End::Unknown => Telling::First,
            End::RanOut => Telling::OfLateness,
            End::Told => Telling::Again,
        };
        known.end = End::Told;
        let lateness = if known.deadline.may_have_passed(now) {
            Lateness::RanOut { by_ms: now.millis().saturating_sub(known.deadline.millis()) }
        } else {
            Lateness::Vanished { left_ms: known.deadline.millis_left(now) }
        };
        Some((lateness, telling))
    }

    /// How many of the known grants are still in force.
    pub(super) fn held(&self, now: Moment) -> u64 {
        let held = self.entries.iter().filter(|entry| entry.current.runs(now)).count();
        u64::try_from(held).unwrap_or(u64::MAX)
    }

    /// Forgets everything: locks may have changed without this server, which was a replica, or has loaded other data.
    pub(super) fn forget(&mut self) {
        self.entries = Vec::new();
    }

    /// Doubts all grants so far: cluster slots have come that may have been here before, and their locks may have been
    /// released elsewhere.
    pub(super) fn doubt(&mut self) {
        let fences = self.entries.iter().map(|entry| entry.current.fence_number);
        self.unsure_up_to = fences.max().unwrap_or(0).max(self.unsure_up_to);
    }

    fn entry(&mut self, lock: u64) -> Option<&mut Entry> {
        self.entries.get_mut(index(lock)).filter(|entry| entry.lock == lock)
    }

    fn with_fence(&mut self, lock: u64, fence: Fence) -> Option<&mut Known> {
        self.entry(lock)?.find(|known| known.fence_number == fence.number())
    }
}

fn index(lock: u64) -> usize {
    usize::try_from(lock >> (u64::BITS - INDEX_BITS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
