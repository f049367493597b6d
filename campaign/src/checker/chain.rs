//! L1 and L3: a walk along the grants of a lock, with the moments at which each operation is
//! possible.
//!
//! The replies limit when operations took effect:
//!
//! ```text
//!   asked ≤ t ≤ told                     an operation takes effect between question and answer
//!   t(one) ≤ t(next)                     in the order of fences, and within a grant of requests
//!   t(next grant) ≥ t(lease) + ttl       unless the lock was released or deleted
//!   t(success)    < t(lease) + ttl       the holder has it no longer than that
//!   t(refusal)    ≥ t(lease) + ttl       and that long, unless it was released or deleted
//! ```
//!
//! The first three rules give the earliest moments, from left to right. Within a grant the fourth
//! gives the latest ones: no success is later than the last end that any lease before it can have,
//! whichever lease that is. If the latest moment of an operation is before its earliest, there is
//! none.

use super::deletes::Deletes;
use super::unheard::Unheard;
use super::{Grant, Law, Lock, Rules, Violation};
use crate::record::{Op, Outcome, Record};
use std::collections::HashMap;

/// An operation that succeeded.
#[derive(Clone, Copy)]
struct Step {
    record: u32,
    earliest: i64,
    latest: i64,
    ttl: i64,
    /// The step of the same grant that was sent no earlier than the earliest moment of this one,
    /// perhaps this one itself.
    since: usize,
    /// The step without which this one might have been later: the lease that it was within, or a
    /// step after it.
    before: Option<usize>,
}

impl Step {
    /// The end of its lease, if that began as early as possible.
    fn ends(&self) -> i64 {
        self.earliest + self.ttl
    }

    /// The end of its lease, if that began as late as possible.
    fn reaches(&self) -> i64 {
        self.latest + self.ttl
    }
}

/// A step that set or extended the lease.
#[derive(Clone, Copy)]
struct Lease {
    step: usize,
    /// Of this step and the leases before it, the one whose lease may last longest.
    longest: usize,
}

/// The state of the walk at the end of a grant.
struct End {
    fence: u64,
    /// The moment of its first record, in microseconds.
    asked: u64,
    /// The last moment that was reached.
    last: i64,
    /// When the next grant may be made.
    free: i64,
    /// The records that show that.
    proof: Vec<u32>,
}

/// The walk along one grant.
struct Walk<'l, 'h> {
    lock: &'l Lock<'h>,
    rules: &'l Rules,
    grant: &'l Grant<'h>,
    steps: Vec<Step>,
    /// The steps that decide when the lease ends: the last one that set it, and those that may have
    /// extended it since.
    leases: Vec<Lease>,
    released: Option<u32>,
    /// The first refusal, and the earliest moment of a refusal that nothing explains.
    refused: Option<u32>,
    refused_at: i64,
    /// What unanswered requests may have done to this grant, whose fence they name, and to whatever
    /// its owner held.
    shown: Unheard,
    unheard: Unheard,
    wrong: Option<Violation>,
}

impl<'h> Lock<'h> {
    pub(super) fn check_leases(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let mut deletes = Deletes::new(&self.deletes);
        let mut before: Option<End> = None;
        for grant in &self.grants {
            let (last, free) = match &before {
                Some(end) if !rules.is_lossy(end.asked, grant.told) => {
                    let told = self.first(grant).told_millis();
                    (end.last, deletes.free(end.last, end.free, told))
                }
                _ => (i64::MIN, i64::MIN),
            };
            let begin = last.max(free);
            let mut walk = Walk::new(self, rules, grant);
            let until = grant.of.iter().map(|index| self.record(*index).told).max().unwrap_or(0);
            let lossy = rules.is_lossy(grant.asked, until);
            if !lossy {
                walk.run(begin, before.as_ref(), &deletes);
            }
            wrong.extend(walk.wrong.take());
            before = Some(if lossy {
                // The loss also covers the next grant, which then begins anew.
                End {
                    fence: grant.fence,
                    asked: grant.asked,
                    last: i64::MIN,
                    free: i64::MIN,
                    proof: Vec::new(),
                }
            } else {
                walk.end()
            });
        }
    }
}

impl Lock<'_> {
    /// L3: once an owner was told a larger fence, the smaller one is over.
    pub(super) fn check_stale(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        // The first record of each owner among the grants with larger fences.
        let mut larger: HashMap<u32, u32> = HashMap::new();
        for grant in self.grants.iter().rev() {
            let mut of =
                grant.of.iter().filter(|index| self.record(**index).outcome == Outcome::Ok);
            let Some(first) = of.next() else { continue };
            let owner = self.record(*first).owner;
            let last = of.next_back().unwrap_or(first);
            if let Some(next) = larger.insert(owner, *first).filter(|next| next < last) {
                let stale = self.record(*last);
                if !rules.is_lossy(grant.asked, stale.told) {
                    let what = format!(
                        "{:?} succeeded with fence {} after a larger one",
                        stale.op, grant.fence
                    );
                    wrong.push(self.violation(Law::L3, what, vec![*first, next, *last]));
                }
            }
        }
    }
}

impl<'l, 'h> Walk<'l, 'h> {
    fn new(lock: &'l Lock<'h>, rules: &'l Rules, grant: &'l Grant<'h>) -> Self {
        Self {
            lock,
            rules,
            grant,
            steps: Vec::new(),
            leases: Vec::new(),
            released: None,
            refused: None,
            refused_at: i64::MAX,
            shown: Unheard::NOTHING,
            unheard: Unheard::NOTHING,
            wrong: None,
        }
    }

    fn run(&mut self, begin: i64, before: Option<&End>, deletes: &Deletes) {
        let owner = self.lock.first(self.grant).owner;
        for index in self.grant.of {
            let record = self.lock.record(*index);
            if record.owner != owner {
                // It names the fence of another owner's grant, and is refused.
                continue;
            }
            self.unheard = self.lock.unheard.before(owner, *index).and(self.shown);
            match record.outcome {
                Outcome::Ok => self.success(*index, record, begin, before),
                Outcome::Refused => self.refusal(*index, record, deletes),
                // Requests that acquire are among those that may concern any grant.
                Outcome::Unknown if record.is_acquire() => {}
                Outcome::Unknown => self.shown = self.shown.and(Unheard::of(record)),
            }
            if self.wrong.is_some() {
                return;
            }
        }
        self.unheard = self.lock.unheard.ever(owner).and(self.shown);
        self.check_deletes(deletes);
    }

    fn success(&mut self, index: u32, record: &Record, begin: i64, before: Option<&End>) {
        if let Some(earlier) = self.released.or(self.refused) {
            let what =
                format!("{:?} succeeded with fence {} after its end", record.op, record.fence);
            let law = if record.is_acquire() { Law::L2 } else { Law::L3 };
            return self.fails(law, what, vec![earlier, index]);
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
        match record.op {
            Op::Extend => {
                self.leases.clear();
                self.prolong();
            }
            Op::Try | Op::Wait => self.prolong(),
            Op::Release => self.released = Some(index),
            Op::Check | Op::Delete | Op::Seen => {}
        }
    }

    /// The grant itself, perhaps after an unanswered request.
    fn begin(&mut self, index: u32, record: &Record, begin: i64) {
        if self.grant.unheard_ttl > 0 {
            let asked = crate::record::millis(self.grant.asked);
            self.add(index, asked.max(begin), self.grant.unheard_ttl);
            self.prolong();
        }
        let ttl = if record.is_lease() { record.ttl.into() } else { 0 };
        self.add(index, record.asked_millis().max(begin), ttl);
    }

    /// No earlier than the steps before it, and before the end of the lease.
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
        }
        self.steps.push(step);
    }

    /// The last step has a lease.
    fn prolong(&mut self) {
        let step = self.steps.len() - 1;
        let before = self.leases.last().map(|lease| lease.longest);
        self.leases.push(Lease { step, longest: self.longer(before, step) });
    }

    fn longer(&self, before: Option<usize>, step: usize) -> usize {
        let reaches = |step: usize| self.steps[step].reaches();
        before.filter(|before| reaches(*before) > reaches(step)).unwrap_or(step)
    }

    /// No step began later than the one after it. For most of them that holds already: they are the
    /// first ones.
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

    /// The steps that decide it now, without one that may never have taken effect.
    fn sure_leases(&self) -> impl Iterator<Item = usize> {
        let perhaps = (self.grant.unheard_ttl > 0).then_some(0);
        self.leases.iter().map(|lease| lease.step).filter(move |step| Some(*step) != perhaps)
    }

    fn refusal(&mut self, index: u32, record: &Record, deletes: &Deletes) {
        if self.steps.is_empty() {
            return;
        }
        self.refused = self.refused.or(Some(index));
        let told = record.told_millis();
        // No success came after what ended the lease.
        let last = self.steps[self.steps.len() - 1].earliest;
        let explained = self.released.is_some()
            || self.unheard.released < i64::MAX
            || self.unheard.ends <= told
            || deletes.any_within(last, told)
            || self.rules.is_forgotten(self.grant.asked, record.told);
        // A later one says nothing new.
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

    /// The last step, and how long the lease that it succeeded within must have lasted.
    fn last_lasts(&self) -> Option<(usize, i64)> {
        let last = self.steps.len().checked_sub(1)?;
        Some((last, self.steps[last].earliest + 1 - self.rules.late_millis))
    }

    /// L3: nothing succeeds with a grant whose key was deleted.
    fn check_deletes(&mut self, deletes: &Deletes) {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return };
        let (told, asked) = (first.latest, self.lock.record(last.record).asked_millis());
        // Both requests and earlier steps limit it: it cannot have taken effect before.
        let asked = asked.max(last.earliest);
        if let Some(delete) = deletes.surely_within(told, asked) {
            let op = self.lock.record(last.record).op;
            let what = format!("{op:?} succeeded with fence {}, deleted before", self.grant.fence);
            let proof = vec![first.record, delete, last.record];
            self.fails(Law::L3, what, proof);
        }
    }

    /// L1, or L3 within a grant: an operation took effect before it can have.
    fn too_late(&mut self, late: usize, before: Option<&End>) {
        let step = self.steps[late];
        let by = step.earliest - step.latest;
        let mut proof = self.path(late);
        // The grant before pushed it there. Otherwise it might have taken effect when it was sent.
        let since = self.steps[step.since];
        let is_held_up = since.earliest > self.lock.record(since.record).asked_millis();
        if let Some(end) = before.filter(|_| is_held_up) {
            proof.splice(0..0, end.proof.iter().copied());
            let what = format!(
                "fence {} was granted at least {by} ms before the lease of {} can have ended",
                self.grant.fence, end.fence
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

    /// The records that show when this step can have been, oldest first.
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
        path.sort_unstable();
        path.dedup();
        path
    }

    fn fails(&mut self, law: Law, what: String, proof: Vec<u32>) {
        self.wrong = Some(self.lock.violation(law, what, proof));
    }

    fn end(self) -> End {
        let last = self.steps.last().map_or(i64::MIN, |step| step.earliest);
        let lease = self.sure_leases().max_by_key(|lease| self.steps[*lease].ends());
        let ends = lease.map_or(last, |lease| self.steps[lease].ends());
        let ends = self.last_lasts().map_or(ends, |(_, lasts)| ends.max(lasts));
        let released = self.released.map_or(i64::MAX, |_| last);
        let otherwise = released.min(self.unheard.released).min(self.unheard.ends);
        let free = ends.min(otherwise).max(last);
        let mut proof = self.grant.of.first().copied().into_iter().collect::<Vec<_>>();
        proof.extend(lease.map(|lease| self.steps[lease].record));
        proof.extend(self.released);
        proof.dedup();
        End { fence: self.grant.fence, asked: self.grant.asked, last, free, proof }
    }
}
