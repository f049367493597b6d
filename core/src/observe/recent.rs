//! The grants given of late, so that a release that comes too late can be told from one that was never
//! right, and a lock that somebody deleted from one whose lease ran out.
//!
//! ```text
//!    hash of db and key ──► one of 8,192 entries:  which lock │ current grant │ the one before it
//!                                                                   │
//!                              its owner (hashed), fence, deadline ─┘  and: running, released or told of
//! ```
//!
//! The key of a lock is gone when its lease has run out, and a server tells of that only if somebody
//! listens to every expiry of every key. This needs no event, and one line of memory for each grant and
//! release.
//!
//! It is a memory aid, and no state of a lock. Two locks that fall into the same entry push each other out,
//! and then a late release counts as one that was merely refused: what is told is true, and not all is told.
//! The grant before the current one is kept because whoever is late is most often late after
//! another was granted the lock.

use super::identity;
use crate::lock::{Company, Deadline, Fence, Grant, Moment, Proof};

/// Of the hash, to find the entry.
const INDEX_BITS: u32 = 13;

const ENTRIES: usize = 1 << INDEX_BITS;

#[derive(Debug)]
pub(super) struct Recent {
    /// Nothing until the first grant.
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

/// A grant.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// 0 in an empty place: no grant has that.
    fence_number: u64,
    deadline: Deadline,
    owner: u32,
    end: End,
}

/// What is known of how a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing: it runs, or has run out, or was deleted.
    Unknown,
    Released,
    /// Its lease ran out, which has been told; not that its holder came too late.
    RanOut,
    /// It ended before it was released, and all of that has been told.
    Told,
}

/// What was wrong with a release or an extension that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lateness {
    /// The lease had run out.
    RanOut { by_ms: u64 },
    /// The lease had not, but the lock was gone: deleted or overwritten by hand.
    Vanished { left_ms: u64 },
}

/// Whether it is known already how this grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    First,
    /// That the lock was lost has been told, and not that its holder came too late.
    OfLateness,
    Again,
}

/// A lock turned out to be free although the lease of its last grant still ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vanished {
    pub(super) left_ms: u64,
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

    /// `lock` is its hash, here and below.
    pub(super) fn granted(
        &mut self,
        lock: u64,
        grant: &Grant<'_>,
        company: Company,
        now: Moment,
    ) -> Option<Vanished> {
        if self.entries.is_empty() {
            self.entries = vec![Entry::EMPTY; ENTRIES];
        }
        let entry = self.entries.get_mut(index(lock))?;
        if entry.lock != lock {
            *entry = Entry { lock, ..Entry::EMPTY };
        }
        let left_ms = entry.current.deadline.millis_left(now);
        // With nothing left, the server may have taken the key for one that has expired.
        let is_early = company == Company::Nobody
            && entry.current.runs(now)
            && left_ms > 0
            && entry.current.fence_number > self.unsure_up_to;
        let vanished = is_early.then_some(Vanished { left_ms });
        if vanished.is_some() {
            entry.current.end = End::Told;
        }
        // One that was released makes room first, but not for an older one of the same owner, which would
        // then look like the last.
        if entry.current.end != End::Released || entry.current.owner == entry.former.owner {
            entry.former = entry.current;
        }
        entry.current = Known {
            fence_number: grant.fence.number(),
            deadline: grant.deadline,
            owner: identity::hash_of_owner(grant.owner.as_bytes()),
            end: End::Unknown,
        };
        vanished
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

    /// Kept as released: so a second release of it is not taken for a late one of the grant before it.
    pub(super) fn released(&mut self, lock: u64, fence: Fence) {
        if let Some(known) = self.with_fence(lock, fence) {
            known.end = End::Released;
        }
    }

    /// It has been told that the lease of this grant ran out.
    pub(super) fn ran_out(&mut self, lock: u64, fence: Fence) {
        if let Some(known) = self.with_fence(lock, fence).filter(|known| known.end == End::Unknown)
        {
            known.end = End::RanOut;
        }
    }

    /// It has been told by other means that the current grant was lost.
    pub(super) fn lost(&mut self, lock: u64) {
        if let Some(known) = self.entry(lock).map(|entry| &mut entry.current)
            && known.end == End::Unknown
        {
            known.end = End::Told;
        }
    }

    /// What a refused proof was of, if it was of a grant that is known and was not released.
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

    /// How many of the grants that are known still run.
    pub(super) fn held(&self, now: Moment) -> u64 {
        let held = self.entries.iter().filter(|entry| entry.current.runs(now)).count();
        u64::try_from(held).unwrap_or(u64::MAX)
    }

    /// Whatever is known may have changed without this server: it was a replica, or has loaded other data.
    pub(super) fn forget(&mut self) {
        self.entries = Vec::new();
    }

    /// Some of the grants so far may have been released elsewhere: slots of a cluster have come, and may have been here
    /// before.
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
