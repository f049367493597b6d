//! Deletions of the key by other clients. Any of them may have freed the lock.

use super::Delete;

pub(super) struct Deletes<'d> {
    /// Sorted by `from`.
    all: &'d [Delete],
    /// The latest end of all deletions up to this one.
    last_over: Vec<i64>,
    /// The index of the deletion that ends first, of this one and all later ones.
    first_over: Vec<u32>,
}

impl<'d> Deletes<'d> {
    pub(super) fn new(all: &'d [Delete]) -> Self {
        let mut last_over: Vec<_> = all.iter().map(|delete| delete.to).collect();
        let mut first_over: Vec<_> = (0..u32::try_from(all.len()).unwrap()).collect();
        for index in 1..all.len() {
            last_over[index] = last_over[index].max(last_over[index - 1]);
        }
        for index in (1..all.len()).rev() {
            let (first, before) = (first_over[index], &mut first_over[index - 1]);
            if all[first as usize].to <= all[*before as usize].to {
                *before = first;
            }
        }
        Self { all, last_over, first_over }
    }

    /// When the lock is free: at the end of its lease, or when somebody deleted it after `last`. Of several deletions any may
    /// have been the one, so the result is the earliest moment of any.
    pub(super) fn free(&self, last: i64, free: i64, told: i64) -> i64 {
        let first = self.all.get(self.last_over.partition_point(|over| *over < last));
        match first.filter(|delete| free > last && delete.from <= told) {
            Some(delete) => free.min(delete.from.max(last)),
            None => free,
        }
    }

    pub(super) fn any_within(&self, from: i64, to: i64) -> bool {
        let end = self.all.partition_point(|delete| delete.from <= to);
        self.last_over[..end].last().is_some_and(|over| *over >= from)
    }

    /// A deletion that was sent after `after` and answered before `before`.
    pub(super) fn surely_within(&self, after: i64, before: i64) -> Option<u32> {
        let begin = self.all.partition_point(|delete| delete.from <= after);
        let first = self.all[*self.first_over.get(begin)? as usize];
        (first.to < before).then_some(first.record)
    }
}
