//! Can a server that keeps its promises have answered so?
//!
//! ```text
//!   fences      12        15             15        19          in this order, lock by lock:
//!   records     ├─try─┤   ├─wait────┤  ├─extend─┤  ├─try─┤
//!   earliest    ▲         ▲              ▲         ▲           when each can have taken effect
//! ```
//!
//! Every grant has a fence, so the order of grants is known, and need not be searched for: one walk after a sort does. The
//! walk gives each operation the earliest moment at which it can have taken effect, and the latest; where the one is after
//! the other, no server can have answered so, and the operations that leave it no room are the proof.
//!
//! Where something cannot be known (a connection was lost; somebody deleted the key within a span) whatever would explain
//! the replies is believed. So what is called wrong is wrong; `oracle` counts how much of what is wrong is found.

mod chain;
mod deletes;
mod order;
mod queue;
mod spans;
mod unheard;

use crate::record::{EVERY_LOCK, Op, Outcome, Record};
use spans::{joined, overlaps};
use std::collections::{BTreeMap, HashMap};
use unheard::AllUnheard;

/// Which promise was broken; the numbers are those of the module's own list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// Mutual exclusion.
    L1,
    /// Fences grow, and none is given twice.
    L2,
    /// Only the holder releases and extends; and the holder can.
    L3,
    /// First come, first served.
    L4,
    /// A free lock with a waiter is granted.
    L5,
}

/// A span of the wall clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first moment.
    pub from: u64,
    /// Its last.
    pub to: u64,
}

/// What the setup promises.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// When data may have been lost: L1, L3, L4 and L5 say nothing about what overlaps such a span; L2 does.
    pub loss: Vec<Span>,
    /// When nothing need be granted, and the order of a queue may be lost.
    pub standstill: Vec<Span>,
    /// When leases may have been forgotten that nobody else can have been granted in the meantime: their holders may be
    /// refused. Nothing else is excused.
    pub forgotten: Vec<Span>,
    /// When a primary that was replaced, and did not know it yet, may have gone on granting beside its successor: what was
    /// asked of it then may have a smaller fence than what was told by the other before.
    pub beside: Vec<Span>,
    /// By how many milliseconds a lease may end late.
    pub late_millis: i64,
    /// How long a free lock may have a waiter. 0: not looked at.
    pub idle_micros: u64,
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In any order, but those of one owner in the order in which it asked.
    pub records: Vec<Record>,
    /// The highest fence of each lock that was told before this history begins.
    pub before: HashMap<u32, u64>,
}

/// A promise that was broken, and the records that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub law: Law,
    /// Of which lock.
    pub lock: u32,
    /// What is wrong.
    pub what: String,
    /// The indices of the records that cannot all be.
    pub proof: Vec<u32>,
}

/// What came of a check.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// How many grants there were.
    pub grants: u64,
    /// How many of them came after a wait.
    pub waited: u64,
    /// What is wrong, beginning with what took the least time and is the easiest to follow; not all of it if it is much.
    pub violations: Vec<Violation>,
}

/// No more than so many are noted: one broken promise makes thousands.
const ENOUGH: usize = 100;

/// The records of one lock, sorted by fence; those without come first.
struct Lock<'h> {
    records: &'h [Record],
    number: u32,
    all: &'h [u32],
    /// Those without fence.
    others: &'h [u32],
    /// One for each fence.
    grants: Vec<Grant<'h>>,
    /// Sorted by `from`, in milliseconds.
    deletes: Vec<Delete>,
    unheard: AllUnheard,
}

/// All that is known of one fence.
struct Grant<'h> {
    fence: u64,
    /// In the order in which its owner asked.
    of: &'h [u32],
    /// When the request that was granted may have been sent, and the latest moment of the reply.
    asked: u64,
    told: u64,
    /// The longest lease that a request of which nothing was heard may have been granted; 0 for none.
    unheard_ttl: i64,
}

#[derive(Clone, Copy)]
struct Delete {
    from: i64,
    to: i64,
    record: u32,
}

impl History {
    /// Looks for broken promises.
    pub fn check(&self, rules: &Rules) -> Verdict {
        let mut verdict = Verdict::default();
        let mut by_lock = self.by_lock();
        let of_every = by_lock.remove(&EVERY_LOCK).unwrap_or_default();
        let mut rules = rules.clone();
        // Where data may be lost, nothing need be granted either.
        rules.standstill.extend(&rules.loss);
        for spans in
            [&mut rules.loss, &mut rules.standstill, &mut rules.forgotten, &mut rules.beside]
        {
            *spans = joined(std::mem::take(spans));
        }
        for (number, of_lock) in by_lock {
            let known = verdict.violations.len();
            let of_lock = of_lock.iter().chain(&of_every).copied().collect::<Vec<_>>();
            // Side by side, or each look at one of them would be somewhere else in memory.
            let records: Vec<_> =
                of_lock.iter().map(|index| self.records[*index as usize]).collect();
            let before = self.before.get(&number).copied();
            verdict.of_lock(number, &records, before, &rules);
            for index in verdict.violations[known..].iter_mut().flat_map(|one| &mut one.proof) {
                *index = of_lock[*index as usize];
            }
            if verdict.violations.len() >= ENOUGH {
                break;
            }
        }
        verdict.violations.sort_by_cached_key(|violation| {
            let window = self.window(violation);
            (window.to.saturating_sub(window.from), violation.proof.len())
        });
        verdict
    }

    fn by_lock(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut by_lock: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (index, record) in (0..).zip(&self.records) {
            by_lock.entry(record.lock).or_default().push(index);
        }
        by_lock
    }

    /// From the first question to the last answer of what shows it.
    pub(crate) fn window(&self, violation: &Violation) -> Span {
        let proof = violation.proof.iter().map(|index| &self.records[*index as usize]);
        Span {
            from: proof.clone().map(|record| record.asked).min().unwrap_or(0),
            to: proof.map(|record| record.told).max().unwrap_or(u64::MAX),
        }
    }

    /// The highest fence of each lock that was told by the end, to begin the next history with.
    pub fn highest(&self) -> HashMap<u32, u64> {
        let mut highest = self.before.clone();
        for record in self.records.iter().filter(|record| record.outcome == Outcome::Ok) {
            let fence = highest.entry(record.lock).or_default();
            *fence = record.fence.max(*fence);
        }
        highest
    }
}

impl Verdict {
    /// Adds what came of one lock. Of its records, those that concern every lock are the last.
    fn of_lock(&mut self, number: u32, records: &[Record], before: Option<u64>, rules: &Rules) {
        let mut order: Vec<u32> = (0..u32::try_from(records.len()).unwrap()).collect();
        // What has the same fence stays in the order of asking.
        order.sort_by_cached_key(|index| known_fence(&records[*index as usize]));
        let wrong = &mut self.violations;
        let lock = Lock::new(number, records, &order, wrong);
        lock.check_strangers(rules, wrong);
        lock.check_fences(rules, before, wrong);
        lock.check_stale(rules, wrong);
        lock.check_leases(rules, wrong);
        lock.check_queue(rules, wrong);
        let waited = lock.grants.iter().filter(|grant| lock.first(grant).op == Op::Wait).count();
        self.waited += waited as u64;
        self.grants += lock.grants.len() as u64;
    }
}

fn known_fence(record: &Record) -> u64 {
    match record.op {
        Op::Delete | Op::Seen => 0,
        _ => record.fence,
    }
}

impl Rules {
    /// Whether data may have been lost within this span.
    fn is_lossy(&self, from: u64, to: u64) -> bool {
        overlaps(&self.loss, from, to)
    }

    /// Whether what was granted by the one moment may be unknown to the server by the other.
    fn is_forgotten(&self, from: u64, to: u64) -> bool {
        overlaps(&self.forgotten, from, to)
    }

    fn stands_still(&self, from: u64, to: u64) -> bool {
        overlaps(&self.standstill, from, to)
    }
}

impl<'h> Lock<'h> {
    fn new(number: u32, records: &'h [Record], all: &'h [u32], wrong: &mut Vec<Violation>) -> Self {
        let of = |index: u32| &records[index as usize];
        let fence = |index: &u32| known_fence(of(*index));
        let (others, fenced) = all.split_at(all.partition_point(|index| fence(index) == 0));
        let deletes = others.iter().filter(|index| of(**index).op == Op::Delete);
        let mut deletes: Vec<_> = deletes
            .map(|index| Delete {
                from: of(*index).asked_millis(),
                to: match of(*index).outcome {
                    Outcome::Unknown => i64::MAX / 4,
                    _ => of(*index).told_millis(),
                },
                record: *index,
            })
            .collect();
        deletes.sort_unstable_by_key(|delete| (delete.from, delete.to));
        let unheard = AllUnheard::new(records, all);
        let grants = Vec::new();
        let mut lock = Self { records, number, all, others, grants, deletes, unheard };
        for of in fenced.chunk_by(|one, next| fence(one) == fence(next)) {
            let grant = lock.grant(of, wrong);
            lock.grants.extend(grant);
        }
        lock
    }

    fn record(&self, index: u32) -> &'h Record {
        &self.records[index as usize]
    }

    /// The first that was told this fence.
    fn first(&self, grant: &Grant<'h>) -> &'h Record {
        let ok = grant.of.iter().find(|index| self.record(**index).outcome == Outcome::Ok);
        self.record(*ok.expect("a grant was told"))
    }

    fn violation(&self, law: Law, what: String, proof: Vec<u32>) -> Violation {
        Violation { law, lock: self.number, what, proof }
    }

    fn grant(&self, of: &'h [u32], wrong: &mut Vec<Violation>) -> Option<Grant<'h>> {
        let index = *of.iter().find(|index| self.record(**index).outcome == Outcome::Ok)?;
        let first = self.record(index);
        let stranger = of.iter().find(|index| {
            let record = self.record(**index);
            record.owner != first.owner && record.outcome == Outcome::Ok
        });
        if let Some(stranger) = stranger {
            let what = format!("fence {} was told to two owners", first.fence);
            wrong.push(self.violation(Law::L2, what, vec![index, *stranger]));
        }
        let unheard = self.unheard.before(first.owner, index);
        let (asked, ttl) = (first.asked.min(unheard.asked), unheard.ttl);
        if !first.is_acquire() && ttl == 0 {
            let what =
                format!("{:?} succeeded with fence {}, never granted", first.op, first.fence);
            wrong.push(self.violation(Law::L3, what, vec![index]));
        }
        Some(Grant { fence: first.fence, of, asked, told: first.told, unheard_ttl: ttl })
    }

    /// L3: who was never granted the lock does nothing with it.
    fn check_strangers(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let mut granted = None;
        for index in self.others {
            let record = self.record(*index);
            let acts = matches!(record.op, Op::Extend | Op::Release | Op::Check);
            let may_hold = || self.unheard.before(record.owner, *index).may_hold();
            if acts && record.outcome == Outcome::Ok && !may_hold() {
                // What it released may be its own again.
                let granted = granted.get_or_insert_with(|| self.first_granted());
                let since = granted.get(&record.owner);
                if since.is_none_or(|since| !rules.is_lossy(*since, record.told)) {
                    let what =
                        format!("{:?} succeeded for one who does not hold the lock", record.op);
                    wrong.push(self.violation(Law::L3, what, vec![*index]));
                }
            }
        }
    }

    /// By owner, when the first request may have been sent that was granted.
    fn first_granted(&self) -> HashMap<u32, u64> {
        let mut granted: HashMap<u32, u64> = HashMap::new();
        for grant in &self.grants {
            let since = granted.entry(self.first(grant).owner).or_insert(grant.asked);
            *since = grant.asked.min(*since);
        }
        granted
    }
}
