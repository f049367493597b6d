//! L1 and L3: a walk along the grants of a lock, which computes when each operation can have taken effect.
//!
//! The replies limit when operations took effect:
//!
//! ```text
//!   asked ≤ t ≤ told                     an operation takes effect between request and reply
//!   t(one) ≤ t(next)                     grants in the order of their fences; within a grant, in the
//!                                        order of requests
//!   t(next grant) ≥ t(lease) + ttl       if the next holder does not tolerate this one, unless the
//!                                        lock was released or deleted
//!   t(success)    < t(lease) + ttl       the hold lasts no longer than its lease
//!   t(refusal)    ≥ t(lease) + ttl       and no shorter, unless it was released or deleted
//! ```
//!
//! The first three rules give the earliest moments, from left to right. Within a grant the fourth gives the latest
//! moments: no success is later than the last possible end of any lease before it, whichever lease counts. If the
//! latest moment of an operation is before its earliest, no moment is possible.

use super::closings::Closings;
use super::deletes::Deletes;
use super::holders::{Asker, Held, Holders};
use super::steps::{Lease, Step};
use super::unheard::Unheard;
use super::{Grant, Law, Lock, Rules, Violation};
use crate::record::{Op, Outcome, Record, millis};
use std::collections::HashMap;

/// With more leases than this, the first hardly matters.
const FEW: usize = 4;

/// The walk along one grant.
struct Walk<'l, 'h> {
    lock: &'l Lock<'h>,
    rules: &'l Rules,
    grant: &'l Grant<'h>,
    /// The moment by which a later fence was told, and the record that told it. This grant was made no later.
    limit: Option<(i64, u32)>,
    /// The next grant of the same owner.
    next: Option<&'l Grant<'h>>,
    steps: Vec<Step>,
    /// The earliest moment of the grant, concluded from later steps.
    begun: i64,
    /// How many holders the last granted request tolerates, and its record.
    tolerance: Option<(u32, u32)>,
    /// The most holders that it may have tolerated, and the moments from which it tolerates more.
    loosest: u32,
    loosened: Vec<(i64, u32)>,
    /// The steps that decide when the lease ends: the last step that set the lease, and later steps
    /// that may have extended it.
    leases: Vec<Lease>,
    released: Option<u32>,
    /// The first refusal, and the earliest moment of an unexplained refusal.
    refused: Option<u32>,
    refused_at: i64,
    /// What unanswered requests may have done: to this grant if they name its fence, and to any hold of its owner.
    shown: Unheard,
    unheard: Unheard,
    /// The ends of connections to which the hold was bound.
    closings: Closings,
    wrong: Option<Violation>,
}

impl<'h> Lock<'h> {
    pub(super) fn check_leases(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let mut deletes = self.deletes.clone();
        let mut holders = Holders::default();
        let limits = self.limits(rules);
        let next_of_owner = self.next_of_owner();
        for (index, grant) in self.grants.iter().enumerate() {
            let first = self.first(grant);
            let asker = Asker {
                owner: first.owner,
                told: grant.told,
                told_millis: first.told_millis(),
                tightest: grant.tightest,
                loosest: grant.loosest,
                of_several: grant.of_several,
            };
            let admitted = holders.admit(&asker, rules, &mut deletes);
            let until = grant.of.iter().map(|index| self.record(*index).told).max().unwrap_or(0);
            if rules.is_lossy(grant.asked, until) {
                holders.settle(&asker, &admitted);
                continue;
            }
            let mut walk = Walk::new(self, rules, grant);
            walk.limit = limits[index];
            walk.next = next_of_owner[index].map(|next| &self.grants[next]);
            walk.run(admitted.at, (&holders, &asker), &deletes);
            holders.settle(&asker, &admitted);
            let violation = walk.wrong.take();
            let held = walk.end();
            match violation {
                None => holders.add(held),
                Some(violation) => {
                    wrong.push(violation);
                    holders.begin_anew(held);
                }
            }
        }
    }

    /// For each grant, the earliest reply that told a later fence.
    fn limits(&self, rules: &Rules) -> Vec<Option<(i64, u32)>> {
        let mut first = None::<&Grant>;
        let mut limits = Vec::with_capacity(self.grants.len());
        for grant in self.grants.iter().rev() {
            let limit = first.filter(|later| {
                let (from, to) = (grant.asked.min(later.told), grant.told.max(later.told));
                later.told < grant.told && !rules.is_lossy(from, to)
            });
            limits.push(limit.map(|later| (millis(later.told), later.of[0])));
            first = first.into_iter().chain([grant]).min_by_key(|grant| grant.told);
        }
        limits.reverse();
        limits
    }

    /// For each grant, the next grant of the same owner.
    pub(super) fn next_of_owner(&self) -> Vec<Option<usize>> {
        let mut next: HashMap<u32, usize> = HashMap::new();
        let grants = self.grants.iter().enumerate().rev();
        let mut all: Vec<_> =
            grants.map(|(index, grant)| next.insert(self.first(grant).owner, index)).collect();
        all.reverse();
        all
    }
}

impl<'l, 'h> Walk<'l, 'h> {
    fn new(lock: &'l Lock<'h>, rules: &'l Rules, grant: &'l Grant<'h>) -> Self {
        Self {
            lock,
            rules,
            grant,
            limit: None,
            next: None,
            steps: Vec::new(),
            begun: i64::MIN,
            tolerance: None,
            loosest: grant.loosest,
            loosened: Vec::new(),
            leases: Vec::new(),
            released: None,
            refused: None,
            refused_at: i64::MAX,
            shown: Unheard::NOTHING,
            unheard: Unheard::NOTHING,
            closings: Closings::new(lock, grant, rules),
            wrong: None,
        }
    }

    fn run(&mut self, begin: i64, before: (&Holders, &Asker), deletes: &Deletes<'_>) {
        let owner = self.lock.first(self.grant).owner;
        for index in self.grant.of {
            let record = self.lock.record(*index);
            if record.owner != owner {
                // A request of another owner that names this fence was refused.
                continue;
            }
            self.unheard = self.lock.unheard.before(owner, *index).and(self.shown);
            match record.outcome {
                _ if record.op == Op::Closed => {}
                Outcome::Ok => self.success(*index, record, begin, before),
                Outcome::Refused => self.refusal(*index, record, deletes),
                // Unanswered acquires are already in the owner's `unheard`.
                Outcome::Unknown if record.is_acquire() => {}
                Outcome::Unknown => self.shown = self.shown.and(Unheard::of(record)),
                Outcome::Over if self.steps.is_empty() => {}
                Outcome::Over => {
                    self.shown = self.shown.and(Unheard::of(record));
                    self.refused = self.refused.or(Some(*index));
                }
                Outcome::Failed => {}
            }
            if self.wrong.is_some() {
                return;
            }
        }
        self.unheard = self.lock.unheard.ever(owner).and(self.shown);
        self.check_deletes(deletes);
    }

    fn success(&mut self, index: u32, record: &Record, begin: i64, before: (&Holders, &Asker)) {
        let revives = |refused: &mut u32| {
            let refused = self.lock.record(*refused);
            self.closings.may_show_again(refused, record.told, self.rules)
        };
        let _revived = self.refused.take_if(revives);
        if let Some(earlier) = self.released.or(self.refused) {
            let what =
                format!("{:?} succeeded with fence {} after its end", record.op, record.fence);
            let law = if record.is_acquire() { Law::L2 } else { Law::L3 };
            return self.fails(law, what, vec![earlier, index]);
        }
        if let Some(closed) = self.closings.too_late_for(index, record, self.unheard, self.rules) {
            let what = format!(
                "{:?} succeeded with fence {}, whose connection had ended",
                record.op, record.fence
            );
            return self.fails(Law::L3, what, vec![closed, index]);
        }
        if self.steps.is_empty() {
            self.begin(index, record, begin);
        } else {
            self.add(index, record.asked_millis(), record.ttl.into());
        }
        let last = self.steps.len() - 1;
        if self.steps[last].earliest > self.steps[last].latest {
            return self.too_late(last, before);
        }
        self.hurry_leases(last);
        let (at, late) = (self.steps[last].earliest, self.rules.late_millis);
        self.closings.renewed_by(index, record, at, late);
        match record.op {
            Op::Extend => {
                self.leases.clear();
                self.prolong();
            }
            Op::Try | Op::Wait => {
                self.prolong();
                self.tolerates(index, record);
            }
            Op::Release => self.released = Some(index),
            Op::Check | Op::Delete | Op::Seen | Op::Closed => {}
        }
    }

    /// L2: an owner that tolerates fewer holders than before gets another fence.
    fn tolerates(&mut self, index: u32, record: &Record) {
        let tolerance = record.tolerance();
        if let Some((_, earlier)) = self.tolerance.filter(|(before, _)| tolerance < *before) {
            let what = format!(
                "an owner that tolerates {} where it tolerated {} was told fence {} again",
                record.share,
                self.lock.record(earlier).share,
                record.fence
            );
            return self.fails(Law::L2, what, vec![earlier, index]);
        }
        self.tolerance = Some((tolerance, index));
        if tolerance > self.loosest {
            self.loosened.push((self.steps[self.steps.len() - 1].earliest, tolerance));
            self.loosest = tolerance;
        }
    }

    /// Starts with the grant itself, perhaps made for an unanswered request.
    fn begin(&mut self, index: u32, record: &Record, begin: i64) {
        if self.grant.unheard_ttl > 0 {
            let asked = millis(self.grant.asked);
            self.add(index, asked.max(begin), self.grant.unheard_ttl);
            self.prolong();
        }
        let ttl = if record.is_lease() { record.ttl.into() } else { 0 };
        self.add(index, record.asked_millis().max(begin), ttl);
    }

    /// Adds a step: no earlier than the steps before it, and before the end of the lease.
    fn add(&mut self, record: u32, asked: i64, ttl: i64) {
        let this = self.steps.len();
        let told = self.lock.record(record).told_millis();
        let mut step =
            Step { record, earliest: asked, latest: told, ttl, since: this, before: None };
        if let Some(last) = self.steps.last().filter(|last| last.earliest > asked) {
            (step.earliest, step.since) = (last.earliest, last.since);
        }
        if let Some(Lease { longest, .. }) = self.leases.last() {
            let slack = self.rules.late_millis + self.unheard.lasts - 1;
            let until = self.steps[*longest].reaches() + slack;
            if until < told {
                (step.latest, step.before) = (until, Some(*longest));
            }
        } else if let Some((limit, _)) = self.limit.filter(|_| this == 0) {
            step.latest = told.min(limit.max(step.earliest));
        }
        self.begun = self.begun.max(self.begun_by(step.earliest));
        self.steps.push(step);
    }

    /// The earliest moment of the first lease, if a step succeeded at `at` and no other lease lasts until then.
    fn begun_by(&self, at: i64) -> i64 {
        let slack = self.rules.late_millis - 1;
        let reaches = |lease: &Lease| self.steps[lease.step].reaches() + slack;
        match &self.leases[..] {
            [first, others @ ..] if first.step == 0 && others.len() < FEW => {
                let alone = others.iter().all(|other| reaches(other) < at);
                let heard = self.unheard.lasts == 0 && self.grant.unheard_ttl == 0;
                if alone && heard { at - self.steps[0].ttl - slack } else { i64::MIN }
            }
            _ => i64::MIN,
        }
    }

    /// The last step sets or extends the lease.
    fn prolong(&mut self) {
        let step = self.steps.len() - 1;
        let before = self.leases.last().map(|lease| lease.longest);
        self.leases.push(Lease { step, longest: self.longer(before, step) });
    }

    fn longer(&self, before: Option<usize>, step: usize) -> usize {
        let reaches = |step: usize| self.steps[step].reaches();
        before.filter(|before| reaches(*before) > reaches(step)).unwrap_or(step)
    }

    /// No step took effect later than the next one. The first leases usually satisfy this already.
    fn hurry_leases(&mut self, by: usize) {
        let latest = self.steps[by].latest;
        let is_in_time = |lease: &Lease| self.steps[lease.step].latest <= latest;
        let begin = self.leases.iter().rposition(is_in_time).map_or(0, |last| last + 1);
        for index in begin..self.leases.len() {
            let step = self.leases[index].step;
            (self.steps[step].latest, self.steps[step].before) = (latest, Some(by));
            let before = index.checked_sub(1).map(|before| self.leases[before].longest);
            self.leases[index].longest = self.longer(before, step);
        }
    }

    /// The steps that now decide the end of the lease, except a step that may never have taken effect.
    fn sure_leases(&self) -> impl Iterator<Item = usize> {
        let perhaps = (self.grant.unheard_ttl > 0).then_some(0);
        self.leases.iter().map(|lease| lease.step).filter(move |step| Some(*step) != perhaps)
    }

    fn refusal(&mut self, index: u32, record: &Record, deletes: &Deletes) {
        let loosest = self.loosest.max(self.unheard.loosest);
        // A holder that asks to tolerate fewer may be refused, and keeps its hold.
        if self.steps.is_empty() || record.is_acquire() && record.tolerance() < loosest {
            return;
        }
        self.refused = self.refused.or(Some(index));
        let told = record.told_millis();
        // Whatever ended the lease came after the last success.
        let last = self.steps[self.steps.len() - 1].earliest;
        let explained = self.released.is_some()
            || self.unheard.released < i64::MAX
            || self.unheard.ends.min(self.closings.ends()) <= told
            || self.unheard.tightest < loosest
            || self.unheard.of_several
            || self.may_have_another(index, told)
            || deletes.any_within(last, told)
            || self.rules.is_forgotten(self.grant.asked, record.told);
        // A refusal later than an unexplained one gives no tighter limit.
        if explained || told >= self.refused_at {
            return;
        }
        self.refused_at = told;
        let mut lasts = self.last_lasts().filter(|(_, ends)| *ends > told);
        for lease in self.sure_leases().collect::<Vec<_>>() {
            let step = &mut self.steps[lease];
            step.latest = step.latest.min(told - step.ttl);
            if step.earliest > step.latest {
                lasts = lasts.or(Some((lease, step.ends())));
            }
        }
        if let Some((step, ends)) = lasts {
            let what = format!(
                "{:?} was refused to the holder of {}, whose lease lasts {} ms longer",
                record.op,
                record.fence,
                ends - told
            );
            let mut proof = self.path(step);
            proof.push(index);
            self.fails(Law::L3, what, proof);
        }
    }

    /// Whether its owner may by then have got the next hold in place of this one.
    fn may_have_another(&self, index: u32, told: i64) -> bool {
        let Some(next) = self.next else { return false };
        let is_earlier = next.unheard_ttl > 0 || next.of[0] < index;
        let is_tighter = next.tightest < self.loosest.max(self.unheard.loosest);
        is_earlier && (is_tighter || next.of_several) && millis(next.asked) <= told
    }

    /// The last step, and the moment until which the lease must have lasted, because that step succeeded.
    fn last_lasts(&self) -> Option<(usize, i64)> {
        let last = self.steps.len().checked_sub(1)?;
        Some((last, self.steps[last].earliest + 1 - self.rules.late_millis))
    }

    /// L3: nothing succeeds with a grant whose key was deleted.
    fn check_deletes(&mut self, deletes: &Deletes) {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return };
        let (told, asked) = (first.latest, self.lock.record(last.record).asked_millis());
        // Its request and the earlier steps limit the last step: it cannot have taken effect before.
        let asked = asked.max(last.earliest);
        if let Some(delete) = deletes.surely_within(told, asked) {
            let op = self.lock.record(last.record).op;
            let what = format!("{op:?} succeeded with fence {}, deleted before", self.grant.fence);
            let proof = vec![first.record, delete, last.record];
            self.fails(Law::L3, what, proof);
        }
    }

    /// L1, or L3 within a grant: an operation took effect later than it can have.
    fn too_late(&mut self, late: usize, (holders, asker): (&Holders, &Asker)) {
        let step = self.steps[late];
        let by = step.earliest - step.latest;
        let mut proof = self.path(late);
        // Whether the previous grant delayed this step. Otherwise the step could have taken effect
        // when its request was sent.
        let since = self.steps[step.since];
        let is_held_up = since.earliest > self.lock.record(since.record).asked_millis();
        let (fences, shown) = holders.blame(asker, self.rules, step.latest);
        if is_held_up && !fences.is_empty() {
            proof.splice(0..0, shown);
            let of: Vec<_> = fences.iter().map(u64::to_string).collect();
            let what = format!(
                "fence {} was granted at least {by} ms before the lease of {} can have ended",
                self.grant.fence,
                of.join(" or ")
            );
            self.fails(Law::L1, what, proof);
        } else {
            let op = self.lock.record(step.record).op;
            let what = format!(
                "{op:?} succeeded with fence {} at least {by} ms after its lease had ended",
                self.grant.fence
            );
            self.fails(Law::L3, what, proof);
        }
    }

    /// The records that show when this step can have taken effect, the oldest first.
    fn path(&self, step: usize) -> Vec<u32> {
        let mut path = vec![self.steps[self.steps[step].since].record, self.steps[step].record];
        let mut at = step;
        while let Some(before) = self.steps[at].before {
            if path.len() > self.steps.len() + 1 {
                break;
            }
            path.push(self.steps[before].record);
            at = before;
        }
        path.extend(self.limit.filter(|_| at == 0).map(|(_, record)| record));
        path.sort_unstable();
        path.dedup();
        path
    }

    fn fails(&mut self, law: Law, what: String, proof: Vec<u32>) {
        self.wrong = Some(self.lock.violation(law, what, proof));
    }

    fn end(mut self) -> Held {
        let first = self.steps.first().map_or(i64::MIN, |step| step.earliest);
        let last = self.steps.last().map_or(i64::MIN, |step| step.earliest);
        let lease = self.sure_leases().max_by_key(|lease| self.steps[*lease].ends());
        let ends = lease.map_or(last, |lease| self.steps[lease].ends());
        let ends = self.last_lasts().map_or(ends, |(_, lasts)| ends.max(lasts));
        let released = self.released.map_or(i64::MAX, |_| last);
        let Unheard { asked, tightest, loosest, of_several, .. } = self.unheard;
        let mut otherwise = released.min(self.unheard.released).min(self.unheard.ends);
        otherwise = otherwise.min(self.closings.ends());
        if of_several || tightest < self.loosest.max(loosest) {
            // The owner may have got another hold in place of this one.
            otherwise = otherwise.min(millis(asked));
        }
        if loosest > self.grant.loosest {
            self.loosened.push((millis(asked), loosest));
        }
        let mut proof = self.grant.of.first().copied().into_iter().collect::<Vec<_>>();
        proof.extend(lease.map(|lease| self.steps[lease].record));
        proof.extend(self.released);
        proof.dedup();
        Held {
            owner: self.lock.first(self.grant).owner,
            fence: self.grant.fence,
            asked: self.grant.asked,
            begun: first.max(self.begun),
            last,
            free: ends.min(otherwise).max(last),
            tolerance: self.grant.loosest,
            loosened: self.loosened,
            proof,
        }
    }
}
