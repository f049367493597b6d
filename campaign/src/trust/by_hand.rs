//! One history for each promise, by hand: also for what the search does not look at, the queue and losses.

use super::invent::record;
use crate::checker::{History, Law, Rules, Span};
use crate::record::{Op, Outcome, Record};

fn ok(op: Op, owner: u32, fence: u64, ttl: u32, (asked, told): (i64, i64)) -> Record {
    Record { op, owner, fence, ttl, ..record(asked, told) }
}

fn laws(records: &[Record], rules: &Rules) -> Vec<Law> {
    let history = History { records: records.to_vec(), ..History::default() };
    history.check(rules).violations.into_iter().map(|violation| violation.law).collect()
}

#[track_caller]
fn assert_wrong(records: &[Record], law: Law) {
    assert_eq!(laws(records, &Rules { idle_micros: 50_000, ..Rules::default() }), [law]);
}

#[track_caller]
fn assert_right(records: &[Record], rules: &Rules) {
    assert_eq!(laws(records, rules), []);
}

#[test]
fn a_grant_a_millisecond_before_the_end_of_a_lease_is_wrong() {
    let first = ok(Op::Try, 1, 1, 20, (10, 10));
    assert_wrong(&[first, ok(Op::Try, 2, 2, 20, (29, 29))], Law::L1);
    assert_right(&[first, ok(Op::Try, 2, 2, 20, (30, 30))], &Rules::default());
}

#[test]
fn a_release_or_a_deletion_excuses_one_grant() {
    let (one, two, three) = (
        ok(Op::Try, 1, 1, 900, (10, 11)),
        ok(Op::Try, 2, 2, 900, (20, 21)),
        ok(Op::Try, 3, 3, 900, (30, 31)),
    );
    let release = ok(Op::Release, 1, 1, 0, (12, 13));
    let delete = ok(Op::Delete, u32::MAX, 0, 0, (15, 27));
    assert_right(&[one, release, two, delete, three], &Rules::default());
    assert_wrong(&[one, two, delete, three], Law::L1);
}

#[test]
fn data_may_be_lost_where_that_is_said_but_fences_grow_all_the_same() {
    let first = ok(Op::Try, 1, 5, 900, (10, 11));
    let rules = Rules { loss: vec![Span { from: 12_000, to: 14_000 }], ..Rules::default() };
    assert_right(&[first, ok(Op::Try, 2, 6, 900, (20, 21))], &rules);
    assert_eq!(laws(&[first, ok(Op::Try, 2, 4, 900, (20, 21))], &rules)[0], Law::L2);
    assert_right(&[first, ok(Op::Try, 2, 6, 900, (1_000, 1_001))], &rules);
}

#[test]
fn a_fence_that_was_told_before_the_history_began_is_not_told_again() {
    let records = vec![ok(Op::Try, 1, 5, 900, (10, 11))];
    let history = History { records, before: [(0, 5)].into() };
    assert_eq!(history.check(&Rules::default()).violations[0].law, Law::L2);
    assert_eq!(history.highest()[&0], 5);
}

#[test]
fn a_primary_that_was_replaced_may_give_a_smaller_fence_until_it_knows() {
    let records = [ok(Op::Try, 1, 6, 5, (10, 11)), ok(Op::Try, 2, 5, 5, (20, 21))];
    let loss = vec![Span { from: 9_000, to: 30_000 }];
    let until = |to| Rules {
        beside: vec![Span { from: 9_000, to }],
        loss: loss.clone(),
        ..Rules::default()
    };
    assert_right(&records, &until(20_000));
    assert_eq!(laws(&records, &until(19_999)), [Law::L2]);
}

#[test]
fn who_is_seen_waiting_is_served_before_who_asks_later() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    let release = ok(Op::Release, 1, 1, 0, (20, 21));
    let seen = ok(Op::Seen, 2, 0, 0, (14, 15));
    let later = [ok(Op::Wait, 3, 2, 900, (16, 22)), ok(Op::Release, 3, 2, 0, (23, 24))];
    let waiter = ok(Op::Wait, 2, 3, 900, (12, 25));
    assert_wrong(&[holder, seen, release, later[0], later[1], waiter], Law::L4);
    // One who asked before that look may have been the first.
    let earlier = Record { asked: 13_000, ..later[0] };
    assert_right(&[holder, seen, release, earlier, later[1], waiter], &Rules::default());
}

#[test]
fn a_free_lock_with_a_waiter_is_wrong_after_a_while() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    let release = ok(Op::Release, 1, 1, 0, (200, 201));
    let forgotten = Record { outcome: Outcome::Refused, ..ok(Op::Wait, 2, 0, 900, (20, 600)) };
    assert_wrong(&[holder, release, forgotten], Law::L5);
    assert_wrong(&[holder, release, ok(Op::Wait, 2, 2, 900, (20, 600))], Law::L5);
    let rules = Rules { idle_micros: 50_000, ..Rules::default() };
    assert_right(&[holder, release, ok(Op::Wait, 2, 2, 900, (20, 230))], &rules);
    let standstill = vec![Span { from: 150_000, to: 700_000 }];
    assert_right(&[holder, release, forgotten], &Rules { standstill, ..rules });
}

#[test]
fn who_does_not_hold_a_lock_does_nothing_with_it() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    assert_wrong(&[holder, ok(Op::Release, 2, 0, 0, (20, 21))], Law::L3);
    assert_wrong(&[holder, ok(Op::Check, 2, 1, 0, (20, 21))], Law::L2);
    let refused = Record { outcome: Outcome::Refused, ..ok(Op::Extend, 1, 1, 20, (30, 31)) };
    assert_wrong(&[holder, refused], Law::L3);
}

#[test]
fn what_is_wrong_is_shown_with_what_was_done_then() {
    let records = vec![ok(Op::Try, 1, 1, 20, (10, 10)), ok(Op::Try, 2, 2, 20, (29, 29))];
    let history = History { records, ..History::default() };
    let violation = &history.check(&Rules::default()).violations[0];
    let shown = history.explain(violation, &[(15_000, "kill -9".to_owned())]);
    assert!(shown.starts_with("L1 of lock 0: fence 2 was granted at least 1 ms before"), "{shown}");
    assert_eq!(shown.matches("\n  >").count(), 2, "{shown}");
    assert!(shown.contains("!      5.000 ms                 kill -9"), "{shown}");
}
