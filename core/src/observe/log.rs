//! The latest noteworthy events, as SLOWLOG keeps the latest slow commands.

use super::truncated::Truncated;
use crate::lock::{KeptName, Moment, Name, Owner};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// A holder released after the end of its lease.
    LateRelease,
    /// A holder extended after the end of its lease.
    LateExtend,
    /// A lock was gone before the end of its lease, and nobody had released it.
    Deleted,
    /// Another value had replaced a lock before the end of its lease.
    Overwritten,
    /// An evicted lock was written again.
    Restored,
    /// The connection that a hold was bound to ended.
    Disconnected,
    /// An owner waited for long.
    LongWait,
    /// An owner could not wait, because the queue was full.
    QueueFull,
}

impl Noted {
    pub const fn name(self) -> &'static str {
        match self {
            Self::LateRelease => "late-release",
            Self::LateExtend => "late-extend",
            Self::Deleted => "deleted",
            Self::Overwritten => "overwritten",
            Self::Restored => "restored",
            Self::Disconnected => "disconnected",
            Self::LongWait => "long-wait",
            Self::QueueFull => "queue-full",
        }
    }
}

#[derive(Debug)]
pub struct Entry {
    /// Counts from 1, and continues after a reset, so a reader sees what it has missed.
    pub id: u64,
    pub at: Moment,
    pub event: Noted,
    pub db: i32,
    pub key: Truncated,
    /// Empty if unknown.
    pub owner: Truncated,
    /// How late the holder was, how long the owner waited, or the rest of the lease, `None` for a lease without an
    /// end. Otherwise 0.
    pub millis: Option<u64>,
}

#[derive(Debug)]
pub struct Log {
    /// Oldest first.
    entries: VecDeque<Entry>,
    length: usize,
    next_id: u64,
}

impl Log {
    pub const USUAL_LENGTH: usize = 128;
    pub const GREATEST_LENGTH: usize = 10_000;

    pub(super) const fn new() -> Self {
        Self { entries: VecDeque::new(), length: Self::USUAL_LENGTH, next_id: 1 }
    }

    /// Keeps this many entries from now on, and drops the oldest of any others.
    pub(super) fn resize(&mut self, length: usize) {
        if length == self.length {
            return;
        }
        self.length = length.min(Self::GREATEST_LENGTH);
        if self.entries.len() > self.length {
            self.entries.drain(..self.entries.len().saturating_sub(self.length));
            self.entries.shrink_to_fit();
        }
    }

    pub(super) fn note(
        &mut self,
        at: Moment,
        event: Noted,
        lock: Name<'_>,
        owner: &[u8],
        millis: Option<u64>,
    ) {
        if self.length == 0 {
            return;
        }
        while self.entries.len() >= self.length {
            self.entries.pop_front();
        }
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        let (key, owner) = (Truncated::new(lock.key), Truncated::new(owner));
        self.entries.push_back(Entry { id, at, event, db: lock.db, key, owner, millis });
    }

    /// Newest first.
    pub fn latest(&self, count: usize) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev().take(count)
    }

    /// The lock of the first entry with this number or a later one, if the entry names this owner, and the entry's
    /// number. The lock and the owner may be truncated.
    pub(crate) fn lock_from(
        &self,
        id: usize,
        owner: Owner<'_>,
    ) -> Option<(usize, Option<KeptName>)> {
        let oldest = usize::try_from(self.entries.front()?.id).ok()?;
        let id = id.max(oldest);
        let entry = self.entries.get(id.saturating_sub(oldest))?;
        let is_of = entry.owner == Truncated::new(owner.as_bytes());
        Some((id, is_of.then(|| Name::new(entry.db, entry.key.as_bytes()).into())))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn reset(&mut self) {
        self.entries = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_millis(1_763_000_000_000);
    const LOCK: Name<'static> = Name { db: 2, key: b"k" };

    fn note(log: &mut Log, times: usize) {
        for _ in 0..times {
            log.note(NOW, Noted::LateRelease, LOCK, b"a", Some(7));
        }
    }

    fn ids(log: &Log) -> Vec<u64> {
        log.latest(usize::MAX).map(|entry| entry.id).collect()
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_are_dropped() {
        let mut log = Log::new();
        log.resize(3);
        note(&mut log, 5);
        assert_eq!(ids(&log), [5, 4, 3]);
        assert_eq!(log.latest(2).map(|entry| entry.id).collect::<Vec<_>>(), [5, 4]);
        assert_eq!(log.len(), 3);
    }

    #[test]
    fn ids_go_on_after_a_reset() {
        let mut log = Log::new();
        note(&mut log, 2);
        log.reset();
        assert_eq!(log.len(), 0);
        note(&mut log, 1);
        assert_eq!(ids(&log), [3]);
    }

    #[test]
    fn a_shorter_log_keeps_the_newest_and_gives_the_memory_back() {
        let mut log = Log::new();
        log.resize(1_000);
        note(&mut log, 1_000);
        log.resize(2);
        assert_eq!(ids(&log), [1_000, 999]);
        assert!(log.entries.capacity() < 10, "{}", log.entries.capacity());
        log.resize(0);
        note(&mut log, 1);
        assert_eq!(log.len(), 0);
        log.resize(1);
        note(&mut log, 2);
        assert_eq!(log.len(), 1);
    }

    #[test]
    fn it_is_never_longer_than_the_greatest_length() {
        let mut log = Log::new();
        log.resize(usize::MAX);
        note(&mut log, Log::GREATEST_LENGTH + 1);
        assert_eq!(log.len(), Log::GREATEST_LENGTH);
        assert!(size_of::<Entry>() <= 80, "{}", size_of::<Entry>());
        assert_eq!(Log::new().entries.capacity(), 0);
    }
}
