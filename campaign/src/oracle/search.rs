//! The oracle: a slow and obvious search that tries every order of the operations, and every moment
//! for each.
//!
//! It has a lock as a user would describe it, and looks for one way in which the lock could have
//! given the replies. That is the algorithm of Wing and Gong, with the clock as part of the state.

use crate::checker::{Rules, Span};
use crate::record::{Op, Outcome, Record, millis};
use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Hold {
    owner: u32,
    /// What had been done when it was granted. No other hold of its owner has that.
    since: u32,
    /// 0 until somebody is told.
    fence: u64,
    /// A fence that nobody was told is between these.
    above: u64,
    below: u64,
    deadline: i64,
    /// How many holders it tolerates.
    tolerance: u32,
    /// The server has forgotten the lease, but grants the lock to nobody whom it does not tolerate
    /// while it would have lasted.
    is_forgotten: bool,
}

/// In the order in which they were granted.
type Holds = Vec<Hold>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: u32,
    now: i64,
    holds: Holds,
    /// The holds before the last change, if that can matter.
    former: Holds,
    last: u64,
}

struct Search<'r> {
    records: &'r [Record],
    rules: &'r Rules,
    seen: HashSet<State>,
}

/// Whether one lock can have given these replies. Leases end at their deadline, or up to
/// `late_millis` later. Where data is lost, the lock is free or as it was before. Where leases are
/// forgotten, only its holders are.
pub(super) fn can_be(records: &[Record], rules: &Rules) -> bool {
    assert!(records.len() <= 32);
    let mut search = Search { records, rules, seen: HashSet::new() };
    search.goes_on(State { done: 0, now: 0, holds: Vec::new(), former: Vec::new(), last: 0 })
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
        if !self.seen.insert(state.clone()) {
            return false;
        }
        for index in (0..self.records.len()).filter(|index| is_left(*index)) {
            let record = self.records[index];
            if !self.is_next_of_its_owner(index, state.done) {
                continue;
            }
            for now in state.now.max(record.asked_millis())..=end {
                for holds in self.who_may_hold(&state, now) {
                    let (done, former) = (state.done | 1 << index, state.former.clone());
                    let here = State { now, holds: holds.clone(), done, former, last: state.last };
                    let Some(mut next) = answer(here, &record) else { continue };
                    if next.holds != holds && !self.rules.loss.is_empty() {
                        next.former = holds;
                        next.knows_of_former(state.last);
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

    fn who_may_hold(&self, state: &State, now: i64) -> Vec<Holds> {
        let meanwhile = |spans: &[Span]| {
            spans.iter().any(|span| millis(span.from) <= now && millis(span.to) >= state.now)
        };
        let mut before = vec![state.holds.clone()];
        if meanwhile(&self.rules.loss) {
            before.extend([Vec::new(), state.former.clone()]);
        }
        if meanwhile(&self.rules.forgotten) {
            let forgotten = |hold: &Hold| Hold { is_forgotten: true, ..*hold };
            before.push(state.holds.iter().map(forgotten).collect());
        }
        before.into_iter().flat_map(|holds| self.who_is_left(&holds, now)).collect()
    }

    /// Each hold ends at its deadline, or somewhat later.
    fn who_is_left(&self, holds: &[Hold], now: i64) -> Vec<Holds> {
        let mut may = vec![Vec::new()];
        for hold in holds {
            let with = may.clone().into_iter().map(|left| [left, vec![*hold]].concat());
            let with = with.filter(|_| now < hold.deadline + self.rules.late_millis);
            let mut next: Vec<_> = with.collect();
            if now >= hold.deadline {
                next.extend(may);
            }
            may = next;
        }
        may
    }
}

impl State {
    /// What was told of fences by now also holds for those that were not told.
    fn knows_of_former(&mut self, last: u64) {
        for former in self.former.iter_mut().filter(|former| former.fence == 0) {
            let is_it = |hold: &&Hold| (hold.owner, hold.since) == (former.owner, former.since);
            if let Some(it) = self.holds.iter().find(is_it) {
                (former.fence, former.above, former.below) = (it.fence, it.above, it.below);
            } else if self.last > last && self.holds.last().is_some_and(|new| new.above == last) {
                former.below = former.below.min(self.last);
            }
        }
    }

    /// One who is admitted gets a hold in place of the one that it has, if it has one. The fence is
    /// 0 if nobody is told.
    fn granted(mut self, record: &Record, fence: u64, mine: Option<usize>) -> Option<Self> {
        let is_forgotten = |hold: &Hold| hold.is_forgotten && hold.owner == record.owner;
        let others = || self.holds.iter().enumerate().filter(|(index, _)| Some(*index) != mine);
        let tolerances = others().map(|(_, hold)| hold.tolerance);
        let tolerated = tolerances.fold(record.tolerance(), u32::min);
        let admitted =
            others().count() < tolerated as usize && !self.holds.iter().any(is_forgotten);
        if !admitted || fence != 0 && fence <= self.last {
            return None;
        }
        if let Some(mine) = mine {
            self.holds.remove(mine);
        }
        for hold in self.holds.iter_mut().filter(|hold| hold.fence == 0 && fence != 0) {
            hold.below = hold.below.min(fence);
        }
        self.holds.push(Hold {
            owner: record.owner,
            since: self.done,
            fence,
            above: self.last,
            below: u64::MAX,
            deadline: self.now + i64::from(record.ttl),
            tolerance: record.tolerance(),
            is_forgotten: false,
        });
        self.last = self.last.max(fence);
        Some(self)
    }

    /// This hold has this fence, which is told perhaps for the first time.
    fn known(mut self, mine: usize, fence: u64) -> Self {
        if self.holds[mine].fence == 0 {
            self.holds[mine].fence = fence;
            for (index, hold) in self.holds.iter_mut().enumerate() {
                if index < mine {
                    hold.below = hold.below.min(fence);
                } else {
                    hold.above = hold.above.max(fence);
                }
            }
        }
        self.last = self.last.max(fence);
        self
    }
}

/// The lock after this reply, or `None` if it would not have given it.
fn answer(mut state: State, record: &Record) -> Option<State> {
    let deadline = state.now + i64::from(record.ttl);
    let is_mine = |hold: &Hold| hold.owner == record.owner && !hold.is_forgotten;
    let mine = state.holds.iter().position(is_mine);
    // A hold whose fence is not known yet may have this one.
    let matches = |mine: &usize| match (record.fence, state.holds[*mine].fence) {
        (0, _) => true,
        (fence, 0) => (state.holds[*mine].above + 1..state.holds[*mine].below).contains(&fence),
        (fence, known) => fence == known,
    };
    let proven = mine.filter(matches);
    let is_known = |mine: &usize| state.holds[*mine].fence != 0;
    let tolerates_no_more = |mine: &usize| state.holds[*mine].tolerance <= record.tolerance();
    let fence_of = |mine: usize| match state.holds[mine].fence {
        0 => record.fence,
        known => known,
    };
    match (record.op, record.outcome) {
        (_, Outcome::Failed | Outcome::Over) | (Op::Seen | Op::Closed, _) => Some(state),
        (Op::Delete, _) => Some(State { holds: Vec::new(), ..state }),
        // The same grant again: the later lease, and what it tolerates now.
        (Op::Try | Op::Wait, Outcome::Ok | Outcome::Unknown)
            if mine.is_some_and(|mine| tolerates_no_more(&mine)) =>
        {
            let again = if record.outcome == Outcome::Ok { proven? } else { mine? };
            if record.outcome == Outcome::Ok {
                let fence = fence_of(again);
                state = state.known(again, fence);
            }
            let hold = &mut state.holds[again];
            hold.deadline = hold.deadline.max(deadline);
            hold.tolerance = record.tolerance();
            Some(state)
        }
        (Op::Try | Op::Wait, Outcome::Ok) => state.granted(record, record.fence, mine),
        (Op::Try | Op::Wait, Outcome::Unknown) => state.granted(record, 0, mine),
        // Other operations may come first: a refusal of an owner that does not hold the lock, or
        // that is to tolerate fewer, promises nothing.
        (Op::Try | Op::Wait, Outcome::Refused) => {
            mine.is_none_or(|mine| !tolerates_no_more(&mine)).then_some(state)
        }
        (Op::Extend | Op::Release | Op::Check, Outcome::Ok) => {
            let (mine, fence) = (proven?, fence_of(proven?));
            state = state.known(mine, fence);
            match record.op {
                Op::Extend => state.holds[mine].deadline = deadline,
                Op::Release => drop(state.holds.remove(mine)),
                _ => {}
            }
            Some(state)
        }
        (Op::Extend, Outcome::Unknown) => {
            let mine = proven.filter(is_known)?;
            state.holds[mine].deadline = deadline;
            Some(state)
        }
        (Op::Release, Outcome::Unknown) => {
            let mine = proven.filter(is_known)?;
            state.holds.remove(mine);
            Some(state)
        }
        (Op::Check, Outcome::Unknown) => Some(state),
        // A refusal is right unless it is certain that this very grant is in force.
        (_, Outcome::Refused) => match mine {
            Some(mine) if [0, state.holds[mine].fence].contains(&record.fence) => None,
            _ => Some(state),
        },
    }
}
