//! When to look at which keys.

use super::super::lease::Moment;
use super::QueueId;
use std::collections::BTreeSet;

/// Each queue has at most one scheduled look, and knows its time, too.
#[derive(Debug, Default)]
pub(super) struct Looks {
    schedule: BTreeSet<(Moment, QueueId)>,
}

impl Looks {
    pub(super) fn first(&self) -> Option<Moment> {
        self.schedule.first().map(|&(moment, _)| moment)
    }

    /// Gives the queue another time to look, or none. `current` is the time that the queue knows.
    pub(super) fn set(
        &mut self,
        id: QueueId,
        current: &mut Option<Moment>,
        moment: Option<Moment>,
    ) {
        if let Some(former) = std::mem::replace(current, moment) {
            self.schedule.remove(&(former, id));
        }
        self.schedule.extend(moment.map(|moment| (moment, id)));
    }

    /// Takes the queue with the earliest look, if that is due by now.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<QueueId> {
        self.schedule.first().filter(|(moment, _)| *moment <= now)?;
        self.schedule.pop_first().map(|(_, id)| id)
    }

    pub(super) fn len(&self) -> usize {
        self.schedule.len()
    }

    #[cfg(test)]
    pub(super) fn contains(&self, id: QueueId, moment: Moment) -> bool {
        self.schedule.contains(&(moment, id))
    }
}
