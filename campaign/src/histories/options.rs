//! Handwritten histories of requests for several locks, of holds that end with a connection, and of tickets.

use super::{assert_right, assert_wrong, laws, ok, refused, span, unheard};
use crate::checker::{Law, Rules};
use crate::record::{EVERY_LOCK, Op, Outcome, Record};

fn of(lock: u32, record: Record) -> Record {
    Record { lock, ..record }
}

/// A request for these locks, with a record for each.
fn all(set: u32, locks: [u32; 2], record: Record) -> [Record; 2] {
    locks.map(|lock| Record { lock, set, ..record })
}

/// The end of the connection to which a hold is bound.
fn closed(owner: u32, fence: u64, grace: u32, at: (u64, u64)) -> Record {
    ok(Op::Closed, owner, fence, grace, at)
}

fn promptly() -> Rules {
    Rules { idle_micros: 50_000, ..Rules::default() }
}

#[test]
fn several_locks_are_granted_together_and_by_one_fence() {
    let [one, other] = all(1, [0, 1], ok(Op::Try, 1, 5, 900, (10, 11)));
    assert_right(&[one, other], &promptly());
    assert_wrong(&[one, Record { fence: 6, ..other }], Law::L1);
    assert_wrong(&[one, Record { fence: 0, ..refused(other) }], Law::L1);
    // Separate requests get separate fences.
    assert_right(&[one, of(1, ok(Op::Try, 1, 6, 900, (20, 21)))], &promptly());
}

#[test]
fn of_several_locks_each_is_held() {
    let both = all(1, [0, 1], ok(Op::Try, 1, 5, 900, (10, 11)));
    for lock in [0, 1] {
        let second = of(lock, ok(Op::Try, 2, 6, 900, (20, 21)));
        assert_wrong(&[both[0], both[1], second], Law::L1);
        let release = of(lock, ok(Op::Release, 1, 5, 0, (12, 13)));
        assert_right(&[both[0], both[1], release, second], &promptly());
    }
}

#[test]
fn who_is_refused_several_locks_holds_none_of_them() {
    let held = of(1, ok(Op::Try, 1, 4, 900, (10, 11)));
    let [one, other] = all(1, [0, 1], refused(ok(Op::Wait, 2, 0, 900, (12, 40))));
    let alone = ok(Op::Check, 2, 5, 0, (50, 51));
    assert_right(&[held, one, other], &promptly());
    assert_wrong(&[held, one, other, alone], Law::L3);
}

#[test]
fn who_holds_some_is_granted_all_by_another_fence() {
    let one = ok(Op::Try, 1, 4, 900, (10, 11));
    let both = all(1, [0, 1], ok(Op::Try, 1, 5, 900, (20, 21)));
    assert_right(&[one, both[0], both[1]], &promptly());
    // An owner that asks for one lock keeps its fence.
    assert_wrong(&[one, Record { fence: 5, ..ok(Op::Try, 1, 5, 900, (20, 21)) }], Law::L1);
    let stale = ok(Op::Extend, 1, 4, 900, (30, 31));
    assert_eq!(laws(&[one, both[0], both[1], stale], &promptly()), [Law::L3, Law::L1]);
    // The owner keeps its hold when it is refused both locks.
    let none = all(1, [0, 1], refused(ok(Op::Try, 1, 0, 900, (20, 21))));
    let check = ok(Op::Check, 1, 4, 0, (22, 23));
    assert_right(&[one, none[0], none[1], check], &promptly());
    assert_wrong(&[one, none[0], none[1], refused(check)], Law::L3);
}

#[test]
fn what_is_left_of_several_released_locks_is_nobodys() {
    let both = all(1, [0, 1], ok(Op::Try, 1, 5, 900, (10, 11)));
    let over = Record { outcome: Outcome::Over, ..ok(Op::Release, 1, 5, 0, (20, 21)) };
    let over = all(2, [0, 1], over);
    let next = ok(Op::Try, 2, 6, 900, (30, 31));
    let check = ok(Op::Check, 1, 5, 0, (30, 31));
    assert_right(&[both[0], both[1], over[0], over[1], next, refused(of(1, check))], &promptly());
    assert_wrong(&[both[0], both[1], over[0], over[1], check], Law::L3);
    // A partly released lock is free for waiters.
    let wait = refused(ok(Op::Wait, 3, 0, 900, (12, 600)));
    assert_wrong(&[both[0], both[1], over[0], over[1], wait], Law::L5);
}

#[test]
fn who_waits_for_several_locks_is_not_overtaken_in_any_queue() {
    let holder = of(1, ok(Op::Try, 1, 1, 900, (10, 11)));
    let both = |fence, told| all(1, [0, 1], ok(Op::Wait, 2, fence, 900, (12, told)));
    let seen = ok(Op::Seen, 2, 0, 0, (14, 15));
    let release = of(1, ok(Op::Release, 1, 1, 0, (40, 41)));
    // The first lock is free, but a later owner must not get it.
    let overtaker = [ok(Op::Try, 3, 2, 5, (20, 21)), ok(Op::Release, 3, 2, 0, (22, 23))];
    let [one, other] = both(3, 42);
    assert_right(&[holder, seen, release, one, other], &promptly());
    let records = [holder, seen, overtaker[0], overtaker[1], release, one, other];
    assert_eq!(laws(&records, &promptly()), [Law::L4]);
}

#[test]
fn a_lock_may_be_kept_free_for_one_who_waits_for_another() {
    let holders = [ok(Op::Try, 1, 1, 900, (10, 11)), of(1, ok(Op::Try, 4, 2, 2_000, (10, 11)))];
    let release = ok(Op::Release, 1, 1, 0, (200, 201));
    let behind = refused(ok(Op::Wait, 3, 0, 900, (100, 900)));
    let records = [holders[0], holders[1], release, behind];
    assert_wrong(&records, Law::L5);
    let first = all(1, [0, 1], refused(ok(Op::Wait, 2, 0, 900, (20, 900))));
    assert_right(&[&records[..], &first].concat(), &promptly());
}

#[test]
fn a_hold_ends_with_its_connection_and_a_grace() {
    let held = Record { is_bound: true, ..ok(Op::Try, 1, 1, 900, (10, 11)) };
    let end = closed(1, 1, 20, (30, 32));
    let next = |at| ok(Op::Try, 2, 2, 900, (at, at));
    assert_right(&[held, end, next(50)], &promptly());
    assert_wrong(&[held, end, next(49)], Law::L1);
    // The server may be late to refuse the owner, but only until the latest end.
    let check = |at| ok(Op::Check, 1, 1, 0, (at, at));
    assert_right(&[held, end, check(51), refused(check(52))], &promptly());
    assert_wrong(&[held, end, check(53)], Law::L3);
    assert_wrong(&[held, end, refused(check(49))], Law::L3);
    let wait = refused(ok(Op::Wait, 3, 0, 900, (20, 600)));
    assert_wrong(&[held, end, wait], Law::L5);
    // The hold may go on if bindings are lost, or if the server may not have noticed the end.
    for rules in [
        Rules { unbound: span(20, 20), ..promptly() },
        Rules { standstill: span(20, 20), ..promptly() },
    ] {
        assert_right(&[held, end, check(53), wait], &rules);
    }
    assert_right(&[held, unheard(end), check(53), wait], &promptly());
}

#[test]
fn a_former_connection_ends_no_hold() {
    let held = Record { is_bound: true, ..ok(Op::Try, 1, 1, 900, (10, 11)) };
    let again = Record { is_bound: true, ..ok(Op::Try, 1, 1, 900, (40, 41)) };
    let end = |at| closed(1, 1, 20, at);
    let check = |at| ok(Op::Check, 1, 1, 0, (at, at));
    // An owner that comes back keeps the hold, whenever the former connection ends.
    for former in [(30, 32), (30, 70)] {
        assert_right(&[held, end(former), again, check(100)], &promptly());
        assert_wrong(&[held, end(former), again, refused(check(100))], Law::L3);
        assert_wrong(&[held, end(former), again, ok(Op::Try, 2, 2, 9, (100, 100))], Law::L1);
    }
    // The grace limits what is left of the lease, unless the request asks for more.
    let short = Record { is_bound: false, ttl: 5, ..again };
    assert_right(&[held, end((30, 32)), short, refused(check(53))], &promptly());
    assert_wrong(&[held, end((30, 32)), short, refused(check(45))], Law::L3);
    assert_wrong(&[held, end((30, 32)), short, check(54)], Law::L3);
    // The end of the new connection ends the hold.
    assert_right(&[held, again, end((80, 82)), refused(check(102))], &promptly());
    // The same end, recorded later and with a later reply.
    assert_right(&[held, again, refused(check(102)), end((80, 120))], &promptly());
    assert_wrong(&[held, again, refused(check(98)), end((80, 120))], Law::L3);
    // A request that is not bound, while the former connection may not have ended yet.
    let plain = Record { is_bound: false, ..again };
    assert_right(&[held, end((30, 70)), plain, refused(check(100))], &promptly());
    assert_wrong(&[held, end((30, 39)), plain, refused(check(100))], Law::L3);
}

#[test]
fn a_hold_that_is_not_shown_any_more_may_be_again_where_its_end_was_not_written() {
    let held = Record { is_bound: true, ..ok(Op::Try, 1, 1, 900, (10, 11)) };
    let end = closed(1, 1, 0, (30, 32));
    let check = |at| ok(Op::Check, 1, 1, 0, (at, at));
    let records = [held, end, refused(check(33)), check(40)];
    let moved = span(35, 38);
    assert_right(&records, &Rules { standstill: moved, ..promptly() });
    assert_wrong(&records, Law::L3);
}

#[test]
fn the_end_of_a_connection_frees_no_later_hold() {
    let held = Record { is_bound: true, ..ok(Op::Try, 1, 1, 900, (10, 11)) };
    let release = ok(Op::Release, 1, 1, 0, (12, 13));
    let later = ok(Op::Try, 1, 2, 900, (14, 15));
    let end = closed(1, 1, 0, (20, 21));
    let check = ok(Op::Check, 1, 2, 0, (30, 31));
    assert_right(&[held, release, later, end, check], &promptly());
    assert_wrong(&[held, release, later, end, refused(check)], Law::L3);
}

#[test]
fn what_was_bound_by_an_unheard_request_may_end_with_it() {
    let lost = unheard(ok(Op::Try, 1, 0, 900, (10, 20)));
    let end = unheard(closed(1, 0, 0, (10, 20)));
    let plain = ok(Op::Try, 1, 1, 900, (30, 31));
    let check = refused(ok(Op::Check, 1, 1, 0, (60, 61)));
    assert_right(&[lost, end, plain, check], &promptly());
    assert_wrong(&[lost, plain, check], Law::L3);
}

#[test]
fn a_ticket_keeps_its_place_unless_its_turn_was_deleted() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    let release = ok(Op::Release, 1, 1, 0, (20, 21));
    let seen = ok(Op::Seen, 2, 0, 0, (14, 15));
    let later = [ok(Op::Wait, 3, 2, 900, (16, 22)), ok(Op::Release, 3, 2, 0, (23, 24))];
    let ticket = Record { is_ticket: true, ..ok(Op::Wait, 2, 3, 900, (12, 25)) };
    assert_wrong(&[holder, seen, release, later[0], later[1], ticket], Law::L4);
    let delete = ok(Op::Delete, u32::MAX, 0, 0, (18, 19));
    let records = [holder, seen, delete, later[0], later[1], ticket];
    assert_eq!(laws(&records, &promptly()), []);
    // A waiter on a connection loses nothing by a deletion.
    let waiter = Record { is_ticket: false, ..ticket };
    let records = [holder, seen, delete, later[0], later[1], waiter];
    assert_eq!(laws(&records, &promptly()), [Law::L4]);
}

#[test]
fn a_ticket_for_several_locks_keeps_its_place_unless_its_turn_in_one_of_them_was_deleted() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    let release = ok(Op::Release, 1, 1, 0, (20, 21));
    let seen = ok(Op::Seen, 2, 0, 0, (14, 15));
    let later = [ok(Op::Wait, 3, 2, 900, (16, 22)), ok(Op::Release, 3, 2, 0, (23, 24))];
    let waits = Record { is_ticket: true, ..ok(Op::Wait, 2, 3, 900, (12, 25)) };
    let ticket = all(1, [0, 1], waits);
    let records = [holder, seen, release, later[0], later[1], ticket[0], ticket[1]];
    assert_wrong(&records, Law::L4);
    let deleted = |lock| of(lock, ok(Op::Delete, u32::MAX, 0, 0, (18, 19)));
    let with = |delete| [&[delete][..], &records].concat();
    assert_right(&with(deleted(1)), &promptly());
    // A deletion of every lock also releases this one.
    let rest = [holder, seen, later[0], later[1], ticket[0], ticket[1]];
    assert_right(&[&[deleted(EVERY_LOCK)][..], &rest].concat(), &promptly());
    assert_wrong(&with(deleted(2)), Law::L4);
    assert_wrong(&with(Record { asked: 26_000, told: 27_000, ..deleted(1) }), Law::L4);
    // A waiter on a connection loses nothing by a deletion.
    let waiter = all(1, [0, 1], Record { is_ticket: false, ..waits });
    let records = [deleted(1), holder, seen, release, later[0], later[1], waiter[0], waiter[1]];
    assert_eq!(laws(&records, &promptly()), [Law::L4]);
}

#[test]
fn a_ticket_that_nobody_claims_keeps_the_lock_no_longer_than_itself() {
    let holder = ok(Op::Try, 1, 1, 900, (10, 11));
    let release = ok(Op::Release, 1, 1, 0, (200, 201));
    // The ticket lasts 20 ms.
    let ticket = Record { is_ticket: true, ..unheard(ok(Op::Wait, 2, 0, 20, (20, 230))) };
    let behind = |told| ok(Op::Wait, 3, 3, 900, (30, told));
    assert_right(&[holder, release, ticket, behind(230 + 20 + 50)], &promptly());
    assert_wrong(&[holder, release, ticket, behind(230 + 20 + 52)], Law::L5);
    // An owner that claims its ticket too late does not have the lock any more.
    let granted = Record { is_ticket: true, ..ok(Op::Wait, 2, 2, 20, (20, 202)) };
    assert_wrong(&[holder, release, granted, ok(Op::Try, 2, 2, 900, (223, 224))], Law::L3);
    assert_right(&[holder, release, granted, ok(Op::Try, 2, 2, 900, (221, 222))], &promptly());
}
