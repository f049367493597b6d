//! Holds that end with a connection.
//!
//! ```text
//!   Closed    asked ├───────────┤ told             in between it ended, and the server noticed
//!   lease     ≥ asked + grace   ≤ told + grace     unless something extended it or bound it anew
//! ```

use super::unheard::Unheard;
use super::{Grant, Lock, Rules};
use crate::record::{Op, Outcome, Record};

/// The end of a connection to which a hold was bound.
struct Closing {
    record: u32,
    /// The earliest end of the hold.
    ends: i64,
    /// The latest end of the hold, if the connection's end certainly shortened it.
    by: Option<i64>,
    /// By when the server had certainly noticed, in microseconds.
    noticed: Option<u64>,
}

/// The ends of connections that may still matter for one grant.
pub(super) struct Closings(Vec<Closing>);

impl Closings {
    pub(super) fn new(lock: &Lock<'_>, grant: &Grant<'_>, rules: &Rules) -> Self {
        let closed = grant.of.iter().filter(|index| lock.record(**index).op == Op::Closed);
        let closing = |index: &u32| {
            let (record, sure) = (lock.record(*index), lock.surely_closes(grant, *index, rules));
            let grace = i64::from(record.ttl);
            Closing {
                record: *index,
                ends: record.asked_millis() + grace,
                by: sure.then_some(record.told_millis() + grace + rules.late_millis),
                noticed: (record.outcome == Outcome::Ok).then_some(record.told),
            }
        };
        Self(closed.map(closing).collect())
    }

    /// The earliest end of the hold. Includes connections whose recorded end is later, because they may have ended by
    /// then.
    pub(super) fn ends(&self) -> i64 {
        self.0.iter().map(|closing| closing.ends).min().unwrap_or(i64::MAX)
    }

    /// The end of a connection after which this request cannot have succeeded. A connection's end may be lost if the
    /// server had not written it.
    pub(super) fn too_late_for(
        &self,
        index: u32,
        record: &Record,
        unheard: Unheard,
        rules: &Rules,
    ) -> Option<u32> {
        let is_over = |closing: &&Closing| {
            let noticed = closing.noticed.filter(|noticed| !rules.unbinds(*noticed, record.told));
            let by = closing.by.filter(|_| noticed.is_some());
            closing.record < index && by.is_some_and(|by| by < record.asked_millis())
        };
        let late = self.0.iter().find(is_over).filter(|_| !unheard.may_hold());
        late.map(|closing| closing.record)
    }

    /// Notes a success that gave the hold a new or longer lease, no earlier than at `at`. The success came after some
    /// of these ends, or bound the hold to another connection.
    pub(super) fn renewed_by(&mut self, index: u32, record: &Record, at: i64, late: i64) {
        if !record.is_lease() {
            return;
        }
        let ttl = i64::from(record.ttl);
        self.0.retain_mut(|closing| {
            if closing.record > index {
                return true;
            }
            let is_noticed = closing.noticed.is_some_and(|noticed| noticed <= record.asked);
            if is_noticed && record.op == Op::Extend {
                return false;
            }
            if is_noticed || record.is_bound {
                closing.ends = closing.ends.max(at + ttl);
            }
            // The end of a former connection may come later, and then changes nothing.
            let is_former = record.is_bound && !is_noticed;
            closing.by = closing.by.filter(|_| !is_former);
            closing.by = closing.by.map(|by| by.max(record.told_millis() + ttl + late));
            true
        });
    }

    /// Whether a refusal may be due to a connection's end, after which the hold is back because the server lost that
    /// end.
    pub(super) fn may_show_again(&self, refused: &Record, told: u64, rules: &Rules) -> bool {
        self.ends() <= refused.told_millis() && rules.unbinds(refused.asked, told)
    }
}

impl Lock<'_> {
    /// Whether this end of a connection certainly shortened the lease.
    pub(super) fn surely_closes(&self, grant: &Grant<'_>, index: u32, rules: &Rules) -> bool {
        let closed = self.record(index);
        let unheard = self.unheard.before(closed.owner, index);
        closed.outcome == Outcome::Ok
            && !unheard.may_hold()
            && !rules.unbinds(grant.asked, closed.told)
    }
}
