//! Which locks are to be looked at: something may have happened to them, or nobody knows whether it has.

use super::super::lease::Moment;
use super::{QueueId, Queues};

impl<P> Queues<P> {
    /// Whether anyone waits for a lock of this name, in whatever database.
    pub(crate) fn is_waited_for(&self, key: &[u8]) -> bool {
        self.names.in_any_db(key).next().is_some()
    }

    /// Somebody's command names the locks of this name and may free them: at once or, queued in a transaction,
    /// after a while. Nobody will say when. So the locks are dirty now, and as long as they are found held they
    /// are looked at again after as much time as has passed since: whatever the delay, it is noticed
    /// after twice that.
    pub(crate) fn touch(&mut self, key: &[u8], now: Moment) {
        for id in self.names.in_any_db(key) {
            self.dirty.insert(id);
            if let Some(queue) = self.queues.get_mut(id.0) {
                queue.touched = Some(now);
            }
        }
    }

    /// The lock may have become free. True if anyone waits for it.
    pub(crate) fn mark(&mut self, db: i32, key: &[u8]) -> bool {
        self.id_of(db, key).is_some_and(|id| {
            self.dirty.insert(id);
            true
        })
    }

    /// Any lock of these databases (`None`: of all) may have become free.
    pub(crate) fn mark_all(&mut self, db: Option<i32>) {
        for (index, queue) in &self.queues {
            if db.is_none_or(|db| db == queue.name.db) {
                self.dirty.insert(QueueId(index));
            }
        }
    }

    /// All locks are to be looked at, for whatever reason.
    pub(crate) fn look_at_all(&mut self) {
        self.dirty.extend(self.queues.iter().map(|(index, _)| QueueId(index)));
    }

    /// So many locks may have become free, and the next time so many others: each has its turn.
    pub(crate) fn mark_next(&mut self, count: usize) {
        for _ in 0..count.min(self.queues.capacity()) {
            self.next = if self.next < self.queues.capacity() { self.next } else { 0 };
            if self.queues.contains(self.next) {
                self.dirty.insert(QueueId(self.next));
            }
            self.next = self.next.saturating_add(1);
        }
    }
}
