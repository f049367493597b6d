//! L4: only owners that wait are in a queue.
//!
//! ```text
//!   wait      asked ├─────────────────┤ told        in the queue at some time in between
//!   look                           asked ├───┤ told
//! ```
//!
//! The place of a ticket, or of an unanswered request, may outlast `told`. So such a place counts for ever.

use super::{Law, Rules, Violation};
use crate::record::{Op, Outcome, Record};
use std::collections::{HashMap, HashSet};

/// An owner's place in the queue of a lock.
struct Place {
    asked: u64,
    /// The latest moment at which the owner left the queue, after this wait or an earlier one, and the record of that
    /// wait.
    left: u64,
    record: u32,
}

impl Place {
    fn of(wait: &Record, record: u32) -> Self {
        let may_stay = wait.is_ticket || wait.outcome == Outcome::Unknown;
        Self { asked: wait.asked, left: if may_stay { u64::MAX } else { wait.told }, record }
    }
}

pub(super) fn check_places(records: &[Record], rules: &Rules, wrong: &mut Vec<Violation>) {
    let looks = || (0..).zip(records).filter(|(_, record)| record.op == Op::Seen);
    let mut places = places(records, looks().map(|(_, look)| (look.lock, look.owner)));
    let mut strangers = HashSet::new();
    for (index, look) in looks() {
        let of_owner = places.entry((look.lock, look.owner)).or_default();
        let asked = of_owner.partition_point(|place| place.asked <= look.told);
        let last = of_owner[..asked].last();
        let is_excused = match last {
            // A server that stands still or is replaced may not have noticed that somebody has left.
            Some(last) => last.left >= look.asked || rules.stands_still(look.asked, look.told),
            None => rules.is_lossy(look.asked, look.told),
        };
        let mut is_new = || strangers.insert((look.lock, look.owner));
        if !is_excused && is_new() && asks(records, look.owner) {
            let what = match last {
                Some(_) => "was seen waiting, after it had been answered",
                None => "was seen waiting, and has not asked for the lock",
            };
            let what = format!("owner {} {what}", look.owner);
            let proof = last.map(|last| last.record).into_iter().chain([index]).collect();
            wrong.push(Violation { law: Law::L4, lock: look.lock, what, proof });
        }
    }
}

/// The places of the owners that were seen, in the order of requests.
fn places(
    records: &[Record],
    seen: impl Iterator<Item = (u32, u32)>,
) -> HashMap<(u32, u32), Vec<Place>> {
    let mut places: HashMap<_, _> = seen.map(|of| (of, Vec::new())).collect();
    if places.is_empty() {
        return places;
    }
    for (index, wait) in (0..).zip(records).filter(|(_, record)| record.op == Op::Wait) {
        if let Some(places) = places.get_mut(&(wait.lock, wait.owner)) {
            places.push(Place::of(wait, index));
        }
    }
    for places in places.values_mut() {
        places.sort_unstable_by_key(|place| place.asked);
        for index in 1..places.len() {
            let Place { left, record, .. } = places[index - 1];
            if left > places[index].left {
                (places[index].left, places[index].record) = (left, record);
            }
        }
    }
    places
}

/// Whether this owner asks for anything in this history. Otherwise it may have asked in an earlier history.
fn asks(records: &[Record], owner: u32) -> bool {
    records.iter().any(|record| record.owner == owner && record.op != Op::Seen)
}
