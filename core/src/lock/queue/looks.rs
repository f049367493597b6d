//! At which moments to look at the keys of which locks.

use super::super::lease::Moment;
use super::QueueId;
use std::collections::BTreeSet;

/// Each queue has one look at most, and knows its moment, too.
#[derive(Debug, Default)]
pub(super) struct Looks {
    schedule: BTreeSet<(Moment, QueueId)>,
}

impl Looks {
    pub(super) fn first(&self) -> Option<Moment> {
        self.schedule.first().map(|&(moment, _)| moment)
    }

    /// Gives the queue another moment, or none. `current` is the one that the queue knows.
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

    /// The queue that was to be looked at first, if it was to be by now.
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
