//! Looks at locks to which nothing is known to have happened. The lock that was looked at the longest ago comes first.
//!
//! - **A doubt**: a flush, a swap of databases, slots that moved, a clock set back. It covers all locks of a database
//!   that were last looked at before. Noting a doubt takes one step, however many locks there are.
//! - **The routine**: a lock is looked at again a second after the last look, if there is time: at most [`IN_A_TICK`]
//!   locks in each [`TICK_MILLIS`], so that a million locks take some percent of the server's time. Locks that clients
//!   wait for on connections come first, so a crowd of tickets does not keep them waiting. An owner with a ticket asks
//!   again, and then its lock is looked at anyway. The routine notices what no filter and no event announces:
//!   1. a command that was queued in a transaction, or delayed by a pause, for longer than touches and new queues are
//!      followed (see [`Queue::next_after_touch`] and [`Queue::next_while_new`]);
//!   2. another module that writes a key, and calls no command that names it;
//!   3. an event that was lost by a bug in this module or in the server.
//!
//! ```text
//!   db 0   connections    queue 4 ◄──► queue 1 ◄──► queue 9        a look, for whatever cause,
//!                         oldest look     │         newest look    moves the queue to this end
//!                         looked at before the doubt
//!          tickets only   queue 2 ◄──► queue 7
//! ```

use super::contended::{Crowd, Queue, Recheck};
use super::marking::IN_A_TICK;
use super::{Ownership, QueueId, RECHECK_MILLIS};
use crate::lock::lease::Monotonic;
use slab::Slab;
const TICK_MILLIS: u64 = 10;

/// A lock that is due this soon is looked at along with others, so that the timer fires less often.
const EARLY_MILLIS: u64 = 20;

/// Queues in the order of their last looks.
#[derive(Debug, Default)]
struct Line {
    oldest: Option<QueueId>,
    newest: Option<QueueId>,
}

#[derive(Debug)]
struct Database {
    number: i32,
    connections: Line,
    tickets_only: Line,
    /// Locks that were last looked at before this step are in doubt.
    doubted: u64,
}

#[derive(Debug, Default)]
pub(super) struct Rechecks {
    /// Few entries, usually one. Each database here has a queue.
    dbs: Vec<Database>,
    /// Where the search for the next database begins, so that each has its turn.
    next: usize,
    /// Counts looks and doubts.
    steps: u64,
    /// The slots of locks that were last looked at before this step are in doubt.
    slots_doubted: u64,
    /// How many more locks may be looked at by routine until the tick ends.
    left: usize,
    tick_ends: Monotonic,
}

impl Rechecks {
    /// The longest time between two routine looks at a lock, with this many queues.
    pub(super) fn millis_between(queues: usize) -> u64 {
        let ticks = u64::try_from(queues.div_euclid(IN_A_TICK)).unwrap_or(u64::MAX);
        ticks.saturating_mul(TICK_MILLIS).max(RECHECK_MILLIS)
    }

    pub(super) fn add(&mut self, queues: &mut Slab<Queue>, id: QueueId, now: Monotonic) {
        let Some(queue) = queues.get_mut(id.0.get()) else { return };
        let number = queue.name.db;
        let at = self.dbs.iter().position(|db| db.number == number);
        let at = at.unwrap_or_else(|| {
            let (connections, tickets_only) = (Line::default(), Line::default());
            self.dbs.push(Database { number, connections, tickets_only, doubted: 0 });
            self.dbs.len().saturating_sub(1)
        });
        let Some(db) = self.dbs.get_mut(at) else { return };
        self.steps = self.steps.saturating_add(1);
        let has_connections = queue.length > queue.tickets;
        let crowd = if has_connections { Crowd::Connections } else { Crowd::TicketsOnly };
        let line = db.line(crowd);
        let earlier = line.newest.replace(id);
        queue.recheck = Recheck { crowd, earlier, later: None, looked: self.steps, looked_at: now };
        match earlier.and_then(|earlier| queues.get_mut(earlier.0.get())) {
            Some(earlier) => earlier.recheck.later = Some(id),
            None => line.oldest = Some(id),
        }
    }

    /// The queue is about to be closed.
    pub(super) fn remove(&mut self, queues: &mut Slab<Queue>, id: QueueId) {
        let Some(number) = self.unlink(queues, id) else { return };
        self.dbs.retain(|db| db.number != number || db.has_any());
    }

    fn unlink(&mut self, queues: &mut Slab<Queue>, id: QueueId) -> Option<i32> {
        let queue = queues.get(id.0.get())?;
        let (number, Recheck { crowd, earlier, later, .. }) = (queue.name.db, queue.recheck);
        let line = self.dbs.iter_mut().find(|db| db.number == number)?.line(crowd);
        match earlier.and_then(|earlier| queues.get_mut(earlier.0.get())) {
            Some(neighbour) => neighbour.recheck.later = later,
            None => line.oldest = later,
        }
        match later.and_then(|later| queues.get_mut(later.0.get())) {
            Some(neighbour) => neighbour.recheck.earlier = earlier,
            None => line.newest = earlier,
        }
        Some(number)
    }

    /// The lock is looked at, for any cause.
    pub(super) fn looked(&mut self, queues: &mut Slab<Queue>, id: QueueId, now: Monotonic) {
        if self.unlink(queues, id).is_some() {
            self.add(queues, id, now);
        }
    }

    /// Any lock of this database (`None`: of all) may have become free.
    pub(super) fn doubt(&mut self, number: Option<i32>) {
        self.steps = self.steps.saturating_add(1);
        for db in &mut self.dbs {
            if number.is_none_or(|number| number == db.number) {
                db.doubted = self.steps;
            }
        }
    }

    pub(super) fn doubt_slots(&mut self) {
        self.doubt(None);
        self.slots_doubted = self.steps;
    }

    pub(super) fn is_in_doubt(&self, queue: &Queue) -> bool {
        let db = self.dbs.iter().find(|db| db.number == queue.name.db);
        db.is_some_and(|db| queue.recheck.looked < db.doubted)
    }

    pub(super) fn ownership(&self, queue: &Queue) -> Ownership {
        let is_in_doubt = queue.recheck.looked < self.slots_doubted;
        if is_in_doubt { Ownership::InDoubt } else { queue.ownership }
    }

    pub(super) fn has_doubts(&self, queues: &Slab<Queue>) -> bool {
        self.dbs.iter().any(|db| db.first_in_doubt(queues).is_some())
    }

    pub(super) fn next_in_doubt(&mut self, queues: &Slab<Queue>) -> Option<QueueId> {
        self.next_of(|db| db.first_in_doubt(queues))
    }

    pub(super) fn next_by_routine(
        &mut self,
        queues: &Slab<Queue>,
        now: Monotonic,
    ) -> Option<QueueId> {
        if now >= self.tick_ends {
            self.tick_ends = now.plus_millis(TICK_MILLIS);
            self.left = IN_A_TICK;
        }
        let left = self.left.checked_sub(1)?;
        let soon = now.plus_millis(EARLY_MILLIS);
        let is_due = |id: &QueueId| due_at(queues, *id).is_some_and(|due| due <= soon);
        let id = self
            .next_of(|db| db.connections.oldest.filter(is_due))
            .or_else(|| self.next_of(|db| db.tickets_only.oldest.filter(is_due)))?;
        self.left = left;
        Some(id)
    }

    /// The routine looks took longer than they may in a tick.
    pub(super) fn rest(&mut self) {
        self.left = 0;
    }

    pub(super) fn next_due(&self, queues: &Slab<Queue>) -> Option<Monotonic> {
        let oldest = self.dbs.iter().flat_map(Database::oldest);
        let oldest = oldest.filter_map(|id| due_at(queues, id));
        let not_before = if self.left == 0 { self.tick_ends } else { Monotonic::default() };
        oldest.min().map(|due| due.max(not_before))
    }

    /// Searches the databases in turn, beginning behind the last one found.
    fn next_of(&mut self, first: impl Fn(&Database) -> Option<QueueId>) -> Option<QueueId> {
        let (behind, ahead) = self.dbs.split_at_checked(self.next).unwrap_or((&self.dbs, &[]));
        let in_turn = ahead.iter().chain(behind);
        let (steps, id) =
            in_turn.enumerate().find_map(|(steps, db)| first(db).map(|id| (steps, id)))?;
        let next = self.next.saturating_add(steps).saturating_add(1);
        self.next = next.checked_rem(self.dbs.len()).unwrap_or(0);
        Some(id)
    }

    #[cfg(test)]
    pub(super) fn len(&self, queues: &Slab<Queue>) -> usize {
        let later = |id: &QueueId| queues.get(id.0.get())?.recheck.later;
        let length = |line: &Line| {
            let all: Vec<_> = std::iter::successors(line.oldest, later).collect();
            assert_eq!(all.last(), line.newest.as_ref());
            let looked = |id: &QueueId| queues[id.0.get()].recheck.looked;
            assert!(all.iter().is_sorted_by_key(looked), "in the order of the looks");
            all.len()
        };
        assert!(self.dbs.iter().all(Database::has_any), "no database is left empty");
        self.dbs.iter().flat_map(|db| [&db.connections, &db.tickets_only]).map(length).sum()
    }
}

impl Database {
    fn line(&mut self, crowd: Crowd) -> &mut Line {
        match crowd {
            Crowd::Connections => &mut self.connections,
            Crowd::TicketsOnly => &mut self.tickets_only,
        }
    }

    fn oldest(&self) -> impl Iterator<Item = QueueId> {
        [self.connections.oldest, self.tickets_only.oldest].into_iter().flatten()
    }

    fn has_any(&self) -> bool {
        self.oldest().next().is_some()
    }

    fn first_in_doubt(&self, queues: &Slab<Queue>) -> Option<QueueId> {
        let is_in_doubt = |queue: &Queue| queue.recheck.looked < self.doubted;
        self.oldest().find(|id| queues.get(id.0.get()).is_some_and(is_in_doubt))
    }
}

fn due_at(queues: &Slab<Queue>, id: QueueId) -> Option<Monotonic> {
    Some(queues.get(id.0.get())?.recheck.looked_at.plus_millis(RECHECK_MILLIS))
}
