//! Measures how long the checker takes for as many records as a campaign makes:
//! `LEASEHOLD_SCALE=100000000` invents that many.
//!
//! All records except the last are right, and contain everything that the checker looks for: waiters
//! that were seen, refusals, late requests, long grants, lost replies, deletions, and spans that
//! excuse something. The violation is at the very end.

use super::chance::Chance;
use super::invent;
use crate::checker::{History, Law, Rules, Span};
use crate::record::{EVERY_LOCK, Op, Outcome, Record};
use std::env;
use std::time::Instant;

const LOCKS: u32 = 100;

/// The owners of each lock that come back again and again.
const REGULARS: u32 = 8;

/// The number of rounds, each with a story for each lock, between events that concern all locks.
const ROUNDS: u32 = 5;

const LATE_MILLIS: u32 = 3;
const IDLE_MILLIS: u32 = 50;

#[derive(Clone, Copy)]
struct Lock {
    number: u32,
    /// The time in the story of this lock, in milliseconds.
    now: u64,
    fence: u64,
}

struct World {
    chance: Chance,
    records: Vec<Record>,
    rules: Rules,
    next_owner: u32,
}

#[test]
fn a_long_history_is_checked_in_little_time_and_what_is_wrong_at_its_end_is_found() {
    let count = env::var("LEASEHOLD_SCALE").map_or(100_000, |count| count.parse().unwrap());
    let begin = Instant::now();
    let mut world = World::new(count);
    let end = world.pass(count);
    let rules = world.rules;
    let mut history = History { records: world.records, ..History::default() };
    let records = history.records.len();
    println!("{records} records: invented in {:.1} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    let verdict = history.check(&rules);
    let seconds = begin.elapsed().as_secs_f64();
    let nanos = seconds * 1e9 / records as f64;
    println!("{records} records: checked in {seconds:.1} s, {nanos:.0} ns for each");
    if let Some(first) = verdict.violations.first() {
        panic!("{}", history.explain(first, &[]));
    }
    assert!(verdict.grants > count / 20 && verdict.waited > count / 100, "{verdict:?}");
    let first = u32::try_from(history.records.len()).unwrap();
    for (index, fence) in [(0, u64::MAX >> 12), (1, (u64::MAX >> 12) + 1)] {
        let at = end + 10 * index;
        history.records.push(Record {
            asked: at * 1_000,
            told: at * 1_000,
            fence,
            ttl: 11,
            owner: u32::MAX - 1 - u32::try_from(index).unwrap(),
            lock: LOCKS - 1,
            ..invent::record(0, 0)
        });
    }
    let [violation] = &history.check(&rules).violations[..] else { panic!("what is wrong") };
    assert_eq!((violation.law, &violation.proof[..]), (Law::L1, &[first, first + 1][..]));
}

impl World {
    fn new(count: u64) -> Self {
        let rules = Rules {
            late_millis: LATE_MILLIS.into(),
            idle_micros: u64::from(IDLE_MILLIS) * 1_000,
            ..Rules::default()
        };
        // The last round may add records beyond `count`.
        let records = Vec::with_capacity(usize::try_from(count).unwrap() + 1_000_000);
        Self { chance: Chance::new(1), records, rules, next_owner: LOCKS * (REGULARS + 1) }
    }

    /// Invents this many records. Returns when the last one ends.
    fn pass(&mut self, count: u64) -> u64 {
        let mut locks: Vec<_> =
            (0..LOCKS).map(|number| Lock { number, now: 1_000, fence: 0 }).collect();
        while (self.records.len() as u64) < count {
            for _ in 0..ROUNDS {
                locks.iter_mut().for_each(|lock| self.story(lock));
            }
            let now = 10 + locks.iter().map(|lock| lock.now).max().unwrap();
            locks.iter_mut().for_each(|lock| lock.now = now);
            self.something_happens_to_all(&mut locks, now);
        }
        1_000_000 + locks.iter().map(|lock| lock.now).max().unwrap()
    }

    fn story(&mut self, lock: &mut Lock) {
        lock.now += 1 + self.below(5);
        match self.chance.below(100) {
            0..25 => self.holds(lock),
            25..40 => self.is_shared(lock),
            40..65 => self.lapses(lock),
            65..85 => self.queues(lock),
            85..90 => self.waits_long(lock),
            90..94 => self.is_not_heard(lock),
            94..96 => self.release_is_not_heard(lock),
            _ => self.is_deleted(lock),
        }
    }

    /// A grant is checked, extended and requested again, sometimes many times. Other owners are
    /// refused. Then it is released.
    fn holds(&mut self, lock: &mut Lock) {
        let owner = self.somebody(lock);
        self.grant(lock, Op::Try, owner, 1_000);
        let times = if self.chance.one_in(500) { 1_000 } else { self.below(4) };
        for _ in 0..times {
            lock.now += 1 + self.below(10);
            match self.chance.below(4) {
                0 => self.holder(lock, Op::Check, owner, 0),
                // A shorter lease does not shorten the present one.
                1 => self.holder(lock, Op::Try, owner, 1),
                _ => self.holder(lock, Op::Extend, owner, 1_000),
            }
        }
        self.is_refused(lock);
        lock.now += 1;
        self.holder(lock, Op::Release, owner, 0);
        lock.now += 1;
    }

    /// Three owners of a pool hold the lock, one for a shorter time. A fourth waits for a place, and
    /// one comes to tolerate more.
    fn is_shared(&mut self, lock: &mut Lock) {
        let pool: Vec<_> = (0..3).map(|_| self.newcomer()).collect();
        let mut fences = Vec::new();
        for (owner, ttl) in pool.iter().zip([1_000, 1_000, 20]) {
            self.grant(lock, Op::Try, *owner, ttl);
            self.shares(3);
            fences.push(lock.fence);
            lock.now += 1;
        }
        let (waiter, asked, latest) = (self.newcomer(), lock.now, lock.fence);
        lock.now += 19 + self.below(LATE_MILLIS);
        self.grant(lock, Op::Wait, waiter, 1_000);
        self.shares(3);
        self.records.last_mut().unwrap().asked = asked * 1_000;
        fences[2] = lock.fence;
        lock.now += 1;
        let held = lock.fence;
        for (owner, fence) in [pool[0], pool[1], waiter].into_iter().zip(fences) {
            lock.fence = fence;
            if self.chance.one_in(2) {
                self.holder(lock, Op::Try, owner, 1);
                self.shares(0);
            }
            lock.now += 1;
            self.holder(lock, Op::Release, owner, 0);
            lock.now += 1;
        }
        lock.fence = held.max(latest);
    }

    /// Sets the share of the last request.
    fn shares(&mut self, share: u8) {
        self.records.last_mut().unwrap().share = share;
    }

    /// The lease expires, perhaps late, and its former holder comes back.
    fn lapses(&mut self, lock: &mut Lock) {
        let owner = self.somebody(lock);
        let ttl = 2 + self.chance.below(20);
        self.grant(lock, Op::Try, owner, ttl);
        let (begin, fence) = (lock.now, lock.fence);
        self.is_refused(lock);
        lock.now = begin + u64::from(ttl) + self.below(LATE_MILLIS);
        if self.chance.one_in(2) {
            lock.now += 1;
            let op = [Op::Check, Op::Release, Op::Extend][self.chance.below(3) as usize];
            self.tell(lock, (op, Outcome::Refused), owner, fence, 5);
            lock.now += 1;
        }
    }

    /// Two owners wait, are seen, and are granted the lock in turn.
    fn queues(&mut self, lock: &mut Lock) {
        let (owner, one, other) = (self.newcomer(), self.newcomer(), self.newcomer());
        self.grant(lock, Op::Try, owner, 1_000);
        let asked = lock.now + 1;
        lock.now += 3;
        for seen in [one, other] {
            self.tell(lock, (Op::Seen, Outcome::Ok), seen, 0, 0);
        }
        self.is_refused(lock);
        lock.now += 1 + self.below(30);
        self.holder(lock, Op::Release, owner, 0);
        for (waiter, asked) in [(one, asked), (other, asked + 1)] {
            lock.now += 1;
            self.grant(lock, Op::Wait, waiter, 1_000);
            self.records.last_mut().unwrap().asked = asked * 1_000;
            lock.now += 1;
            self.holder(lock, Op::Release, waiter, 0);
        }
        lock.now += 1;
    }

    /// Somebody waits for longer than a lock may be free, sometimes in vain.
    fn waits_long(&mut self, lock: &mut Lock) {
        let (owner, waiter) = (self.newcomer(), self.newcomer());
        self.grant(lock, Op::Try, owner, 1_000);
        let asked = lock.now + 1;
        lock.now += 200 + self.below(200);
        if self.chance.one_in(3) {
            self.tell(lock, (Op::Wait, Outcome::Refused), waiter, 0, 1_000);
            lock.now += 1;
            self.holder(lock, Op::Release, owner, 0);
        } else {
            self.holder(lock, Op::Release, owner, 0);
            lock.now += 1;
            self.grant(lock, Op::Wait, waiter, 10);
            lock.now += 10;
        }
        let wait = self.records.iter_mut().rev().find(|record| record.op == Op::Wait).unwrap();
        wait.asked = asked * 1_000;
        lock.now += 2;
    }

    /// A regular's request is not answered, and may have been granted the lock.
    fn is_not_heard(&mut self, lock: &mut Lock) {
        let owner = LOCKS * REGULARS + lock.number;
        self.tell(lock, (Op::Try, Outcome::Unknown), owner, 0, 5);
        lock.fence += 1;
        self.is_refused(lock);
        lock.now += 10;
        self.grant(lock, Op::Try, owner, 1);
        lock.now += 5;
    }

    fn release_is_not_heard(&mut self, lock: &mut Lock) {
        let owner = self.newcomer();
        self.grant(lock, Op::Try, owner, 1_000);
        lock.now += 2;
        let shown = [0, lock.fence][self.chance.below(2) as usize];
        self.tell(lock, (Op::Release, Outcome::Unknown), owner, shown, 0);
        lock.now += 1;
    }

    fn is_deleted(&mut self, lock: &mut Lock) {
        let owner = self.somebody(lock);
        self.grant(lock, Op::Try, owner, 1_000);
        let fence = lock.fence;
        lock.now += 1 + self.below(20);
        self.tell(lock, (Op::Delete, Outcome::Ok), u32::MAX, 0, 0);
        lock.now += 2;
        self.tell(lock, (Op::Check, Outcome::Refused), owner, fence, 0);
        lock.now += 1;
    }

    fn something_happens_to_all(&mut self, locks: &mut [Lock], now: u64) {
        let span = |from, to| Span { from: from * 1_000, to: to * 1_000 };
        // Every owner waits until this is over, or holds a long lease.
        let kind = self.chance.below(4);
        let (begin, end) = (now + 5, now + 10 + self.below(300));
        match kind {
            0 => {
                let (op, outcome) = (Op::Delete, Outcome::Ok);
                let (asked, told) = (begin * 1_000, end * 1_000);
                let record = record(EVERY_LOCK, u32::MAX, op, outcome);
                self.records.push(Record { asked, told, ..record });
            }
            1 => self.rules.loss.push(span(begin, end)),
            2 => self.rules.forgotten.push(span(begin, end)),
            _ => self.rules.standstill.push(span(now, end)),
        }
        for lock in locks {
            let (owner, waiter) = (self.newcomer(), self.newcomer());
            let ttl = if kind == 3 { 1 } else { 2_000 };
            self.grant(lock, Op::Try, owner, ttl);
            let fence = lock.fence;
            lock.now = if kind == 2 { now + u64::from(ttl) } else { end } + 5;
            if kind < 3 {
                self.tell(lock, (Op::Check, Outcome::Refused), owner, fence, 0);
            }
            lock.now += 1;
            self.grant(lock, Op::Wait, waiter, 1_000);
            self.records.last_mut().unwrap().asked = (now + 2) * 1_000;
            lock.now += 1;
            self.holder(lock, Op::Release, waiter, 0);
            lock.now += 1;
        }
    }

    fn is_refused(&mut self, lock: &Lock) {
        for _ in 0..self.chance.below(3) {
            let owner = self.newcomer();
            self.tell(lock, (Op::Try, Outcome::Refused), owner, 0, 10);
        }
    }

    fn grant(&mut self, lock: &mut Lock, op: Op, owner: u32, ttl: u32) {
        lock.fence += 1 + self.below(2);
        self.holder(lock, op, owner, ttl);
    }

    fn holder(&mut self, lock: &Lock, op: Op, owner: u32, ttl: u32) {
        self.tell(lock, (op, Outcome::Ok), owner, lock.fence, ttl);
    }

    /// Adds a record at the present moment.
    fn tell(
        &mut self,
        lock: &Lock,
        (op, outcome): (Op, Outcome),
        owner: u32,
        fence: u64,
        ttl: u32,
    ) {
        let (asked, told) = (self.below(400), self.below(400));
        self.records.push(Record {
            asked: lock.now * 1_000 - asked,
            told: lock.now * 1_000 + told,
            fence,
            ttl,
            ..record(lock.number, owner, op, outcome)
        });
    }

    fn somebody(&mut self, lock: &Lock) -> u32 {
        if self.chance.one_in(4) {
            self.newcomer()
        } else {
            lock.number * REGULARS + self.chance.below(REGULARS)
        }
    }

    fn newcomer(&mut self) -> u32 {
        self.next_owner += 1;
        self.next_owner
    }

    fn below(&mut self, end: u32) -> u64 {
        self.chance.below(end).into()
    }
}

fn record(lock: u32, owner: u32, op: Op, outcome: Outcome) -> Record {
    Record { owner, lock, op, outcome, ..invent::record(0, 0) }
}
