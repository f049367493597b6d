//! Decides whether a server that keeps its promises can have given these replies.
//!
//! ```text
//!   fences      12        15             15        19          in this order, lock by lock:
//!   records     ├─try─┤   ├─wait────┤  ├─extend─┤  ├─try─┤
//!   earliest    ▲         ▲              ▲         ▲           when each can have taken effect
//! ```
//!
//! Every grant has a fence. So the order of grants is known, and a sort and one walk are enough. The walk computes the
//! earliest and the latest moment at which each operation can have taken effect. If the earliest is after the latest,
//! no server can have given that reply, and the operations that leave no room for it are the proof.
//!
//! Several owners may hold a lock at a time, as many as each of them tolerates. An exclusive hold tolerates no other,
//! and needs no rules of its own.
//!
//! A lost connection, or a deletion of the key within a span, leaves something unknown. The checker then assumes
//! whatever explains the replies. So every violation is real.

mod chain;
mod closings;
mod deletes;
mod holders;
mod idle;
mod order;
mod queue;
mod several;
mod spans;
mod stale;
mod steps;
mod unheard;

use crate::record::{EVERY_LOCK, Op, Outcome, Record};
use deletes::Deletes;
use spans::{joined, overlaps};
use std::collections::{BTreeMap, HashMap, HashSet};
use unheard::AllUnheard;

/// The broken promise, with its number in the module's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// Mutual exclusion.
    L1,
    /// Fences grow, and no fence is given twice.
    L2,
    /// Only the holder can release and extend, and the holder always can.
    L3,
    /// First come, first served.
    L4,
    /// A lock that can be granted to a waiter is granted.
    L5,
}

/// A span of the wall clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment.
    pub from: u64,
    /// The last moment.
    pub to: u64,
}

/// What the servers of a scenario promise.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// When data may have been lost. L1, L3, L4 and L5 exclude everything that overlaps such a span. L2 does not.
    pub loss: Vec<Span>,
    /// When no grant is required, and queues may lose their order.
    pub standstill: Vec<Span>,
    /// When leases may have been lost, but no other owner can have been granted the lock. Holders may be refused.
    /// Nothing else is excused.
    pub forgotten: Vec<Span>,
    /// When a former primary may have granted locks beside its successor. A grant requested from it then may have a
    /// smaller fence than an earlier grant of its successor.
    pub beside: Vec<Span>,
    /// When the clock was behind. A hold that had expired may be in force again, with its fence.
    pub behind: Vec<Span>,
    /// When a hold may have lost its binding to a connection, without any other effect on the hold.
    pub unbound: Vec<Span>,
    /// How many milliseconds late a lease may end.
    pub late_millis: i64,
    /// How many microseconds a lock may be free while somebody waits. 0: without limit.
    pub idle_micros: u64,
}

/// The records of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In any order, except that the records of each owner are in the order of its requests. No owner has requests in
    /// two histories.
    pub records: Vec<Record>,
    /// The highest fence of each lock before this history begins.
    pub before: HashMap<u32, u64>,
}

/// A broken promise, and the records that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken promise.
    pub law: Law,
    /// The lock.
    pub lock: u32,
    /// The contradiction, in words.
    pub what: String,
    /// The indices of the records that contradict each other.
    pub proof: Vec<u32>,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The number of grants.
    pub grants: u64,
    /// How many grants came after a wait.
    pub waited: u64,
    /// The violations, those with the shortest proof first, because they are the easiest to follow. Incomplete if there
    /// are many.
    pub violations: Vec<Violation>,
}

/// The most violations noted, because one broken promise causes thousands.
const ENOUGH: usize = 100;

/// The records of one lock, sorted by fence. Those without a fence come first.
struct Lock<'h> {
    records: &'h [Record],
    number: u32,
    all: &'h [u32],
    /// The records without a fence.
    others: &'h [u32],
    /// The records of each fence.
    grants: Vec<Grant<'h>>,
    deletes: Deletes<'h>,
    unheard: AllUnheard,
}

/// What is known about one fence.
struct Grant<'h> {
    fence: u64,
    /// The records, in the order of their owner's requests.
    of: &'h [u32],
    /// When the request for this grant may have been sent, and when its first reply had been read.
    asked: u64,
    told: u64,
    /// The longest lease that an unanswered request may have got, or 0.
    unheard_ttl: i64,
    /// The least and the most holders that the grant may have tolerated when it was made.
    tightest: u32,
    loosest: u32,
    /// A request for several locks may have made the grant.
    of_several: bool,
}

#[derive(Clone, Copy)]
struct Delete {
    from: i64,
    to: i64,
    record: u32,
}

impl Delete {
    fn by(record: &Record, index: u32) -> Self {
        let to = match record.outcome {
            Outcome::Unknown => i64::MAX / 4,
            _ => record.told_millis(),
        };
        Self { from: record.asked_millis(), to, record: index }
    }
}

impl History {
    /// Finds broken promises.
    pub fn check(&self, rules: &Rules) -> Verdict {
        let mut verdict = Verdict::default();
        let mut by_lock = self.by_lock();
        let of_every = by_lock.remove(&EVERY_LOCK).unwrap_or_default();
        let mut rules = rules.clone();
        // If data may be lost, no grant is required either.
        rules.standstill.extend(&rules.loss);
        for spans in [
            &mut rules.loss,
            &mut rules.standstill,
            &mut rules.forgotten,
            &mut rules.beside,
            &mut rules.behind,
            &mut rules.unbound,
        ] {
            *spans = joined(std::mem::take(spans));
        }
        several::check_sets(&self.records, &mut verdict.violations);
        let kept = several::kept(&self.records);
        let torn = several::torn_tickets(&self.records);
        for (number, of_lock) in by_lock {
            let known = verdict.violations.len();
            let of_lock = of_lock.iter().chain(&of_every).copied().collect::<Vec<_>>();
            // Copied together, because the originals are far apart in memory.
            let records: Vec<_> =
                of_lock.iter().map(|index| self.records[*index as usize]).collect();
            let before = self.before.get(&number).copied();
            let is_kept = kept.contains(&number);
            verdict.of_lock(number, &records, (before, is_kept), &torn, &rules);
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

    /// The time from the first request to the last reply of the proof.
    pub(crate) fn window(&self, violation: &Violation) -> Span {
        let proof = violation.proof.iter().map(|index| &self.records[*index as usize]);
        Span {
            from: proof.clone().map(|record| record.asked).min().unwrap_or(0),
            to: proof.map(|record| record.told).max().unwrap_or(u64::MAX),
        }
    }

    /// The highest fence of each lock at the end, for the next history.
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
    /// Adds the result of one lock. `records` end with those that concern every lock.
    fn of_lock(
        &mut self,
        number: u32,
        records: &[Record],
        (before, is_kept): (Option<u64>, bool),
        torn: &HashSet<u32>,
        rules: &Rules,
    ) {
        let mut order: Vec<u32> = (0..u32::try_from(records.len()).unwrap()).collect();
        // A stable sort: records with the same fence stay in the order of requests.
        order.sort_by_cached_key(|index| known_fence(&records[*index as usize]));
        let wrong = &mut self.violations;
        let deletes = deletes_of(records);
        let lock = Lock::new(number, (records, &order), &deletes, wrong);
        lock.check_strangers(rules, wrong);
        lock.check_fences(rules, before, wrong);
        lock.check_stale(rules, wrong);
        lock.check_leases(rules, wrong);
        lock.check_order(torn, rules, wrong);
        if !is_kept {
            lock.check_idle(rules, wrong);
        }
        let waited = lock.grants.iter().filter(|grant| lock.first(grant).op == Op::Wait).count();
        self.waited += waited as u64;
        self.grants += lock.grants.len() as u64;
    }
}

/// The deletions sorted by `from`, in milliseconds.
fn deletes_of(records: &[Record]) -> Vec<Delete> {
    let deletes = (0..).zip(records).filter(|(_, record)| record.op == Op::Delete);
    let mut deletes: Vec<_> = deletes.map(|(index, record)| Delete::by(record, index)).collect();
    deletes.sort_unstable_by_key(|delete| (delete.from, delete.to));
    deletes
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

    /// Whether the server may have lost earlier grants between these moments.
    fn is_forgotten(&self, from: u64, to: u64) -> bool {
        overlaps(&self.forgotten, from, to)
    }

    /// Whether a hold that was bound at `from` may be unbound at `to`.
    fn unbinds(&self, from: u64, to: u64) -> bool {
        self.stands_still(from, to) || overlaps(&self.unbound, from, to)
    }

    fn stands_still(&self, from: u64, to: u64) -> bool {
        overlaps(&self.standstill, from, to)
    }
}

impl<'h> Lock<'h> {
    fn new(
        number: u32,
        (records, all): (&'h [Record], &'h [u32]),
        deletes: &'h [Delete],
        wrong: &mut Vec<Violation>,
    ) -> Self {
        let of = |index: u32| &records[index as usize];
        let fence = |index: &u32| known_fence(of(*index));
        let (others, fenced) = all.split_at(all.partition_point(|index| fence(index) == 0));
        let deletes = Deletes::new(deletes);
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

    /// The first record that told this fence.
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
        let (mut tightest, mut loosest) = (unheard.tightest, unheard.loosest);
        if first.is_acquire() {
            (tightest, loosest) = (tightest.min(first.tolerance()), loosest.max(first.tolerance()));
        } else if ttl == 0 {
            (tightest, loosest) = (1, u32::MAX);
        }
        let (fence, told) = (first.fence, first.told);
        let of_several = first.set != 0 || unheard.of_several;
        Some(Grant { fence, of, asked, told, unheard_ttl: ttl, tightest, loosest, of_several })
    }

    /// L3: an owner that was never granted the lock has no success with it.
    fn check_strangers(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        let mut granted = None;
        for index in self.others {
            let record = self.record(*index);
            let acts = matches!(record.op, Op::Extend | Op::Release | Op::Check);
            let may_hold = || self.unheard.before(record.owner, *index).may_hold();
            if acts && record.outcome == Outcome::Ok && !may_hold() {
                // After a loss, the owner may hold again what it had released.
                let granted = granted.get_or_insert_with(|| self.first_granted());
                let since = granted.get(&record.owner);
                let may_be_lost = |since: &u64| rules.is_lossy(*since, record.told);
                if !since.is_some_and(may_be_lost) {
                    let what =
                        format!("{:?} succeeded for one who does not hold the lock", record.op);
                    wrong.push(self.violation(Law::L3, what, vec![*index]));
                }
            }
        }
    }

    /// For each owner, when its first granted request may have been sent.
    fn first_granted(&self) -> HashMap<u32, u64> {
        let mut granted: HashMap<u32, u64> = HashMap::new();
        for grant in &self.grants {
            let since = granted.entry(self.first(grant).owner).or_insert(grant.asked);
            *since = grant.asked.min(*since);
        }
        granted
    }
}
