//! L5: a lock that can be granted to one who waits is granted.
//!
//! ```text
//!   holds     ├───────────┤  ├─────┤      from the reply of the grant to the latest end
//!   waits        ├──────────────────────────┤
//!   open                  ▲▲        ▲▲▲▲▲▲    whoever of them is the first would be admitted
//! ```
//!
//! Whoever may be there counts as a holder, and of all who may wait the one that tolerates fewest
//! counts as the first. So a lock that is open can be granted. It may be open for a while, but not
//! for long: each grant begins a new while.

use super::spans::{joined, overlap};
use super::{Grant, Law, Lock, Rules, Span, Violation};
use crate::record::{Op, Outcome};
use std::collections::BTreeMap;

/// Somebody waits for certain between these moments.
struct Wait {
    from: u64,
    to: u64,
    record: u32,
}

/// What changes at a moment.
#[derive(Clone, Copy)]
enum Change {
    Comes(Part),
    /// With the record that shows it.
    Goes(Part, u32),
    /// A grant was told.
    Granted,
}

/// One who tolerates so many holders.
#[derive(Clone, Copy)]
enum Part {
    Holder(u32),
    Waiter(u32),
}

/// How many there are who tolerate so many holders.
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
    pub(super) fn check_idle(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        if rules.idle_micros == 0 {
            return;
        }
        let idle = Idle {
            bound: rules.idle_micros,
            waits: self.sure_waits(rules.idle_micros),
            standstill: &rules.standstill,
            unheard: self.may_be_held(rules),
        };
        if idle.waits.is_empty() {
            return;
        }
        let (mut holders, mut waiters) = (Crowd::default(), Crowd::default());
        // Since when the lock has been open, and the record that shows it.
        let mut open: Option<(u64, u32)> = None;
        let mut last = None;
        for (at, change) in self.changes(rules) {
            let was_open = open;
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
            open = match (was_open, change) {
                (Some(_), Change::Granted) | (None, _) if is_open => last.map(|by| (at, by)),
                (since, _) if is_open => since,
                _ => None,
            };
            let over = was_open.filter(|_| open != was_open);
            let found = over.and_then(|(from, by)| Some((by, idle.within(from, at)?)));
            if let Some((by, (from, wait))) = found {
                return wrong.push(self.idle(by, from, wait, at));
            }
        }
        let found = open.and_then(|(from, by)| Some((by, idle.within(from, u64::MAX)?)));
        if let Some((by, (from, wait))) = found {
            wrong.push(self.idle(by, from, wait, u64::MAX));
        }
    }

    fn idle(&self, by: u32, from: u64, wait: &Wait, until: u64) -> Violation {
        let lasted = wait.to.min(until) - from;
        let what = format!("could be granted for {} ms, and somebody waits", lasted / 1_000);
        self.violation(Law::L5, what, vec![by, wait.record])
    }

    /// Who may have held the lock and who may have waited for it, in the order of time.
    fn changes(&self, rules: &Rules) -> Vec<(u64, Change)> {
        let mut changes = Vec::new();
        let next_of_owner = self.next_of_owner();
        for (grant, next) in self.grants.iter().zip(next_of_owner) {
            let first = self.first(grant);
            // An owner that did not wait may have had the lock as soon as it asked, and have heard of
            // it late.
            let from = if first.op == Op::Wait { grant.told } else { first.asked };
            let (mut end, mut by) = self.latest_end(grant, rules);
            // An owner has one hold of a lock.
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
        // Who comes at a moment is there before anybody goes.
        changes.sort_by_key(|(at, change)| (*at, !matches!(change, Change::Comes(_))));
        changes
    }

    /// The waits that last long enough, sorted by when they begin, each with the latest end of all
    /// waits that began no later. A wait begins a while after its request was sent.
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
            let (to, record) = (waits[index - 1].to, waits[index - 1].record);
            if to >= waits[index].to {
                (waits[index].to, waits[index].record) = (to, record);
            }
        }
        waits
    }

    /// When somebody may have had the lock unknown to us: by an unanswered request, or without ever
    /// having been told a fence.
    fn may_be_held(&self, rules: &Rules) -> Vec<Span> {
        let spans = self.all.iter().filter_map(|index| {
            let record = self.record(*index);
            let may = match record.outcome {
                Outcome::Ok => record.fence == 0,
                Outcome::Refused | Outcome::Failed => false,
                Outcome::Unknown => true,
            };
            let to = record.told + lease_micros(record.ttl.into(), rules) + rules.idle_micros;
            (may && record.is_lease()).then_some(Span { from: record.asked, to })
        });
        joined(spans.collect())
    }

    /// The latest end, in microseconds, and the record that shows it.
    pub(super) fn latest_end(&self, grant: &Grant<'_>, rules: &Rules) -> (u64, u32) {
        let mut end = (grant.told + lease_micros(grant.unheard_ttl, rules), grant.of[0]);
        for index in grant.of {
            let record = self.record(*index);
            let lease = record.told + lease_micros(record.ttl.into(), rules);
            match (record.op, record.outcome) {
                (Op::Release, Outcome::Ok) => return (record.told, *index),
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

/// The longest time that a lease lasts.
fn lease_micros(ttl: i64, rules: &Rules) -> u64 {
    u64::try_from(ttl + rules.late_millis).unwrap_or(0) * 1_000
}

/// Finds out whether a lock was free for too long.
struct Idle<'r> {
    /// How long the lock may be free. For as long before and afterwards nothing may have stood
    /// still.
    bound: u64,
    waits: Vec<Wait>,
    standstill: &'r [Span],
    unheard: Vec<Span>,
}

impl Idle<'_> {
    /// When the lock became free between the end of one grant and the next, and who waited. `None`
    /// if that is excused.
    fn within(&self, over: u64, next: u64) -> Option<(u64, &Wait)> {
        let mut from = over;
        // A wait may begin in the middle, and an excuse may end there. What follows either is
        // looked at.
        while from.saturating_add(self.bound) < next {
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

    /// The end of the excuses for a lock that is free from this moment on.
    fn excused_until(&self, from: u64) -> Option<u64> {
        let to = from + self.bound;
        let still = overlap(self.standstill, from.saturating_sub(self.bound), to);
        let still = still.map(|span| span.to.saturating_add(self.bound));
        still.max(overlap(&self.unheard, from, to).map(|span| span.to))
    }
}
