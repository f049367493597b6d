//! L1 and L3: the walk along the grants of a lock, each operation at the earliest moment that is possible.
//!
//! What was told puts bounds on when things took effect:
//!
//! ```text
//!   asked ≤ t ≤ told                     an operation takes effect between question and answer
//!   t(one) ≤ t(next)                     in the order of fences, and within a grant in that of its owner's questions
//!   t(next grant) ≥ t(lease) + ttl       unless the lock was released or deleted
//!   t(success)    < t(lease) + ttl       the holder has it no longer than that
//!   t(refusal)    ≥ t(lease) + ttl       and that long, unless it was released or deleted
//! ```
//!
//! The earliest moments that satisfy all of these are found from left to right. Only the fourth pushes to the left: a
//! late success means that the lease began late, and then it is never further back than the grant itself.

use super::{Delete, Grant, Law, Lock, Rules, Violation};
use crate::record::{Op, Outcome, Record};
use std::collections::HashMap;

/// An operation that succeeded.
#[derive(Clone, Copy)]
struct Step {
    record: u32,
    earliest: i64,
    latest: i64,
    ttl: i64,
    /// The step, of the same grant, that pushed it.
    pushed_by: Option<usize>,
}

/// How the walk stands at the end of a grant.
struct End {
    fence: u64,
    /// When its records begin, in microseconds.
    asked: u64,
    /// The last moment that was reached.
    last: i64,
    /// When the next may be granted.
    free: i64,
    /// What shows that.
    proof: Vec<u32>,
}

/// The walk along one grant.
struct Walk<'l, 'h> {
    lock: &'l Lock<'h>,
    rules: &'l Rules,
    grant: &'l Grant<'h>,
    steps: Vec<Step>,
    /// The steps that decide when the lease ends: the last that set it, and those that may have prolonged it since.
    leases: Vec<usize>,
    released: Option<u32>,
    /// The first refusal.
    refused: Option<u32>,
    /// When a release of which nothing was heard may have taken effect.
    may_be_released: Option<i64>,
    /// When a lease may end early by extensions of which nothing was heard, and by how much they may have prolonged it.
    may_end: Option<i64>,
    may_last: i64,
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
                // It still lies within the loss for the next one, which then begins anew.
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
    /// L3: once an owner was told a larger fence, the smaller is over.
    pub(super) fn check_stale(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        // Of the grants with larger fences, the first record of each owner.
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
            may_be_released: None,
            may_end: None,
            may_last: 0,
            wrong: None,
        }
    }

    fn run(&mut self, begin: i64, before: Option<&End>, deletes: &Deletes) {
        let owner = self.lock.first(self.grant).owner;
        let unheard = self.lock.unheard_acts.get(&owner).map_or(&[][..], |all| all);
        let mut unheard = unheard.iter().peekable();
        for index in self.grant.of {
            while let Some(earlier) = unheard.next_if(|earlier| *earlier < index) {
                self.unheard(self.lock.record(*earlier));
            }
            let record = self.lock.record(*index);
            if record.owner != owner {
                // It shows the fence of another, and is told so.
                continue;
            }
            match record.outcome {
                Outcome::Ok => self.success(*index, record, begin, before),
                Outcome::Refused => self.refusal(*index, record, deletes),
                // Those that acquire were looked at above.
                Outcome::Unknown if record.is_acquire() => {}
                Outcome::Unknown => self.unheard(record),
            }
            if self.wrong.is_some() {
                return;
            }
        }
        unheard.for_each(|later| self.unheard(self.lock.record(*later)));
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
            let last = self.steps.len() - 1;
            let earliest = record.asked_millis().max(self.steps[last].earliest);
            let pushed_by = (earliest > record.asked_millis()).then_some(last);
            self.steps.push(Step {
                record: index,
                earliest,
                latest: record.told_millis(),
                ttl: record.ttl.into(),
                pushed_by,
            });
            self.hold_until(self.steps.len() - 1);
        }
        if let Some(late) = self.steps.iter().position(|step| step.earliest > step.latest) {
            return self.too_late(late, before);
        }
        let this = self.steps.len() - 1;
        match record.op {
            Op::Extend => {
                self.leases = vec![this];
            }
            Op::Try | Op::Wait => self.leases.push(this),
            Op::Release => self.released = Some(index),
            Op::Check | Op::Delete | Op::Seen => {}
        }
    }

    /// The grant itself; before it perhaps a request of which nothing was heard.
    fn begin(&mut self, index: u32, record: &Record, begin: i64) {
        let (latest, asked) = (record.told_millis(), record.asked_millis());
        if self.grant.unheard_ttl > 0 {
            let earliest = crate::record::millis(self.grant.asked).max(begin);
            let ttl = self.grant.unheard_ttl;
            self.steps.push(Step { record: index, earliest, latest, ttl, pushed_by: None });
            self.leases.push(0);
        }
        let ttl = if record.is_lease() { record.ttl.into() } else { 0 };
        let pushed_by = self.steps.len().checked_sub(1);
        let earliest = asked.max(begin);
        self.steps.push(Step { record: index, earliest, latest, ttl, pushed_by });
        if pushed_by.is_some() {
            self.hold_until(self.steps.len() - 1);
        }
    }

    /// Begins a lease late enough to last until this step.
    fn hold_until(&mut self, step: usize) {
        let slack = self.rules.late_millis + self.may_last - 1;
        let at = self.steps[step].earliest;
        let lasts = |lease: &usize| self.steps[*lease].earliest + self.steps[*lease].ttl + slack;
        if self.leases.iter().any(|lease| lasts(lease) >= at) {
            return;
        }
        // The one that has to be pushed least, of those that can be.
        let needed = |lease: &usize| at - self.steps[*lease].ttl - slack;
        let can = |lease: &&usize| needed(lease) <= self.steps[**lease].latest;
        let by = |lease: &&usize| needed(lease) - self.steps[**lease].earliest;
        let chosen = self.leases.iter().filter(can).min_by_key(by).or(self.leases.last()).copied();
        let Some(chosen) = chosen else { return };
        let to = needed(&chosen);
        self.steps[chosen].earliest = to;
        self.steps[chosen].pushed_by = Some(step);
        for between in chosen + 1..=step {
            if self.steps[between].earliest < to {
                self.steps[between].earliest = to;
                self.steps[between].pushed_by = Some(between - 1);
            }
        }
        // It must itself have been within a lease.
        if chosen > 0 && !self.is_first_of_all(chosen) {
            let leases = self.leases.clone();
            self.leases = self.leases_before(chosen);
            if !self.leases.is_empty() {
                self.hold_until(chosen);
            }
            self.leases = leases;
        }
    }

    fn is_first_of_all(&self, step: usize) -> bool {
        step == 0
    }

    /// The steps that decided the lease when this one came.
    fn leases_before(&self, step: usize) -> Vec<usize> {
        let mut leases = Vec::new();
        for (index, earlier) in self.steps[..step].iter().enumerate() {
            let record = self.lock.record(earlier.record);
            let stands_for_unheard = index == 0 && self.grant.unheard_ttl > 0;
            match record.op {
                Op::Extend if !stands_for_unheard => leases = vec![index],
                _ if record.is_acquire() || stands_for_unheard => leases.push(index),
                _ => {}
            }
        }
        leases
    }

    /// Without the one that may never have been given.
    fn sure_leases(&self) -> Vec<usize> {
        let perhaps = (self.grant.unheard_ttl > 0).then_some(0);
        self.leases.iter().copied().filter(|lease| Some(*lease) != perhaps).collect()
    }

    fn refusal(&mut self, index: u32, record: &Record, deletes: &Deletes) {
        if self.steps.is_empty() {
            return;
        }
        self.refused = self.refused.or(Some(index));
        let told = record.told_millis();
        let first = self.steps[0].earliest;
        let explained = self.released.is_some()
            || self.may_be_released.is_some()
            || self.may_end.is_some_and(|end| end - self.rules.early_millis <= told)
            || deletes.any_within(first, told)
            || self.rules.is_forgotten(self.grant.asked, record.told);
        if explained {
            return;
        }
        for lease in self.sure_leases() {
            let step = &mut self.steps[lease];
            step.latest = step.latest.min(told - step.ttl + self.rules.early_millis);
            if step.earliest > step.latest {
                let what = format!(
                    "{:?} was refused to the holder of {}, whose lease lasts {} ms longer",
                    record.op,
                    record.fence,
                    step.earliest - step.latest
                );
                let mut proof = self.path(lease);
                proof.push(index);
                return self.fails(Law::L3, what, proof);
            }
        }
    }

    fn unheard(&mut self, record: &Record) {
        let asked = record.asked_millis();
        match record.op {
            Op::Release => {
                self.may_be_released = Some(self.may_be_released.map_or(asked, |at| at.min(asked)));
            }
            Op::Extend => {
                let end = asked + i64::from(record.ttl);
                self.may_end = Some(self.may_end.map_or(end, |at| at.min(end)));
                self.may_last += i64::from(record.ttl);
            }
            // May prolong it.
            Op::Try | Op::Wait => self.may_last += i64::from(record.ttl),
            Op::Check | Op::Delete | Op::Seen => {}
        }
    }

    /// L3: nothing succeeds with a grant of which the key was deleted.
    fn check_deletes(&mut self, deletes: &Deletes) {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return };
        let (told, asked) = (first.latest, self.lock.record(last.record).asked_millis());
        // Pushed as well as asked: it cannot have taken effect before.
        let asked = asked.max(last.earliest);
        if let Some(delete) = deletes.surely_within(told, asked) {
            let op = self.lock.record(last.record).op;
            let what = format!("{op:?} succeeded with fence {}, deleted before", self.grant.fence);
            let proof = vec![first.record, delete, last.record];
            self.fails(Law::L3, what, proof);
        }
    }

    /// L1, or L3 within a grant: something took effect before it can have.
    fn too_late(&mut self, late: usize, before: Option<&End>) {
        let step = self.steps[late];
        let by = step.earliest - step.latest;
        let mut proof = self.path(late);
        let stands_alone = proof.len() == 1;
        if let Some(end) = before.filter(|_| stands_alone || late == 0) {
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

    /// The records that pushed this step to where it is, oldest first.
    fn path(&self, step: usize) -> Vec<u32> {
        let mut path = vec![self.steps[step].record];
        let mut at = step;
        while let Some(by) = self.steps[at].pushed_by {
            if path.len() > self.steps.len() {
                break;
            }
            path.push(self.steps[by].record);
            at = by;
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
        let sure = self.sure_leases();
        let lease = sure.iter().max_by_key(|lease| {
            let step = &self.steps[**lease];
            step.earliest + step.ttl
        });
        let ends = lease.map_or(last, |lease| {
            self.steps[*lease].earliest + self.steps[*lease].ttl - self.rules.early_millis
        });
        let released = self.released.map(|_| last);
        let otherwise =
            [released, self.may_be_released, self.may_end.map(|end| end - self.rules.early_millis)];
        let free = otherwise.into_iter().flatten().fold(ends, i64::min).max(last);
        let mut proof = self.grant.of.first().copied().into_iter().collect::<Vec<_>>();
        proof.extend(lease.map(|lease| self.steps[*lease].record));
        proof.extend(self.released);
        proof.dedup();
        End { fence: self.grant.fence, asked: self.grant.asked, last, free, proof }
    }
}

/// When the key was taken away. Each time frees one grant.
struct Deletes<'d> {
    all: &'d [Delete],
    used: Vec<bool>,
    /// Of those from here on, which is over first.
    first_over: Vec<usize>,
}

impl<'d> Deletes<'d> {
    fn new(all: &'d [Delete]) -> Self {
        let mut first_over = vec![usize::MAX; all.len()];
        let mut first = usize::MAX;
        for index in (0..all.len()).rev() {
            if first == usize::MAX || all[index].to < all[first].to {
                first = index;
            }
            first_over[index] = first;
        }
        Self { all, used: vec![false; all.len()], first_over }
    }

    /// When the lock is free: at the end of its lease, or when somebody deleted it after `last`. One that is needed, or
    /// the next would have been granted too early, serves nobody else.
    fn free(&mut self, last: i64, free: i64, told: i64) -> i64 {
        if free <= last {
            return free;
        }
        let end = self.all.partition_point(|delete| delete.from <= told);
        let mut best = None::<usize>;
        // Few are under way at once; those that were over before the grant are behind.
        for index in (0..end).rev() {
            let delete = self.all[index];
            if delete.to >= last && !self.used[index] {
                let sooner = best.is_none_or(|best| delete.to < self.all[best].to);
                best = if sooner { Some(index) } else { best };
            } else if delete.to < last && delete.from + LONG_AGO < last {
                break;
            }
        }
        let Some(best) = best else { return free };
        if free > told {
            self.used[best] = true;
        }
        free.min(self.all[best].from.max(last))
    }

    fn any_within(&self, from: i64, to: i64) -> bool {
        let end = self.all.partition_point(|delete| delete.from <= to);
        let recent = self.all[..end].iter().rev();
        recent.take_while(|delete| delete.from + LONG_AGO >= from).any(|delete| delete.to >= from)
            || self.all[..end].iter().any(|delete| delete.to > i64::MAX / 8)
    }

    /// One that was asked for after the one moment and told before the other.
    fn surely_within(&self, after: i64, before: i64) -> Option<u32> {
        let begin = self.all.partition_point(|delete| delete.from <= after);
        let first = *self.first_over.get(begin)?;
        (self.all[first].to < before).then_some(self.all[first].record)
    }
}

/// No command takes longer.
const LONG_AGO: i64 = 60_000;
