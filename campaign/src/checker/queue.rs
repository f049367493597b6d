//! L4: waiters are granted the lock in turn.

use super::{Grant, Law, Lock, Rules, Violation};
use crate::record::{Op, Record};
use std::collections::{HashMap, HashSet};

/// An owner was seen in the queue, by a look that was sent at `asked`, or by a later look that was answered earlier.
struct Look {
    asked: u64,
    told: u64,
    record: u32,
}

impl Lock<'_> {
    /// L4: an owner that was seen waiting is granted the lock before any owner that asks afterwards.
    /// Exception: a holder that asks to tolerate fewer need not wait for others.
    pub(super) fn check_order(
        &self,
        torn: &HashSet<u32>,
        rules: &Rules,
        wrong: &mut Vec<Violation>,
    ) {
        let seen = self.looks();
        if seen.is_empty() {
            return;
        }
        let mut by_asked = self.not_in_place_of_another(rules);
        by_asked.sort_unstable_by_key(|grant| grant.asked);
        // The grant with the lowest fence, of this one and all that were requested later.
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
            // The turn of a ticket may have come and gone, and then its owner may have asked for another place.
            let (asked, told) = (first.asked_millis(), first.told_millis());
            let is_torn = torn.contains(&first.set);
            if first.is_ticket && (is_torn || self.deletes.any_within(asked, told)) {
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

    /// The grants that cannot have replaced another hold of the same owner.
    fn not_in_place_of_another(&self, rules: &Rules) -> Vec<&Grant<'_>> {
        // The most holders that the last hold of each owner tolerates, and its latest end.
        let mut before: HashMap<u32, (u32, u64)> = HashMap::new();
        let grants = self.grants.iter().filter(|grant| {
            let (end, _) = self.latest_end(grant, rules);
            let hold = (self.loosest_ever(grant), end);
            let last = before.insert(self.first(grant).owner, hold);
            let differs = |loosest| loosest > grant.tightest || grant.of_several;
            let is_unheard_of = grant.unheard_ttl > 0 && differs(grant.loosest);
            let has_another =
                last.is_some_and(|(loosest, end)| differs(loosest) && end >= grant.asked);
            !is_unheard_of && !has_another
        });
        grants.collect()
    }

    /// The most holders that a hold may have tolerated at any time.
    fn loosest_ever(&self, grant: &Grant<'_>) -> u32 {
        let acquires = grant.of.iter().map(|index| self.record(*index));
        let acquires = acquires.filter(|record| record.is_acquire());
        acquires.map(Record::tolerance).fold(grant.loosest, u32::max)
    }

    /// The looks that saw each owner, in the order in which they were sent.
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
}
