//! Runs a few operations of each section on a real server, to see that the benchmark still works.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a test stops at the first surprise"
)]

#[allow(dead_code, reason = "the benchmark itself uses the rest of it")]
mod bench;

use bench::order::{Section, overtakings};
use bench::report::Report;
use bench::statistics::Spread;
use bench::{Effort, SECTIONS};
use testkit::is_older_than;

/// Runs a section, which checks every reply itself. Returns the rows that it wrote.
fn rows(name: &str) -> Vec<String> {
    let (_, run) = SECTIONS.iter().find(|(section, _)| *section == name).unwrap();
    let mut report = Report::begun(Effort::Smoke);
    run(Effort::Smoke, &mut report);
    assert!(!report.page.contains("NaN") && !report.page.contains("inf"), "{}", report.page);
    let (_, table) = report.page.split_once(&format!("## {name}\n\n")).unwrap();
    // Under the names of the columns and a rule.
    table.lines().take_while(|line| !line.is_empty()).skip(2).map(str::to_owned).collect()
}

fn count(rows: &[String], name: &str) -> usize {
    rows.iter().filter(|row| row.contains(name)).count()
}

#[test]
fn each_way_to_take_a_lock_and_give_it_back_is_measured() {
    let rows = rows("same-work");
    let cases = count(&rows, "| EVALSHA ");
    assert_eq!(cases, 12, "{rows:#?}");
    assert_eq!(count(&rows, "| FCALL "), if is_older_than((7, 0)) { 0 } else { cases });
    assert_eq!(count(&rows, "SET NX PX, INCR, DEL"), cases);
    // In four cases the two halves are measured too.
    assert_eq!(count(&rows, "| Leasehold "), cases + 8);
    assert_eq!(count(&rows, "SET NX PX, DEL "), cases + 8);
}

#[test]
fn each_way_to_wait_is_measured() {
    let rows = rows("contended");
    assert_eq!(rows.len(), 7, "{rows:#?}");
    for way in [
        "Leasehold, BLOCK",
        "Leasehold, TICKET",
        "BLPOP",
        "Redisson",
        "polling, 5 ms",
        "redis-py",
        "node-redlock",
    ] {
        assert_eq!(count(&rows, way), 1, "{rows:#?}");
    }
    // The column before the last is the share that was granted out of turn.
    for ours in rows.iter().filter(|row| row.contains("Leasehold")) {
        let cells: Vec<_> = ours.split('|').map(str::trim).collect();
        assert_eq!(cells[cells.len() - 3], "0", "{ours}");
    }
}

/// A test for each of the other sections: it writes so many rows.
macro_rules! writes {
    ($($test:ident: $section:literal, $rows:expr;)*) => {
        $(#[test]
        fn $test() {
            assert_eq!(rows($section).len(), $rows);
        })*
    };
}

writes! {
    each_way_to_be_one_of_several_holders_is_measured: "shared", 2 * 4;
    sets_of_locks_are_measured: "several", 6;
    tickets_are_measured: "tickets", 6;
    holds_that_end_with_their_connection_are_measured: "ephemeral", 9;
    guarded_writes_are_measured: "guarded", 2;
    hand_offs_are_measured: "hand-off", 2;
    locks_among_others_are_measured: "held", 2 * 4;
    memory_is_measured: "memory", 9;
    hand_offs_beside_commands_that_name_other_contended_locks_are_measured: "named", 2 * 4;
    what_crowds_take_from_others_is_measured: "crowds", 3 * 4;
    what_innocent_traffic_pays_is_measured: "innocent", 7;
}

/// Critical sections, from the moment of asking and that of the grant.
fn sections(all: &[(f64, f64)]) -> Vec<Section> {
    let section = |(place, &(begun, granted))| Section { place, begun, sent: begun + 0.1, granted };
    all.iter().enumerate().map(section).collect()
}

#[test]
fn whoever_is_granted_before_one_who_was_queued_is_out_of_turn() {
    let in_turn = [(0.0, 1.0), (0.1, 2.0), (0.2, 3.0), (1.5, 4.0), (2.5, 5.0)];
    assert_eq!(overtakings(&sections(&in_turn)), 0);
    // One asks at 0.2 and is granted the lock last, after one that asked two grants later.
    let out_of_turn = [(0.0, 1.0), (0.1, 2.0), (1.5, 3.0), (2.5, 4.0), (0.2, 5.0)];
    assert_eq!(overtakings(&sections(&out_of_turn)), 1);
}

#[test]
fn half_of_all_samples_are_between_the_quartiles() {
    let spread = Spread::of([8.0, 1.0, 5.0, 2.0, 7.0, 3.0, 6.0, 4.0]);
    assert_eq!(spread, Spread { low: 2.0, median: 4.0, high: 6.0 });
    let ratio = Spread::of_ratios(&[2.0, 6.0, 3.0], &[1.0, 2.0, 3.0]);
    assert_eq!(ratio, Spread { low: 1.0, median: 2.0, high: 3.0 });
}
