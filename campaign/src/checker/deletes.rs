//! Deletions of the key by other clients. Each frees one grant.

use super::Delete;

#[derive(Clone)]
pub(super) struct Deletes<'d> {
    /// Sorted by `from`.
    all: &'d [Delete],
    /// The latest end of all deletions up to this one.
    last_over: Vec<i64>,
    /// The index of the deletion that ends first, of this one and all later ones.
    first_over: Vec<u32>,
    /// The deletions sorted by `to`. `unused` has the beginning of each, if no grant has used it yet.
    ends: Vec<i64>,
    unused: Least,
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
        let mut by_end: Vec<_> = all.iter().map(|delete| (delete.to, delete.from)).collect();
        by_end.sort_unstable();
        let ends = by_end.iter().map(|(to, _)| *to).collect();
        let unused = Least::new(by_end.iter().map(|(_, from)| *from));
        Self { all, last_over, first_over, ends, unused }
    }

    /// When the lock is free: at the end of its lease, or when somebody deleted it after `last`. A deletion that is
    /// needed to explain the next grant explains no other grant. Of the possible deletions this uses up the one that
    /// ends first, because a later one can still explain later grants. Another one may have been the actual one, so the
    /// result is the earliest moment of any.
    pub(super) fn free(&mut self, last: i64, free: i64, told: i64) -> i64 {
        if free <= last {
            return free;
        }
        let begin = self.ends.partition_point(|to| *to < last);
        let Some(first) = self.unused.first(begin, told) else { return free };
        let from = self.unused.least(begin);
        if free > told {
            self.unused.take(first);
        }
        free.min(from.max(last))
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

/// A tree of minima over a list of numbers, which finds small numbers without looking at all of them.
#[derive(Clone)]
struct Least {
    /// The children of node `n` are at `2n` and `2n + 1`. The second half contains the numbers themselves.
    tree: Vec<i64>,
    size: usize,
}

/// The absence of a number.
const NONE: i64 = i64::MAX;

impl Least {
    fn new(numbers: impl ExactSizeIterator<Item = i64>) -> Self {
        // One more place, so that a search may begin after the last number.
        let size = (numbers.len() + 1).next_power_of_two();
        let mut tree = vec![NONE; 2 * size];
        for (number, at) in numbers.zip(&mut tree[size..]) {
            *at = number;
        }
        for node in (1..size).rev() {
            tree[node] = tree[2 * node].min(tree[2 * node + 1]);
        }
        Self { tree, size }
    }

    /// The index of the first number from `begin` on that is at most `most`.
    fn first(&self, begin: usize, most: i64) -> Option<usize> {
        let mut node = self.size + begin;
        while self.tree[node] > most {
            // Goes to the right neighbour of a node whose numbers are all too large.
            node >>= node.trailing_ones();
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.size {
            node *= 2;
            node += usize::from(self.tree[node] > most);
        }
        Some(node - self.size)
    }

    /// The least number from `begin` on.
    fn least(&self, begin: usize) -> i64 {
        let mut node = self.size + begin;
        let mut least = self.tree[node];
        while node > 1 {
            least = least.min(self.tree[node | 1]);
            node /= 2;
        }
        least
    }

    fn take(&mut self, index: usize) {
        let mut node = self.size + index;
        self.tree[node] = NONE;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].min(self.tree[2 * node + 1]);
        }
    }
}
