//! L4 and L5: waiters are granted the lock in turn, and at once.

use super::spans::{joined, overlap};
use super::{Grant, Law, Lock, Rules, Span, Violation};
use crate::record::{Op, Outcome};
use std::collections::HashMap;

/// Somebody waits for certain between these moments.
struct Wait {
    from: u64,
    to: u64,
    record: u32,
}

/// An owner that was seen in the queue, by a look that was sent at this moment, or by a later look
/// that was answered earlier.
struct Look {
    asked: u64,
    told: u64,
    record: u32,
}

impl Lock<'_> {
    pub(super) fn check_queue(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        self.check_order(rules, wrong);
        if rules.idle_micros > 0 {
            self.check_idle(rules, wrong);
        }
    }

    /// L4: an owner that was seen waiting is granted the lock before any owner that asked
    /// afterwards.
    fn check_order(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let seen = self.looks();
        if seen.is_empty() {
            return;
        }
        let mut by_asked: Vec<&Grant> = self.grants.iter().collect();
        by_asked.sort_unstable_by_key(|grant| grant.asked);
        // The grant with the lowest fence, of this one and all that were asked for later.
        let mut lowest = by_asked.clone();
        for index in (0..lowest.len().saturating_sub(1)).rev() {
            if lowest[index + 1].fence < lowest[index].fence {
                lowest[index] = lowest[index + 1];
            }
        }
        for grant in &self.grants {
            let first = self.first(grant);
            // An owner that may have asked twice may have queued twice.
            if first.op != Op::Wait || grant.unheard_ttl > 0 {
                continue;
            }
            let looks = seen.get(&first.owner).map_or(&[][..], |looks| looks);
            let look = looks.get(looks.partition_point(|look| look.asked < first.asked));
            let Some(look) = look.filter(|look| look.told <= first.told) else { continue };
            let later = by_asked.partition_point(|other| other.asked <= look.told);
            let overtaker = lowest.get(later).filter(|other| other.fence < grant.fence);
            let overtaker = overtaker
                .filter(|other| !rules.stands_still(first.asked, first.told.max(other.told)));
            if let Some(overtaker) = overtaker {
                let what = format!(
                    "fence {} went to one who asked after {} was seen waiting",
                    overtaker.fence, grant.fence
                );
                let proof = vec![grant.of[0], look.record, overtaker.of[0]];
                wrong.push(self.violation(Law::L4, what, proof));
            }
        }
    }

    /// The looks at each owner, in the order in which they were sent.
    fn looks(&self) -> HashMap<u32, Vec<Look>> {
        let mut seen: HashMap<u32, Vec<Look>> = HashMap::new();
        for index in self.others {
            let record = self.record(*index);
            if record.op == Op::Seen {
                let look = Look { asked: record.asked, told: record.told, record: *index };
                seen.entry(record.owner).or_default().push(look);
            }
        }
        for looks in seen.values_mut() {
            looks.sort_unstable_by_key(|look| look.asked);
            for index in (1..looks.len()).rev() {
                let (told, record) = (looks[index].told, looks[index].record);
                let before = &mut looks[index - 1];
                if told < before.told {
                    (before.told, before.record) = (told, record);
                }
            }
        }
        seen
    }

    /// L5: a lock is not free for long while somebody waits for it.
    fn check_idle(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let idle = Idle {
            bound: rules.idle_micros,
            waits: self.sure_waits(rules.idle_micros),
            standstill: &rules.standstill,
            unheard: self.may_be_held(rules),
        };
        if idle.waits.is_empty() {
            return;
        }
        let mut over = 0_u64;
        let mut last = None;
        for grant in self.grants.iter().map(Some).chain([None]) {
            let next = grant.map_or(u64::MAX, |grant| {
                let first = self.first(grant);
                // An owner that did not wait may have had the lock as soon as it asked, and have
                // heard of it late.
                if first.op == Op::Wait { grant.told } else { first.asked }
            });
            let found = last.and_then(|last| Some((last, idle.within(over, next)?)));
            if let Some((last, (from, wait))) = found {
                let lasted = wait.to.min(next) - from;
                let what = format!("free for {} ms, and somebody waits", lasted / 1_000);
                wrong.push(self.violation(Law::L5, what, vec![last, wait.record]));
                return;
            }
            if let Some(grant) = grant {
                let (end, by) = self.latest_end(grant, rules);
                if end >= over {
                    (over, last) = (end, Some(by));
                }
            }
        }
    }

    /// The waits that last long enough, sorted by when they begin, each with the latest end of all
    /// waits that began no later. A wait begins a while after its request was sent.
    fn sure_waits(&self, bound: u64) -> Vec<Wait> {
        let waits = self.all.iter().filter_map(|index| {
            let record = self.record(*index);
            let (from, to) = (record.asked + bound, record.told);
            let is_sure = record.op == Op::Wait && record.outcome != Outcome::Unknown;
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
                Outcome::Refused => false,
                Outcome::Unknown => true,
            };
            let to = record.told + lease_micros(record.ttl.into(), rules) + rules.idle_micros;
            (may && record.is_lease()).then_some(Span { from: record.asked, to })
        });
        joined(spans.collect())
    }

    /// The latest end, in microseconds, and the record that shows it.
    fn latest_end(&self, grant: &Grant, rules: &Rules) -> (u64, u32) {
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
