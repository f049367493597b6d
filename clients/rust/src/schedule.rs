//! What is due when. Pure: moments are arguments.

use crate::clock::Moment;
use std::collections::{BTreeSet, HashMap};

/// One moment for each number.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    due: BTreeSet<(Moment, u64)>,
    moments: HashMap<u64, Moment>,
}

impl Schedule {
    pub(crate) fn set(&mut self, id: u64, moment: Moment) {
        self.remove(id);
        self.moments.insert(id, moment);
        self.due.insert((moment, id));
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(moment) = self.moments.remove(&id) {
            self.due.remove(&(moment, id));
        }
    }

    /// The first moment of all.
    pub(crate) fn first(&self) -> Option<Moment> {
        self.due.first().map(|(moment, _)| *moment)
    }

    /// Takes out one that is due.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<u64> {
        let (_, id) = self.due.first().filter(|(moment, _)| *moment <= now).copied()?;
        self.remove(id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_due_comes_out_in_order_and_once() {
        let now = Moment::now();
        let at = |millis| now + Duration::from_millis(millis);
        let mut schedule = Schedule::default();
        schedule.set(1, at(30));
        schedule.set(2, at(10));
        schedule.set(3, at(20));
        schedule.set(1, at(5));
        schedule.remove(3);
        assert_eq!(schedule.first(), Some(at(5)));
        assert_eq!(schedule.pop(at(4)), None);
        assert_eq!(schedule.pop(at(10)), Some(1));
        assert_eq!(schedule.pop(at(10)), Some(2));
        assert_eq!(schedule.pop(at(99)), None);
        assert_eq!(schedule.first(), None);
    }
}
