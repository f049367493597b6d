//! L5: a lock that can be granted to a waiter is granted.
//!
//! ```text
//!   holds     ├───────────┤  ├─────┤      from the reply of the grant to the latest end
//!   waits        ├──────────────────────────┤
//!   open                  ▲▲        ▲▲▲▲▲▲    any of the waiters would be admitted if it were first
//! ```
//!
//! Everybody who may hold the lock counts as a holder, and of all who may wait, the waiter that tolerates fewest counts
//! as the first. So an open lock can certainly be granted. It may be open for a short time, but not for long. Each
//! grant restarts that time.
//!
//! A lock that is waited for together with others may be kept free, and is not judged: the simulation of the core does that.

use super::spans::{joined, overlap};
use super::{Grant, Law, Lock, Rules, Span, Violation};
use crate::record::{Op, Outcome};
use std::collections::BTreeMap;

/// Somebody certainly waits between these moments.
struct Wait {
    from: u64,
    to: u64,
    record: u32,
}

/// A change at a moment.
#[derive(Clone, Copy)]
enum Change {
    Comes(Part),
    /// With the record that shows it.
    Goes(Part, u32),
    /// A grant was told.
    Granted,
}

/// Somebody who tolerates this many holders.
#[derive(Clone, Copy)]
enum Part {
    Holder(u32),
    Waiter(u32),
}

/// How many of them tolerate how many holders.
#[derive(Default)]
struct Crowd {
    by_tolerance: BTreeMap<u32, u32>,
    all: u32,
}

impl Crowd {
    fn tightest(&self) -> u32 {
        self.by_tolerance.keys().next().copied().unwrap_or(u32::MAX)
    }

    fn add(&mut self, tolerance: u32) {
        *self.by_tolerance.entry(tolerance).or_default() += 1;
        self.all += 1;
    }

    fn remove(&mut self, tolerance: u32) {
        let count = self.by_tolerance.get_mut(&tolerance).expect("it was there");
        *count -= 1;
        if *count == 0 {
            self.by_tolerance.remove(&tolerance);
        }
        self.all -= 1;
    }
}

impl Lock<'_> {
    /// L5: the lock is not free for too long while somebody waits.
    pub(super) fn check_idle(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        if rules.idle_micros == 0 {
            return;
        }
        let waits = self.sure_waits(rules.idle_micros);
        if waits.is_empty() {
            return;
        }
        let (mut open, mut is_open_now) = (Vec::new(), None);
        let (mut holders, mut waiters) = (Crowd::default(), Crowd::default());
        let mut last = None;
        for (at, change) in self.changes(rules) {
            let was_open = is_open_now;
            match change {
                Change::Comes(Part::Holder(tolerance)) => holders.add(tolerance),
                Change::Comes(Part::Waiter(tolerance)) => waiters.add(tolerance),
                Change::Goes(Part::Holder(tolerance), record) => {
                    holders.remove(tolerance);
                    last = Some(record);
                }
                Change::Goes(Part::Waiter(tolerance), record) => {
                    waiters.remove(tolerance);
                    last = last.and(Some(record));
                }
                Change::Granted => {}
            }
            let tolerated = holders.tightest().min(waiters.tightest());
            let is_open = holders.all < tolerated;
            is_open_now = match (was_open, change) {
                (Some(_), Change::Granted) | (None, _) if is_open => last.map(|by| (at, by)),
                (since, _) if is_open => since,
                _ => None,
            };
            if let Some((from, by)) = was_open.filter(|_| is_open_now != was_open) {
                open.push(Open { from, to: at, by });
            }
        }
        open.extend(is_open_now.map(|(from, by)| Open { from, to: u64::MAX, by }));
        // A shorter time neither excuses anything nor violates L5.
        open.retain(|open| open.from.saturating_add(rules.idle_micros) < open.to);
        let unheard = self.may_be_held(rules);
        let (bound, standstill) = (rules.idle_micros, &*rules.standstill);
        let idle = Idle { bound, waits, standstill, unheard };
        let found = open.iter().find_map(|open| Some((open, idle.within(open)?)));
        wrong.extend(found.map(|(open, (from, wait))| {
            let lasted = (wait.to.min(open.to) - from) / 1_000;
            let what = format!("could be granted for {lasted} ms, and somebody waits");
            self.violation(Law::L5, what, vec![open.by, wait.record])
        }));
    }

    /// Who may have held the lock and who may have waited for it, in the order of time.
    fn changes(&self, rules: &Rules) -> Vec<(u64, Change)> {
        let mut changes = Vec::new();
        let next_of_owner = self.next_of_owner();
        for (grant, next) in self.grants.iter().zip(next_of_owner) {
            let first = self.first(grant);
            // An owner that did not wait may have got the lock as soon as it asked, and the reply late.
            let from = if first.op == Op::Wait { grant.told } else { first.asked };
            let (mut end, mut by) = self.latest_end(grant, rules);
            // An owner has only one hold of a lock.
            if let Some(next) = next.map(|next| &self.grants[next]).filter(|next| next.told < end) {
                (end, by) = (next.told, next.of[0]);
            }
            let end = end.max(from);
            changes.push((grant.told, Change::Granted));
            changes.push((from, Change::Comes(Part::Holder(grant.tightest))));
            let mut tolerance = grant.tightest;
            let is_sure = grant.unheard_ttl == 0;
            for index in grant.of.iter().filter(|_| is_sure) {
                let record = self.record(*index);
                let looser = record.is_acquire() && record.tolerance() > tolerance;
                if looser && record.outcome == Outcome::Ok && record.told < end {
                    let at = record.told.max(from);
                    changes.push((at, Change::Comes(Part::Holder(record.tolerance()))));
                    changes.push((at, Change::Goes(Part::Holder(tolerance), *index)));
                    tolerance = record.tolerance();
                }
            }
            changes.push((end, Change::Goes(Part::Holder(tolerance), by)));
        }
        for index in self.all {
            let record = self.record(*index);
            if record.op == Op::Wait && record.outcome != Outcome::Unknown {
                let waiter = Part::Waiter(record.tolerance());
                changes.push((record.asked, Change::Comes(waiter)));
                changes.push((record.told, Change::Goes(waiter, *index)));
            }
        }
        // At equal moments, arrivals come before departures.
        changes.sort_by_key(|(at, change)| (*at, !matches!(change, Change::Comes(_))));
        changes
    }

    /// The waits that last long enough, sorted by beginning, each with the latest end of all waits that began no later.
    /// A wait counts from `bound` after its request was sent.
    fn sure_waits(&self, bound: u64) -> Vec<Wait> {
        let waits = self.all.iter().filter_map(|index| {
            let record = self.record(*index);
            let (from, to) = (record.asked + bound, record.told);
            let is_told = matches!(record.outcome, Outcome::Ok | Outcome::Refused);
            let is_sure = record.op == Op::Wait && is_told;
            (is_sure && to > from + bound).then_some(Wait { from, to, record: *index })
        });
        let mut waits: Vec<_> = waits.collect();
        waits.sort_unstable_by_key(|wait| wait.from);
        for index in 1..waits.len() {
            let Wait { to, record, .. } = waits[index - 1];
            if to >= waits[index].to {
                waits[index] = Wait { from: waits[index].from, to, record };
            }
        }
        waits
    }

    /// When somebody may have had the lock without a record of it: by an unanswered request, or without being told a
    /// fence.
    fn may_be_held(&self, rules: &Rules) -> Vec<Span> {
        let spans = self.all.iter().filter_map(|index| {
            let record = self.record(*index);
            let may = match record.outcome {
                Outcome::Ok => record.fence == 0,
                Outcome::Refused | Outcome::Failed | Outcome::Over => false,
                Outcome::Unknown => true,
            };
            // A ticket's place is given up at a known moment. Other requests may arrive late.
            let late = if record.is_ticket { 0 } else { rules.idle_micros };
            let to = record.told + lease_micros(record.ttl.into(), rules) + late;
            (may && record.is_lease()).then_some(Span { from: record.asked, to })
        });
        joined(spans.collect())
    }

    /// The latest end of the hold, in microseconds, and the record that shows it.
    pub(super) fn latest_end(&self, grant: &Grant<'_>, rules: &Rules) -> (u64, u32) {
        let mut end = (grant.told + lease_micros(grant.unheard_ttl, rules), grant.of[0]);
        for index in grant.of {
            let record = self.record(*index);
            let lease = record.told + lease_micros(record.ttl.into(), rules);
            match (record.op, record.outcome) {
                (Op::Closed, Outcome::Ok) if self.surely_closes(grant, *index, rules) => {
                    end = end.min((lease, *index));
                }
                (Op::Release, Outcome::Ok | Outcome::Over) => return (record.told, *index),
                (Op::Extend, Outcome::Ok) => end = (lease, *index),
                (Op::Extend | Op::Try | Op::Wait, Outcome::Unknown | Outcome::Ok) => {
                    end = end.max((lease, *index));
                }
                _ => {}
            }
        }
        end
    }
}

/// The longest time that a lease may last.
fn lease_micros(ttl: i64, rules: &Rules) -> u64 {
    u64::try_from(ttl + rules.late_millis).unwrap_or(0) * 1_000
}

/// A time in which the lock could be granted to any first waiter, and no grant was made.
struct Open {
    from: u64,
    to: u64,
    /// The record that shows its beginning.
    by: u32,
}

/// Decides whether a lock was free for too long.
struct Idle<'r> {
    /// How long the lock may be free. The server must not have stood still for as long before and afterwards.
    bound: u64,
    waits: Vec<Wait>,
    standstill: &'r [Span],
    unheard: Vec<Span>,
}

impl Idle<'_> {
    /// When the lock became free between two grants, and who waited. `None` if that is excused.
    fn within(&self, open: &Open) -> Option<(u64, &Wait)> {
        let mut from = open.from;
        // A wait may begin in the middle, and an excuse may end there. The time after either is examined too.
        while from.saturating_add(self.bound) < open.to {
            let begun = self.waits.partition_point(|wait| wait.from <= from);
            let waiting = begun.checked_sub(1).map(|begun| &self.waits[begun]);
            from = match waiting.filter(|wait| wait.to > from.saturating_add(self.bound)) {
                Some(wait) => match self.excused_until(from) {
                    Some(until) => until.saturating_add(1),
                    None => return Some((from, wait)),
                },
                None => self.waits.get(begun)?.from,
            };
        }
        None
    }

    /// The end of the excuses for a lock that is free from `from`.
    fn excused_until(&self, from: u64) -> Option<u64> {
        let to = from + self.bound;
        let still = overlap(self.standstill, from.saturating_sub(self.bound), to);
        let still = still.map(|span| span.to.saturating_add(self.bound));
        still.max(overlap(&self.unheard, from, to).map(|span| span.to))
    }
}
