//! The oracle: a slow and obvious search that tries every order of the operations, and every moment
//! for each.
//!
//! It models a lock as a user would describe it, and looks for one way in which the lock could have
//! given the replies. This is the algorithm of Wing and Gong, with the clock as part of the state.

use crate::checker::{Rules, Span};
use crate::record::{Op, Outcome, Record, millis};
use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Hold {
    owner: u32,
    /// The set of operations done when it was granted, which identifies this hold among the holds
    /// of its owner.
    since: u32,
    /// 0 until its owner is told.
    fence: u64,
    /// An untold fence is between these.
    above: u64,
    below: u64,
    deadline: i64,
    /// How many holders it tolerates.
    tolerance: u32,
    /// The server has forgotten the lease. As long as it would have lasted, the server grants the
    /// lock to nobody whom this hold does not tolerate.
    is_forgotten: bool,
}

/// In the order of their grants.
type Holds = Vec<Hold>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: u32,
    now: i64,
    holds: Holds,
    /// The holds before the last change, if they can matter.
    former: Holds,
    last: u64,
}

struct Search<'r> {
    records: &'r [Record],
    rules: &'r Rules,
    seen: HashSet<State>,
}

/// Whether one lock can have given these replies. Leases end at their deadline, or up to
/// `late_millis` later. If data is lost, the lock is free or as it was before. If leases are
/// forgotten, holders may lose their holds, but no other owner gets the lock any earlier.
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

    /// Each hold ends at its deadline, or a little later.
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
    /// Fences that were told by now also tell something about former holds.
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

    /// Grants the lock if it admits the owner. The new hold replaces the owner's present one.
    /// `fence` is 0 if the reply was lost.
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

    /// Notes the fence of this hold, which may be told for the first time.
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

/// The lock after this reply, or `None` if the lock would not have given it.
fn answer(mut state: State, record: &Record) -> Option<State> {
    let deadline = state.now + i64::from(record.ttl);
    let is_mine = |hold: &Hold| hold.owner == record.owner && !hold.is_forgotten;
    let mine = state.holds.iter().position(is_mine);
    // A hold with an untold fence may have this one.
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
        // The same grant again: the later deadline, and the new share.
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
        // A refusal is right if the owner does not hold the lock, or asks to tolerate fewer: other
        // requests may be ahead in the queue.
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
        // A refusal is right unless this very grant is certainly in force.
        (_, Outcome::Refused) => match mine {
            Some(mine) if [0, state.holds[mine].fence].contains(&record.fence) => None,
            _ => Some(state),
        },
    }
}
