//! Can a server that keeps its promises have answered so?
//!
//! ```text
//!   fences      12        15             15        19          in this order, lock by lock:
//!   records     ├─try─┤   ├─wait────┤  ├─extend─┤  ├─try─┤
//!   earliest    ▲         ▲              ▲         ▲           when each can have taken effect
//! ```
//!
//! Every grant has a fence, so the order of grants is known, and need not be searched for: one walk after a sort does. The
//! walk gives each operation the earliest moment at which it can have taken effect; where that is later than its reply, no
//! server can have answered so, and the operations that pushed it there are the proof.
//!
//! Where something cannot be known (a connection was lost; somebody deleted the key within a span) whatever would explain
//! the replies is believed. So what is called wrong is wrong; `trust` counts how much of what is wrong is found.

mod chain;
mod order;
mod queue;

use crate::record::{EVERY_LOCK, Op, Outcome, Record};
use std::collections::HashMap;
use std::ops::Range;

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
    /// By how many milliseconds a lease may end early, as the wall clock of the server was set forward.
    pub early_millis: i64,
    /// The same, late.
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
    /// What is wrong; not all of it if it is much.
    pub violations: Vec<Violation>,
}

/// No more than so many are noted: one broken promise makes thousands.
const ENOUGH: usize = 100;

/// The records of one lock, sorted by fence; those without come first.
struct Lock<'h> {
    records: &'h [Record],
    number: u32,
    /// Without fence.
    others: &'h [u32],
    /// One for each fence.
    grants: Vec<Grant<'h>>,
    /// Sorted by `from`, in milliseconds.
    deletes: Vec<Delete>,
    /// Those who may have been granted the lock and not been told: by owner, in the order of asking.
    unheard: HashMap<u32, Vec<u32>>,
    /// The same of what may have been done with whatever its owner held.
    unheard_acts: HashMap<u32, Vec<u32>>,
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
        let mut order: Vec<u32> = (0..u32::try_from(self.records.len()).unwrap()).collect();
        order.sort_unstable_by_key(|index| {
            let record = &self.records[*index as usize];
            (record.lock, known_fence(record), *index)
        });
        let of_every =
            order.partition_point(|index| self.records[*index as usize].lock != EVERY_LOCK);
        let (order, of_every) = order.split_at(of_every);
        let mut rules = rules.clone();
        rules.loss.sort_unstable_by_key(|span| span.from);
        rules.standstill.sort_unstable_by_key(|span| span.from);
        rules.forgotten.sort_unstable_by_key(|span| span.from);
        rules.beside.sort_unstable_by_key(|span| span.from);
        for range in runs(order, |index| self.records[index as usize].lock) {
            let lock = Lock::new(&self.records, &order[range], of_every, &mut verdict.violations);
            verdict.grants += lock.grants.len() as u64;
            verdict.waited +=
                lock.grants.iter().filter(|grant| lock.first(grant).op == Op::Wait).count() as u64;
            lock.check_fences(&rules, self.before.get(&lock.number), &mut verdict.violations);
            lock.check_stale(&rules, &mut verdict.violations);
            lock.check_leases(&rules, &mut verdict.violations);
            lock.check_queue(&rules, &mut verdict.violations);
            if verdict.violations.len() >= ENOUGH {
                break;
            }
        }
        verdict
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

fn known_fence(record: &Record) -> u64 {
    match record.op {
        Op::Delete | Op::Seen => 0,
        _ => record.fence,
    }
}

/// Where neighbours have the same key.
fn runs<K: PartialEq>(order: &[u32], key: impl Fn(u32) -> K) -> Vec<Range<usize>> {
    let chunks = order.chunk_by(|one, other| key(*one) == key(*other));
    let mut start = 0;
    chunks
        .map(|chunk| {
            start += chunk.len();
            start - chunk.len()..start
        })
        .collect()
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
        overlaps(&self.standstill, from, to) || self.is_lossy(from, to)
    }
}

/// Spans are sorted by `from`, and few are long: those that begin before `to` are looked at from the last one back.
fn overlaps(spans: &[Span], from: u64, to: u64) -> bool {
    let end = spans.partition_point(|span| span.from <= to);
    spans[..end].iter().rev().any(|span| span.to >= from)
}

impl<'h> Lock<'h> {
    fn new(
        records: &'h [Record],
        order: &'h [u32],
        of_every: &'h [u32],
        wrong: &mut Vec<Violation>,
    ) -> Self {
        let of = |index: u32| &records[index as usize];
        let number = of(order[0]).lock;
        let (others, fenced) =
            order.split_at(order.partition_point(|index| known_fence(of(*index)) == 0));
        let mut unheard: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut unheard_acts: HashMap<u32, Vec<u32>> = HashMap::new();
        for index in order {
            let record = of(*index);
            if record.outcome != Outcome::Unknown {
                continue;
            }
            if record.is_acquire() {
                unheard.entry(record.owner).or_default().push(*index);
            }
            // What shows no fence may concern whatever its owner holds by then.
            if record.is_acquire() || record.fence == 0 {
                unheard_acts.entry(record.owner).or_default().push(*index);
            }
        }
        for of in unheard.values_mut().chain(unheard_acts.values_mut()) {
            of.sort_unstable();
        }
        let deletes = others.iter().chain(of_every).filter(|index| of(**index).op == Op::Delete);
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
        let mut lock =
            Self { records, number, others, grants: Vec::new(), deletes, unheard, unheard_acts };
        for range in runs(fenced, |index| of(index).fence) {
            if let Some(grant) = lock.grant(&fenced[range], wrong) {
                lock.grants.push(grant);
            }
        }
        lock.check_strangers(wrong);
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
        let unheard = self.unheard.get(&first.owner).map_or(&[][..], |all| all);
        let unheard =
            unheard.iter().take_while(|earlier| **earlier < index).map(|of| self.record(*of));
        let (asked, ttl) = unheard.fold((first.asked, 0), |(asked, ttl), earlier| {
            (asked.min(earlier.asked), ttl.max(i64::from(earlier.ttl)))
        });
        if !first.is_acquire() && ttl == 0 {
            let what =
                format!("{:?} succeeded with fence {}, never granted", first.op, first.fence);
            wrong.push(self.violation(Law::L3, what, vec![index]));
        }
        Some(Grant { fence: first.fence, of, asked, told: first.told, unheard_ttl: ttl })
    }

    /// L3: who was never granted the lock does nothing with it.
    fn check_strangers(&self, wrong: &mut Vec<Violation>) {
        for index in self.others {
            let record = self.record(*index);
            let acts = matches!(record.op, Op::Extend | Op::Release | Op::Check);
            let may_hold = || {
                let unheard = self.unheard.get(&record.owner);
                unheard.is_some_and(|unheard| unheard.first().is_some_and(|first| first < index))
            };
            if acts && record.outcome == Outcome::Ok && !may_hold() {
                let what = format!("{:?} succeeded for one who does not hold the lock", record.op);
                wrong.push(self.violation(Law::L3, what, vec![*index]));
            }
        }
    }
}
