//! Histories written by hand: what the checker calls wrong, and, beside it, what is just right.

mod options;
mod shared;

use crate::checker::{History, Law, Rules, Span};
use crate::record::{Op, Outcome, Record};

/// A success in lock 0, with its moments in milliseconds.
fn ok(op: Op, owner: u32, fence: u64, ttl: u32, (asked, told): (u64, u64)) -> Record {
    Record { fence, ttl, ..Record::new(op, owner, 0, (asked * 1_000, told * 1_000)) }
}

fn refused(record: Record) -> Record {
    Record { outcome: Outcome::Refused, ..record }
}

fn unheard(record: Record) -> Record {
    Record { outcome: Outcome::Unknown, ..record }
}

/// In milliseconds.
fn span(from: u64, to: u64) -> Vec<Span> {
    vec![Span { from: from * 1_000, to: to * 1_000 }]
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
    let rules = Rules { loss: span(12, 14), ..Rules::default() };
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
    let loss = span(9, 30);
    let until = |to| Rules {
        beside: vec![Span { from: 9_000, to }],
        loss: loss.clone(),
        ..Rules::default()
    };
    assert_right(&records, &until(20_000));
    assert_eq!(laws(&records, &until(19_999)), [Law::L2]);
    // The successor may grant while it waits, and the former primary is asked no more.
    let waits = [records[0], ok(Op::Wait, 2, 5, 5, (20, 40))];
    let later = Rules { beside: span(25, 30), loss: span(9, 50), ..Rules::default() };
    assert_eq!(laws(&waits, &later), [Law::L2]);
    let behind = Rules { behind: later.beside.clone(), beside: Vec::new(), ..later };
    assert_right(&waits, &behind);
}

#[test]
fn who_is_seen_waiting_is_served_before_who_asks_later() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    let release = ok(Op::Release, 1, 1, 0, (20, 21));
    let seen = ok(Op::Seen, 2, 0, 0, (14, 15));
    let later = [ok(Op::Wait, 3, 2, 900, (16, 22)), ok(Op::Release, 3, 2, 0, (23, 24))];
    let waiter = ok(Op::Wait, 2, 3, 900, (12, 25));
    assert_wrong(&[holder, seen, release, later[0], later[1], waiter], Law::L4);
    // An owner that asked before that look may have been the first.
    let earlier = Record { asked: 13_000, ..later[0] };
    assert_right(&[holder, seen, release, earlier, later[1], waiter], &Rules::default());
    // Of two looks, the look that was answered first counts.
    let slow = ok(Op::Seen, 2, 0, 0, (13, 24));
    assert_wrong(&[holder, release, slow, seen, later[0], later[1], waiter], Law::L4);
    let standstill = span(25, 25);
    let rules = Rules { standstill, ..Rules::default() };
    assert_right(&[holder, release, seen, later[0], later[1], waiter], &rules);
}

#[test]
fn a_free_lock_with_a_waiter_is_wrong_after_a_while() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    let release = ok(Op::Release, 1, 1, 0, (200, 201));
    let forgotten = refused(ok(Op::Wait, 2, 0, 900, (20, 600)));
    assert_wrong(&[holder, release, forgotten], Law::L5);
    assert_wrong(&[holder, release, ok(Op::Wait, 2, 2, 900, (20, 600))], Law::L5);
    let rules = Rules { idle_micros: 50_000, ..Rules::default() };
    assert_right(&[holder, release, ok(Op::Wait, 2, 2, 900, (20, 230))], &rules);
    let standstill = span(150, 700);
    assert_right(&[holder, release, forgotten], &Rules { standstill, ..rules });
}

/// The lock is free from 201 ms on, and somebody waits until 2,000 ms.
fn idle(rules: &Rules) -> Vec<Law> {
    let wait = refused(ok(Op::Wait, 2, 0, 900, (20, 2_000)));
    let records = [ok(Op::Try, 1, 1, 900, (10, 11)), ok(Op::Release, 1, 1, 0, (200, 201)), wait];
    laws(&records, &Rules { idle_micros: 50_000, ..rules.clone() })
}

#[test]
fn between_what_excuses_it_a_lock_is_not_free_for_longer_than_otherwise() {
    // A span of one millisecond in every `millis`.
    let every = |millis: u64| {
        let spans = (0..2_500 / millis).map(|nth| nth * millis * 1_000);
        spans.map(|from| Span { from, to: from + 1_000 }).collect::<Vec<_>>()
    };
    // After a standstill: 50 ms for what it had held up, and 50 ms without a grant.
    assert_eq!(idle(&Rules { standstill: every(101), ..Rules::default() }), []);
    assert_eq!(idle(&Rules { standstill: every(102), ..Rules::default() }), [Law::L5]);
    assert_eq!(idle(&Rules { loss: every(101), ..Rules::default() }), []);
    assert_eq!(idle(&Rules { loss: every(102), ..Rules::default() }), [Law::L5]);
    let (standstill, mut loss) = (every(150), every(150));
    loss.iter_mut().for_each(|span| (span.from, span.to) = (span.from + 75_000, span.to + 75_000));
    assert_eq!(idle(&Rules { standstill, loss, ..Rules::default() }), []);
    // A standstill before the lock was free also holds up what follows.
    let until = |to| vec![Span { from: 0, to }, Span { from: 251_001, to: 2_000_000 }];
    assert_eq!(idle(&Rules { standstill: until(151_000), ..Rules::default() }), []);
    assert_eq!(idle(&Rules { standstill: until(150_999), ..Rules::default() }), [Law::L5]);
    // A long standstill excuses, however short the spans after it are.
    let mut standstill = every(102);
    standstill.push(Span { from: 1, to: 1_900_000 });
    assert_eq!(idle(&Rules { standstill, ..Rules::default() }), []);
}

#[test]
fn a_free_lock_is_not_held_by_one_of_whom_nothing_was_heard_for_ever() {
    let (holder, release) =
        (ok(Op::Try, 1, 1, 900, (10, 11)), ok(Op::Release, 1, 1, 0, (200, 201)));
    let unheard = |op, ttl| unheard(ok(op, 3, 0, ttl, (230, 240)));
    let wait = |told| refused(ok(Op::Wait, 2, 0, 900, (20, told)));
    let rules = Rules { idle_micros: 50_000, ..Rules::default() };
    // The lease of 300 ms, 50 ms until it begins, and 50 ms without a grant.
    let excuse = unheard(Op::Try, 300);
    assert_right(&[holder, release, excuse, wait(640)], &rules);
    assert_wrong(&[holder, release, excuse, wait(641)], Law::L5);
    assert_right(
        &[holder, release, excuse, wait(670)],
        &Rules { late_millis: 30, ..rules.clone() },
    );
    // An unanswered EXTEND may lengthen that lease.
    let extension = unheard(Op::Extend, 500);
    assert_right(&[holder, release, unheard(Op::Try, 30), extension, wait(840)], &rules);
    assert_wrong(&[holder, release, unheard(Op::Try, 30), extension, wait(841)], Law::L5);
}

#[test]
fn who_tries_may_have_had_the_lock_long_before_it_heard_of_it() {
    let (holder, release) =
        (ok(Op::Try, 1, 1, 900, (10, 11)), ok(Op::Release, 1, 1, 0, (200, 201)));
    let wait = refused(ok(Op::Wait, 2, 0, 900, (20, 600)));
    let rules = Rules { idle_micros: 50_000, ..Rules::default() };
    assert_right(&[holder, release, wait, ok(Op::Try, 3, 2, 900, (251, 600))], &rules);
    assert_wrong(&[holder, release, wait, ok(Op::Try, 3, 2, 900, (252, 600))], Law::L5);
}

#[test]
fn any_of_the_deletions_under_way_may_have_been_the_one() {
    let long = |owner, fence, at| ok(Op::Try, owner, fence, 100, at);
    let delete = |at| ok(Op::Delete, u32::MAX, 0, 0, at);
    let records = [
        long(1, 1, (0, 0)),
        // The first deletion is needed here, although the second ends earlier. Otherwise this lease
        // would last too long.
        ok(Op::Try, 2, 2, 3, (1, 6)),
        long(3, 3, (4, 4)),
        long(4, 4, (5, 5)),
        delete((0, 10)),
        delete((4, 6)),
    ];
    assert_right(&records, &Rules::default());
    // One deletion does not explain two grants.
    assert_wrong(&records[..5], Law::L1);
}

#[test]
fn a_lease_of_many_requests_is_held_as_long_as_any_of_them_allows() {
    // Each lease lasts until the next request. If the last request is late, every request must have taken effect late.
    let beats = |last: u64| {
        let times = (0..1_000).map(|nth| 2 * nth).chain([last]);
        times.map(|at| ok(Op::Try, 1, 1, 3, (at, at + 2))).collect::<Vec<_>>()
    };
    assert_right(&beats(2_002), &Rules::default());
    assert_wrong(&beats(2_003), Law::L3);
    // A shorter lease does not shorten the first one.
    let mut records = beats(2_003);
    records[0].ttl = 2_100;
    assert_right(&records, &Rules::default());
}

#[test]
fn a_lease_began_no_later_than_what_came_after_it() {
    let lease = ok(Op::Try, 1, 1, 5, (10, 50));
    let check = |at| ok(Op::Check, 1, 1, 0, at);
    assert_right(&[lease, check((20, 21))], &Rules::default());
    assert_wrong(&[lease, check((10, 12)), check((20, 21))], Law::L3);
    // The lease must also have lasted until a later success.
    let lease = ok(Op::Try, 1, 1, 3, (10, 14));
    let next = |at| ok(Op::Try, 2, 2, 5, (at, at));
    assert_right(&[lease, check((15, 15)), next(16)], &Rules::default());
    assert_wrong(&[lease, check((15, 15)), next(15)], Law::L1);
}

#[test]
fn who_asked_twice_and_was_granted_it_too_early_has_it_beside_another() {
    let unheard = unheard(ok(Op::Try, 2, 0, 20, (5, 12)));
    let holder = ok(Op::Try, 1, 1, 20, (10, 10));
    assert_right(&[holder, unheard, ok(Op::Try, 2, 2, 20, (20, 30))], &Rules::default());
    assert_wrong(&[holder, unheard, ok(Op::Try, 2, 2, 20, (20, 29))], Law::L1);
}

#[test]
fn each_refusal_has_to_be_explained() {
    let lease = ok(Op::Try, 1, 1, 20, (10, 10));
    let refused = |at| refused(ok(Op::Check, 1, 1, 0, at));
    assert_right(&[lease, refused((28, 33)), refused((28, 30))], &Rules::default());
    assert_wrong(&[lease, refused((28, 33)), refused((28, 29))], Law::L3);
}

#[test]
fn any_of_the_leases_that_were_asked_for_may_have_been_the_one() {
    // The second and the third can each have begun late enough for the last, but the second only if the first did too.
    let records = [
        ok(Op::Wait, 2, 4, 1, (11, 11)),
        ok(Op::Wait, 2, 4, 5, (12, 15)),
        ok(Op::Try, 2, 4, 2, (15, 18)),
        ok(Op::Try, 2, 4, 4, (18, 22)),
    ];
    assert_right(&records, &Rules { late_millis: 1, ..Rules::default() });
    assert_wrong(&records, Law::L3);
}

#[test]
fn what_was_released_may_be_its_owners_again_where_data_was_lost() {
    let records = [
        ok(Op::Try, 1, 2, 90, (10, 11)),
        ok(Op::Release, 1, 2, 0, (12, 13)),
        ok(Op::Extend, 1, 0, 90, (20, 21)),
    ];
    let loss = span(15, 15);
    assert_right(&records, &Rules { loss: loss.clone(), ..Rules::default() });
    assert_wrong(&records, Law::L3);
    let stranger = Record { owner: 2, ..records[2] };
    let records = [records[0], records[1], stranger];
    assert_eq!(laws(&records, &Rules { loss, ..Rules::default() }), [Law::L3]);
}

#[test]
fn who_does_not_hold_a_lock_does_nothing_with_it() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    assert_wrong(&[holder, ok(Op::Release, 2, 0, 0, (20, 21))], Law::L3);
    assert_wrong(&[holder, ok(Op::Check, 2, 1, 0, (20, 21))], Law::L2);
    let refused = refused(ok(Op::Extend, 1, 1, 20, (30, 31)));
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

#[test]
fn what_took_the_least_time_is_told_first() {
    let pair = |lock, at: u64, apart: u64| {
        let first = ok(Op::Try, 1, 1, 900, (at, at));
        [first, ok(Op::Try, 2, 2, 900, (at + apart, at + apart))]
            .map(|record| Record { lock, ..record })
    };
    let records = [pair(0, 10, 500), pair(1, 400, 20), pair(2, 10, 300)].concat();
    let history = History { records, ..History::default() };
    let violations = history.check(&Rules::default()).violations;
    let locks: Vec<_> = violations.iter().map(|violation| violation.lock).collect();
    assert_eq!(locks, [1, 2, 0]);
    assert_eq!(violations[0].proof, [2, 3]);
}
