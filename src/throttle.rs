//! Work that is done at once the first time, then at most ten times a second, however often it is wanted.

use crate::timer;
use leasehold_core::lock::Monotonic;
use std::cell::Cell;

/// Shorter than waiters may go without an answer.
const MILLIS_BETWEEN: u64 = 100;

pub(crate) struct Throttle {
    wanted: Cell<bool>,
    done: Cell<Option<Monotonic>>,
}

impl Throttle {
    pub(crate) const fn new() -> Self {
        Self { wanted: Cell::new(false), done: Cell::new(None) }
    }

    pub(crate) fn want(&self) {
        self.wanted.set(true);
        timer::reconsider();
    }

    /// When to do the work, if it is wanted.
    pub(crate) fn due(&self, now: Monotonic) -> Option<Monotonic> {
        let next = self.done.get().map(|done| done.plus_millis(MILLIS_BETWEEN));
        self.wanted.get().then(|| next.map_or(now, |next| next.max(now)))
    }

    /// Whether to do the work now. If so, it counts as done.
    pub(crate) fn take(&self, now: Monotonic) -> bool {
        let is_due = self.due(now).is_some_and(|due| due <= now);
        if is_due {
            self.wanted.set(false);
            self.done.set(Some(now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Monotonic = Monotonic::from_micros(7_000_000);

    #[test]
    fn it_is_done_at_once_and_then_not_too_often() {
        let throttle = Throttle::new();
        assert_eq!((throttle.due(NOW), throttle.take(NOW)), (None, false), "nobody wants it");
        throttle.want();
        assert_eq!(throttle.due(NOW), Some(NOW));
        assert!(throttle.take(NOW));
        assert!(!throttle.take(NOW.plus_millis(500)), "it is done");
        throttle.want();
        let next = NOW.plus_millis(MILLIS_BETWEEN);
        assert_eq!(throttle.due(NOW.plus_millis(1)), Some(next));
        assert!(!throttle.take(NOW.plus_millis(MILLIS_BETWEEN - 1)));
        assert!(throttle.take(next));
    }
}
