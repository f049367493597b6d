//! L4 and L5: who waits is served in turn, and at once.

use super::{Grant, Law, Lock, Rules, Violation};
use crate::record::{Op, Outcome, Record};
use std::collections::HashMap;

/// Somebody surely waits from one moment to the other.
struct Wait {
    from: u64,
    to: u64,
    record: u32,
}

impl Lock<'_> {
    pub(super) fn check_queue(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        self.check_order(rules, wrong);
        if rules.idle_micros > 0 {
            self.check_idle(rules, wrong);
        }
    }

    /// L4: who was seen waiting before another asked is granted the lock before it.
    fn check_order(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let mut seen: HashMap<u32, Vec<&Record>> = HashMap::new();
        for record in self.others.iter().map(|index| self.record(*index)) {
            if record.op == Op::Seen {
                seen.entry(record.owner).or_default().push(record);
            }
        }
        if seen.is_empty() {
            return;
        }
        let mut by_asked: Vec<&Grant> = self.grants.iter().collect();
        by_asked.sort_unstable_by_key(|grant| grant.asked);
        // With the lowest fence, of this one and all that asked later.
        let mut lowest = by_asked.clone();
        for index in (0..lowest.len().saturating_sub(1)).rev() {
            if lowest[index + 1].fence < lowest[index].fence {
                lowest[index] = lowest[index + 1];
            }
        }
        for grant in &self.grants {
            let first = self.first(grant);
            // One who may have asked twice has perhaps queued twice.
            if first.op != Op::Wait || grant.unheard_ttl > 0 {
                continue;
            }
            let looks = seen.get(&first.owner).into_iter().flatten();
            let looks = looks.filter(|look| look.asked >= first.asked && look.told <= first.told);
            let Some(at) = looks.map(|look| look.told).min() else { continue };
            let later = by_asked.partition_point(|other| other.asked <= at);
            let overtaker = lowest.get(later).filter(|other| other.fence < grant.fence);
            let overtaker = overtaker
                .filter(|other| !rules.stands_still(first.asked, first.told.max(other.told)));
            if let Some(overtaker) = overtaker {
                let what = format!(
                    "fence {} went to one who asked after {} was seen waiting",
                    overtaker.fence, grant.fence
                );
                let look = self.others.iter().copied().find(|index| {
                    let look = self.record(*index);
                    look.op == Op::Seen && look.owner == first.owner && look.told == at
                });
                let proof = grant
                    .of
                    .first()
                    .copied()
                    .into_iter()
                    .chain(look)
                    .chain(overtaker.of.first().copied());
                wrong.push(self.violation(Law::L4, what, proof.collect()));
            }
        }
    }

    /// L5: a lock is not free for long while somebody waits. A request that was sent a while ago waits.
    fn check_idle(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let bound = rules.idle_micros;
        let waits = self.others.iter().chain(self.grants.iter().flat_map(|grant| grant.of));
        let mut waits: Vec<_> = waits
            .filter(|index| {
                let record = self.record(**index);
                record.op == Op::Wait && record.outcome != Outcome::Unknown
            })
            .map(|index| {
                let record = self.record(*index);
                Wait { from: record.asked + bound, to: record.told, record: *index }
            })
            .filter(|wait| wait.to > wait.from + bound)
            .collect();
        if waits.is_empty() {
            return;
        }
        waits.sort_unstable_by_key(|wait| wait.from);
        // Of those that began by then, which lasts longest.
        let mut longest = vec![0; waits.len()];
        for index in 1..waits.len() {
            let before = longest[index - 1];
            longest[index] = if waits[before].to >= waits[index].to { before } else { index };
        }
        let mut unheard: Vec<_> =
            self.unheard.values().flatten().map(|index| self.record(*index)).collect();
        unheard.sort_unstable_by_key(|record| record.asked);
        let mut over = 0_u64;
        let mut last = None;
        for grant in self.grants.iter().map(Some).chain([None]) {
            let next = grant.map_or(u64::MAX, |grant| grant.told);
            // A wait may begin in the middle of an idle time: each that does is looked at.
            let mut from = over;
            while last.is_some() && from.saturating_add(bound) < next {
                let begun = waits.partition_point(|wait| wait.from <= from);
                let waiting = begun.checked_sub(1).map(|begun| &waits[longest[begun]]);
                let waiting = waiting.filter(|wait| wait.to > from.saturating_add(bound));
                match waiting {
                    Some(wait) => {
                        let until = wait.to.min(next);
                        let excused = rules.stands_still(from.saturating_sub(bound), until)
                            || unheard.iter().any(|of| {
                                of.asked <= until
                                    && of.told + u64::from(of.ttl) * 1_000 + bound >= from
                            });
                        if !excused {
                            let what = format!(
                                "free for {} ms, and somebody waits",
                                (until - from) / 1_000
                            );
                            let proof = vec![last.unwrap_or(wait.record), wait.record];
                            wrong.push(self.violation(Law::L5, what, proof));
                            return;
                        }
                        from = until.max(from + 1);
                    }
                    None => match waits.get(begun) {
                        Some(wait) => from = wait.from,
                        None => break,
                    },
                }
            }
            if let Some(grant) = grant {
                let (end, by) = self.latest_end(grant);
                if end >= over {
                    (over, last) = (end, Some(by));
                }
            }
        }
    }

    /// When it was over at the latest, in microseconds, and by which record.
    fn latest_end(&self, grant: &Grant) -> (u64, u32) {
        let mut end =
            (grant.told + u64::try_from(grant.unheard_ttl).unwrap_or(0) * 1_000, grant.of[0]);
        for index in grant.of {
            let record = self.record(*index);
            let lease = record.told + u64::from(record.ttl) * 1_000;
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
