//! Whether the checker can be trusted: on random small histories, right ones and wrong ones, it must say what the slow,
//! obvious search says.
//!
//! `LEASEHOLD_TRUST=1000000` tries so many; `LEASEHOLD_SEED` chooses others.

mod by_hand;
mod chance;
mod invent;
mod search;

use crate::checker::{History, Rules};
use crate::record::{Op, Outcome, Record};
use chance::Chance;
use std::env;

/// What a history contains that leaves room for explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Every reply arrived, nobody deleted anything.
    Plain,
    /// Somebody deleted the lock within some span.
    Deleted,
    /// Some replies were lost.
    Unheard,
}

#[derive(Debug, Default)]
struct Tally {
    right: u64,
    wrong: u64,
    /// Wrong, and not found to be.
    missed: u64,
    /// Right, and called wrong.
    doubted: u64,
}

fn kind(records: &[Record]) -> Kind {
    if records.iter().any(|record| record.outcome == Outcome::Unknown) {
        Kind::Unheard
    } else if records.iter().any(|record| record.op == Op::Delete) {
        Kind::Deleted
    } else {
        Kind::Plain
    }
}

#[test]
fn it_agrees_with_a_search_of_all_orders_on_random_histories() {
    let number = |name: &str| env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let count = number("LEASEHOLD_TRUST").unwrap_or(50_000);
    let seed = number("LEASEHOLD_SEED").unwrap_or(1);
    let mut tallies = [(); 3].map(|()| Tally::default());
    let mut complaints = Vec::new();
    for round in 0..count {
        let mut chance = Chance::new(seed.wrapping_add(round));
        let records = invent::history(&mut chance);
        let rules = Rules { late_millis: i64::from(chance.below(2)), ..Rules::default() };
        let right = search::can_be(&records, rules.late_millis);
        let kind = kind(&records);
        let history = History { records, ..History::default() };
        let verdict = history.check(&rules);
        let tally = &mut tallies[kind as usize];
        *if right { &mut tally.right } else { &mut tally.wrong } += 1;
        let says = verdict.violations.is_empty();
        tally.missed += u64::from(!right && says);
        tally.doubted += u64::from(right && !says);
        if (right && !says) || (!right && says && kind == Kind::Plain) {
            let what = if right { "it can be, and is called wrong" } else { "it cannot be" };
            complaints.push(format!(
                "seed {seed}, round {round}, {rules:?}: {what}: {:?}\n{}",
                verdict.violations,
                shown(&history.records)
            ));
        }
    }
    println!("{count} histories from seed {seed}");
    if let Some(first) = complaints.iter().min_by_key(|complaint| complaint.lines().count()) {
        panic!("{tallies:?}\n{} times they differ; the shortest:\n{first}", complaints.len());
    }
    for (kind, tally) in [Kind::Plain, Kind::Deleted, Kind::Unheard].iter().zip(&tallies) {
        println!("{kind:?}: {tally:?}");
        let all = tally.right + tally.wrong;
        assert!(
            tally.right * 10 > all && tally.wrong * 12 > all,
            "hardly any of one sort: {tally:?}"
        );
        assert!(tally.missed * 50 < tally.wrong, "too much is believed: {kind:?}: {tally:?}");
    }
}

fn shown(records: &[Record]) -> String {
    let line = |record: &Record| {
        let Record { asked, told, fence, ttl, owner, op, outcome, .. } = record;
        format!(
            "{:>4} ..{:>4}  {owner:>2} {op:?} {outcome:?} fence {fence} ttl {ttl}\n",
            asked / 1_000,
            told / 1_000
        )
    };
    records.iter().map(line).collect()
}
