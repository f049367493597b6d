//! The oracle: a slow and obvious search that tries every order of the operations, and every moment
//! for each.
//!
//! It has a lock as a user would describe it, and looks for one way in which the lock could have
//! given the replies. That is the algorithm of Wing and Gong, with the clock as part of the state.

use crate::checker::{Rules, Span};
use crate::record::{Op, Outcome, Record, millis};
use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Holder {
    owner: u32,
    /// 0 until somebody is told.
    fence: u64,
    deadline: i64,
    /// The server has forgotten the lease, but grants the lock to nobody else while it would have
    /// lasted.
    is_forgotten: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    done: u32,
    now: i64,
    holder: Option<Holder>,
    /// The holder before the last change, if that can matter.
    former: Option<Holder>,
    last: u64,
}

struct Search<'r> {
    records: &'r [Record],
    rules: &'r Rules,
    seen: HashSet<State>,
}

/// Whether one lock can have given these replies. Leases end at their deadline, or up to
/// `late_millis` later. Where data is lost, the lock is free or as it was before. Where leases are
/// forgotten, only its holder is.
pub(super) fn can_be(records: &[Record], rules: &Rules) -> bool {
    assert!(records.len() <= 32);
    let mut search = Search { records, rules, seen: HashSet::new() };
    search.goes_on(State { done: 0, now: 0, holder: None, former: None, last: 0 })
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
                for holder in self.who_may_hold(&state, now) {
                    let here = State { now, holder, done: state.done | 1 << index, ..state };
                    let Some(mut next) = answer(here, &record) else { continue };
                    if next.holder != holder && !self.rules.loss.is_empty() {
                        next.former = holder;
                    }
                    if self.goes_on(next) {
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

    fn who_may_hold(&self, state: &State, now: i64) -> Vec<Option<Holder>> {
        let meanwhile = |spans: &[Span]| {
            spans.iter().any(|span| millis(span.from) <= now && millis(span.to) >= state.now)
        };
        let mut before = vec![state.holder];
        if meanwhile(&self.rules.loss) {
            before.extend([None, state.former]);
        }
        if meanwhile(&self.rules.forgotten) {
            before.push(state.holder.map(|holder| Holder { is_forgotten: true, ..holder }));
        }
        let mut may = Vec::new();
        for holder in before {
            let deadline = holder.map_or(i64::MIN, |holder| holder.deadline);
            if holder.is_some() && now < deadline + self.rules.late_millis {
                may.push(holder);
            }
            if now >= deadline {
                may.push(None);
            }
        }
        may
    }
}

/// The lock after this reply, or `None` if it would not have given it.
fn answer(state: State, record: &Record) -> Option<State> {
    let State { now, holder, last, .. } = state;
    let deadline = now + i64::from(record.ttl);
    let mine = holder.filter(|holder| holder.owner == record.owner && !holder.is_forgotten);
    // A holder whose fence is not known yet may have this one.
    let matches = |held: &Holder| match (record.fence, held.fence) {
        (0, _) => true,
        (fence, 0) => fence > last,
        (fence, known) => fence == known,
    };
    let proven = mine.filter(matches);
    let held = |fence, deadline| {
        Some(State {
            holder: Some(Holder { owner: record.owner, fence, deadline, is_forgotten: false }),
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
        // Other operations may come first: a refusal of an owner that does not hold the lock
        // promises nothing.
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
        // A refusal is right unless it is certain that this very grant is in force.
        (_, Outcome::Refused) => match mine {
            Some(mine) if record.fence == 0 || record.fence == mine.fence => None,
            _ => Some(state),
        },
    }
}
