//! The slow and obvious checker: tries every order of the operations, and every moment for each.
//!
//! A lock as a user would describe it, and a search for one way in which it could have answered so (the algorithm of Wing
//! and Gong, with the clock as part of the state).

use crate::checker::{Rules, Span};
use crate::record::{Op, Outcome, Record, millis};
use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Holder {
    owner: u32,
    /// 0: nobody was told yet.
    fence: u64,
    deadline: i64,
    /// The server does not know of it any more, but grants the lock to nobody else as long as it would have lasted.
    is_forgotten: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    done: u32,
    now: i64,
    holder: Option<Holder>,
    /// Who held it before that changed last, if that can ever matter.
    former: Option<Holder>,
    last: u64,
}

struct Search<'r> {
    records: &'r [Record],
    rules: &'r Rules,
    seen: HashSet<State>,
}

/// Whether one lock can have answered so. Leases end at their deadline, or up to `late_millis` after it. Where data is
/// lost, the lock is free or as it was before; where leases are forgotten, its holder is.
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

/// What the lock is after this answer; `None` if it would not have given it.
fn answer(state: State, record: &Record) -> Option<State> {
    let State { now, holder, last, .. } = state;
    let deadline = now + i64::from(record.ttl);
    let mine = holder.filter(|holder| holder.owner == record.owner && !holder.is_forgotten);
    // Whose fence is not known yet may have this one.
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
