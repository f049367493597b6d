//! When to look at which locks, and when to check whose patience.

use std::collections::BTreeSet;

/// Each has at most one time, and knows it, too.
#[derive(Debug)]
pub(super) struct Schedule<T, I>(BTreeSet<(T, I)>);

impl<T: Copy + Ord, I: Copy + Ord> Schedule<T, I> {
    pub(super) const fn new() -> Self {
        Self(BTreeSet::new())
    }

    pub(super) fn first(&self) -> Option<T> {
        self.0.first().map(|&(time, _)| time)
    }

    pub(super) fn first_from(&self, from: (T, I)) -> Option<(T, I)> {
        self.0.range(from..).next().copied()
    }

    /// Gives `id` another time, or none. `current` is the time that it knows.
    pub(super) fn set(&mut self, id: I, current: &mut Option<T>, time: Option<T>) {
        if let Some(former) = std::mem::replace(current, time) {
            self.0.remove(&(former, id));
        }
        self.0.extend(time.map(|time| (time, id)));
    }

    /// Takes the first, if it is due by now. It must be told that it has no time any more.
    pub(super) fn take_due(&mut self, now: T) -> Option<I> {
        self.0.first().filter(|(time, _)| *time <= now)?;
        self.0.pop_first().map(|(_, id)| id)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(super) fn contains(&self, id: I, time: T) -> bool {
        self.0.contains(&(time, id))
    }
}
