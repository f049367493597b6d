//! The slow and obvious checker: tries every order of the operations, and every moment for each.
//!
//! A lock as a user would describe it, and a search for one way in which it could have answered so (the algorithm of Wing
//! and Gong, with the clock as part of the state).

use crate::record::{Op, Outcome, Record};
use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Holder {
    owner: u32,
    /// 0: nobody was told yet.
    fence: u64,
    deadline: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    done: u32,
    now: i64,
    holder: Option<Holder>,
    last: u64,
}

struct Search<'r> {
    records: &'r [Record],
    late: i64,
    seen: HashSet<State>,
}

/// Whether one lock can have answered so. Leases end at their deadline, or up to `late` milliseconds after it.
pub(super) fn can_be(records: &[Record], late: i64) -> bool {
    assert!(records.len() <= 32);
    let mut search = Search { records, late, seen: HashSet::new() };
    search.goes_on(State { done: 0, now: 0, holder: None, last: 0 })
}

impl Search<'_> {
    fn goes_on(&mut self, state: State) -> bool {
        let is_left = |index: usize| state.done & 1 << index == 0;
        let must =
            |index: &usize| is_left(*index) && self.records[*index].outcome != Outcome::Unknown;
        let Some(end) = (0..self.records.len()).filter(must).map(|index| self.told(index)).min()
        else {
            return true;
        };
        if !self.seen.insert(state) {
            return false;
        }
        for index in (0..self.records.len()).filter(|index| is_left(*index)) {
            let record = self.records[index];
            if !self.is_next_of_its_owner(index, state.done) {
                continue;
            }
            for now in state.now.max(record.asked_millis())..=end {
                for holder in self.who_may_hold(state.holder, now) {
                    let here = State { now, holder, done: state.done | 1 << index, ..state };
                    if let Some(next) = answer(here, &record)
                        && self.goes_on(next)
                    {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn told(&self, index: usize) -> i64 {
        self.records[index].told_millis()
    }

    fn is_next_of_its_owner(&self, index: usize, done: u32) -> bool {
        let record = &self.records[index];
        record.op == Op::Delete
            || (0..index).all(|earlier| {
                let other = &self.records[earlier];
                let waits = other.owner != record.owner
                    || other.op == Op::Delete
                    || other.outcome == Outcome::Unknown;
                waits || done & 1 << earlier != 0
            })
    }

    fn who_may_hold(&self, holder: Option<Holder>, now: i64) -> Vec<Option<Holder>> {
        let Some(held) = holder else { return vec![None] };
        let mut may = Vec::new();
        if now < held.deadline + self.late {
            may.push(holder);
        }
        if now >= held.deadline {
            may.push(None);
        }
        may
    }
}

/// What the lock is after this answer; `None` if it would not have given it.
fn answer(state: State, record: &Record) -> Option<State> {
    let State { now, holder, last, .. } = state;
    let deadline = now + i64::from(record.ttl);
    let mine = holder.filter(|holder| holder.owner == record.owner);
    // Whose fence is not known yet may have this one.
    let matches = |held: &Holder| match (record.fence, held.fence) {
        (0, _) => true,
        (fence, 0) => fence > last,
        (fence, known) => fence == known,
    };
    let proven = mine.filter(matches);
    let held = |fence, deadline| {
        Some(State {
            holder: Some(Holder { owner: record.owner, fence, deadline }),
            last: last.max(fence),
            ..state
        })
    };
    let known = |held: Holder| if held.fence == 0 { record.fence } else { held.fence };
    match (record.op, record.outcome) {
        (Op::Delete, _) => Some(State { holder: None, ..state }),
        (Op::Seen, _) => Some(state),
        (Op::Try | Op::Wait, Outcome::Ok) => match (holder, proven) {
            (None, _) => (record.fence > last).then(|| held(record.fence, deadline)).flatten(),
            (_, Some(mine)) => held(known(mine), mine.deadline.max(deadline)),
            _ => None,
        },
        // Others may be before it: a refusal of one who does not hold the lock promises nothing.
        (Op::Try | Op::Wait, Outcome::Refused) => mine.is_none().then_some(state),
        (Op::Try | Op::Wait, Outcome::Unknown) => match (holder, mine) {
            (None, _) => held(0, deadline),
            (_, Some(mine)) => held(mine.fence, mine.deadline.max(deadline)),
            _ => None,
        },
        (Op::Extend, Outcome::Ok) => proven.and_then(|mine| held(known(mine), deadline)),
        (Op::Extend, Outcome::Unknown) => {
            proven.filter(|mine| mine.fence != 0).and_then(|mine| held(mine.fence, deadline))
        }
        (Op::Release, Outcome::Ok) => {
            proven.map(|mine| State { holder: None, last: last.max(known(mine)), ..state })
        }
        (Op::Release, Outcome::Unknown) => {
            proven.filter(|mine| mine.fence != 0).map(|_| State { holder: None, ..state })
        }
        (Op::Check, Outcome::Ok) => proven.and_then(|mine| held(known(mine), mine.deadline)),
        (Op::Check, Outcome::Unknown) => Some(state),
        // Refused, and rightly unless it is certain that this very grant is in force.
        (_, Outcome::Refused) => match mine {
            Some(mine) if record.fence == 0 || record.fence == mine.fence => None,
            _ => Some(state),
        },
    }
}
