//! Requests for several locks: one fence grants all of them, or none is granted.

use super::deletes::Deletes;
use super::{Delete, Law, Violation};
use crate::record::{EVERY_LOCK, Op, Outcome, Record};
use std::collections::{HashMap, HashSet};

/// The records of each request for several locks. They are adjacent.
fn sets(records: &[Record]) -> impl Iterator<Item = (usize, &[Record])> {
    let mut at = 0;
    let sets = records.chunk_by(|one, next| one.set != 0 && one.set == next.set);
    let placed = sets.map(move |set| {
        at += set.len();
        (at - set.len(), set)
    });
    placed.filter(|(_, set)| set[0].set != 0)
}

/// L1: no lock of several is granted alone, and all are granted by one fence.
pub(super) fn check_sets(records: &[Record], wrong: &mut Vec<Violation>) {
    for (at, set) in sets(records) {
        let first = &set[0];
        let differs = |other: &Record| {
            let is_granted = [first.outcome, other.outcome].contains(&Outcome::Ok);
            let (one, other) = ((first.outcome, first.fence), (other.outcome, other.fence));
            is_granted && first.is_acquire() && one != other
        };
        if let Some(other) = set.iter().position(differs) {
            let what = format!(
                "of several locks, {} and {} were not granted by one fence",
                first.lock, set[other].lock
            );
            let proof = [at, at + other].map(|index| u32::try_from(index).unwrap());
            wrong.push(Violation { law: Law::L1, lock: first.lock, what, proof: proof.into() });
        }
    }
}

/// The numbers of the ticket requests for several locks of which somebody deleted one during the wait. Their turn may
/// have come before the deletion. Then they held only the other locks, and asked for another place.
pub(super) fn torn_tickets(records: &[Record]) -> HashSet<u32> {
    let mut deletes: HashMap<u32, Vec<Delete>> = HashMap::new();
    for (index, record) in (0..).zip(records).filter(|(_, record)| record.op == Op::Delete) {
        deletes.entry(record.lock).or_default().push(Delete::by(record, index));
    }
    for of_lock in deletes.values_mut() {
        of_lock.sort_unstable_by_key(|delete| (delete.from, delete.to));
    }
    let deletes: HashMap<_, _> =
        deletes.iter().map(|(lock, of_lock)| (*lock, Deletes::new(of_lock))).collect();
    let is_torn = |wait: &Record| {
        let mut of_wait = [wait.lock, EVERY_LOCK].into_iter().filter_map(|lock| deletes.get(&lock));
        of_wait.any(|of_lock| of_lock.any_within(wait.asked_millis(), wait.told_millis()))
    };
    let tickets = sets(records).filter(|(_, set)| set[0].is_ticket);
    tickets.filter(|(_, set)| set.iter().any(is_torn)).map(|(_, set)| set[0].set).collect()
}

/// The locks that somebody waits for together with others: each may be kept free until all are.
pub(super) fn kept(records: &[Record]) -> HashSet<u32> {
    let waits = sets(records).filter(|(_, set)| set[0].op == Op::Wait);
    waits.flat_map(|(_, set)| set).map(|record| record.lock).collect()
}
