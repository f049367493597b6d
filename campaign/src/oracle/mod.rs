//! Compares the checker with an oracle, a slow and obvious search, on random small histories that
//! are right or wrong.
//!
//! `LEASEHOLD_TRUST=1000000` tries that many histories, and `LEASEHOLD_SEED` chooses others.

mod by_hand;
mod chance;
mod invent;
mod options_by_hand;
mod scale;
mod search;
mod shared_by_hand;

use crate::checker::{History, Rules};
use crate::record::{Op, Outcome, Record};
use chance::Chance;
use std::env;

/// What a history contains that may explain replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Every reply arrived, and nobody deleted anything.
    Plain,
    /// Somebody deleted the lock within a span.
    Deleted,
    /// Some replies were lost.
    Unheard,
    /// Leases were forgotten. May contain the above as well.
    Forgotten,
    /// Data was lost. May contain the above as well.
    Lost,
}

#[derive(Debug, Default)]
struct Tally {
    right: u64,
    wrong: u64,
    /// Wrong histories that the checker calls right.
    missed: u64,
    /// Right histories that the checker calls wrong.
    doubted: u64,
}

fn kind(records: &[Record], rules: &Rules) -> Kind {
    if !rules.loss.is_empty() {
        Kind::Lost
    } else if !rules.forgotten.is_empty() {
        Kind::Forgotten
    } else if records.iter().any(|record| record.outcome == Outcome::Unknown) {
        Kind::Unheard
    } else if records.iter().any(|record| record.op == Op::Delete) {
        Kind::Deleted
    } else {
        Kind::Plain
    }
}

#[test]
fn it_agrees_with_a_search_of_all_orders_on_random_histories() {
    let kinds = [(Kind::Plain, 0), (Kind::Deleted, 20), (Kind::Unheard, 20)];
    compare(invent::history, invent::EXCLUSIVE, &kinds);
}

#[test]
fn it_agrees_with_that_search_where_several_hold_a_lock() {
    let kinds = [(Kind::Plain, 0), (Kind::Deleted, 20), (Kind::Unheard, 20)];
    compare(invent::history, invent::SHARED, &kinds);
}

#[test]
fn it_agrees_with_that_search_where_data_was_lost_and_leases_forgotten() {
    // The checker believes any claim about data that may have been lost, even if it was not lost.
    let kinds = [(Kind::Forgotten, 20), (Kind::Lost, 200)];
    compare(invent::disturbed, invent::EXCLUSIVE, &kinds);
}

#[test]
fn it_agrees_with_that_search_where_that_happened_to_several_holders() {
    let kinds = [(Kind::Forgotten, 20), (Kind::Lost, 200)];
    compare(invent::disturbed, invent::SHARED, &kinds);
}

#[test]
fn what_a_lock_answered_is_right_however_long_it_went_on() {
    for round in 0..20_000 {
        let shares = [invent::EXCLUSIVE, invent::SHARED][round as usize % 2];
        let (records, rules) = invent::answered(&mut Chance::new(round), shares);
        let history = History { records, ..History::default() };
        let violations = history.check(&rules).violations;
        assert!(
            violations.is_empty(),
            "round {round}, {rules:?}: {violations:?}\n{}",
            shown(&history.records)
        );
    }
}

type Invent = fn(&mut Chance, &'static [u8]) -> (Vec<Record>, Rules);

/// For each kind, the number of a thousand wrong histories that the checker may call right.
fn compare(invent: Invent, shares: &'static [u8], kinds: &[(Kind, u64)]) {
    let number = |name: &str| env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let count = number("LEASEHOLD_TRUST").unwrap_or(50_000);
    let seed = number("LEASEHOLD_SEED").unwrap_or(1);
    let mut tallies = [(); 5].map(|()| Tally::default());
    let mut complaints = Vec::new();
    for round in 0..count {
        let mut chance = Chance::new(seed.wrapping_add(round));
        let (records, rules) = invent(&mut chance, shares);
        let right = search::can_be(&records, &rules);
        let kind = kind(&records, &rules);
        let history = History { records, ..History::default() };
        let verdict = history.check(&rules);
        let tally = &mut tallies[kind as usize];
        *if right { &mut tally.right } else { &mut tally.wrong } += 1;
        let says = verdict.violations.is_empty();
        tally.missed += u64::from(!right && says);
        tally.doubted += u64::from(right && !says);
        let believed = !right && says && kinds.contains(&(kind, 0));
        if right && !says || believed {
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
    for (kind, most) in kinds {
        let tally = &tallies[*kind as usize];
        println!("{kind:?}: {tally:?}");
        let all = tally.right + tally.wrong;
        assert!(
            tally.right * 10 > all && tally.wrong * 12 > all,
            "hardly any of one sort: {tally:?}"
        );
        assert!(
            tally.missed * 1_000 <= tally.wrong * most,
            "too much is believed: {kind:?}: {tally:?}"
        );
    }
}

fn shown(records: &[Record]) -> String {
    let line = |record: &Record| {
        let Record { asked, told, fence, ttl, owner, op, outcome, share, .. } = record;
        format!(
            "{:>4} ..{:>4}  {owner:>2} {op:?} {outcome:?} fence {fence} ttl {ttl} share {share}\n",
            asked / 1_000,
            told / 1_000
        )
    };
    records.iter().map(line).collect()
}
