//! Handwritten histories of locks that several owners hold.

use super::{assert_right, assert_wrong, laws, ok, refused, span, unheard};
use crate::checker::{Law, Rules};
use crate::record::{Op, Outcome, Record};

/// A try that tolerates this many holders.
fn shared(share: u8, owner: u32, fence: u64, ttl: u32, at: u64) -> Record {
    Record { share, ..ok(Op::Try, owner, fence, ttl, (at, at)) }
}

#[test]
fn as_many_hold_a_lock_as_each_of_them_tolerates() {
    let pool = [shared(2, 1, 1, 900, 10), shared(3, 2, 2, 900, 11)];
    assert_right(&pool, &Rules::default());
    // The smallest share counts, whoever has it.
    for share in [0, 2, 3] {
        let third = shared(share, 3, 3, 900, 12);
        assert_wrong(&[pool[0], pool[1], third], Law::L1);
        let left = ok(Op::Release, 1, 1, 0, (11, 11));
        assert_right(&[pool[0], pool[1], left, third], &Rules::default());
    }
    let readers = [shared(0, 1, 1, 900, 10), shared(0, 2, 2, 900, 11), shared(0, 3, 3, 9, 12)];
    assert_right(&readers, &Rules::default());
    let writer = |at| shared(1, 4, 4, 900, at);
    assert_wrong(&[readers[0], readers[1], readers[2], writer(800)], Law::L1);
    assert_right(&[readers[0], readers[1], readers[2], writer(911)], &Rules::default());
    assert_wrong(&[writer(10), shared(0, 5, 5, 900, 20)], Law::L1);
}

#[test]
fn each_lease_ends_by_itself() {
    let (long, short) = (shared(2, 1, 1, 900, 10), shared(2, 2, 2, 20, 10));
    let next = |at| shared(2, 3, 3, 20, at);
    assert_wrong(&[long, short, next(29)], Law::L1);
    assert_right(&[long, short, next(30)], &Rules::default());
    let extended = ok(Op::Extend, 2, 2, 50, (20, 20));
    assert_wrong(&[long, short, extended, next(69)], Law::L1);
    assert_right(&[long, short, extended, next(70)], &Rules::default());
    // The end of one hold does not end another.
    let lost = refused(ok(Op::Check, 1, 1, 0, (40, 40)));
    assert_wrong(&[long, short, lost], Law::L3);
}

#[test]
fn a_grant_is_made_before_those_with_larger_fences() {
    // The fence of a later grant limits when this one was made. Otherwise it could be in force at the check.
    let slow = Record { share: 0, ..ok(Op::Try, 1, 1, 5, (10, 50)) };
    let check = ok(Op::Check, 1, 1, 0, (20, 20));
    let later = |at| shared(0, 2, 2, 900, at);
    assert_right(&[slow, later(16), check], &Rules::default());
    assert_wrong(&[slow, later(15), check], Law::L3);
}

#[test]
fn who_comes_to_tolerate_fewer_gets_another_fence() {
    let reader = shared(0, 1, 1, 900, 10);
    assert_wrong(&[reader, shared(1, 1, 1, 900, 20)], Law::L2);
    let writer = shared(1, 1, 2, 900, 20);
    assert_right(&[reader, writer], &Rules::default());
    // The former fence is over, and only the new fence can have ended it.
    let release = ok(Op::Release, 1, 1, 0, (30, 30));
    assert_right(&[reader, writer, refused(release)], &Rules::default());
    assert_eq!(laws(&[reader, writer, release], &Rules::default()), [Law::L3, Law::L1]);
    assert_wrong(&[reader, refused(release)], Law::L3);
    // With the same share, the grant stays the same.
    assert_wrong(&[reader, Record { share: 0, ..writer }], Law::L1);
    // Another holder excludes the tighter grant.
    let other = shared(0, 2, 2, 900, 15);
    assert_wrong(&[reader, other, shared(1, 1, 3, 900, 20)], Law::L1);
    // An owner that is refused fewer holders keeps its hold.
    let refusal = refused(shared(1, 1, 1, 900, 20));
    assert_right(&[reader, other, refusal, ok(Op::Check, 1, 1, 0, (30, 30))], &Rules::default());
    assert_wrong(&[reader, other, refused(shared(0, 1, 1, 900, 20))], Law::L3);
}

#[test]
fn who_comes_to_tolerate_more_lets_others_in_from_then_on() {
    let writer = shared(1, 1, 1, 900, 10);
    let reads = Record { share: 0, ..ok(Op::Try, 1, 1, 900, (20, 25)) };
    let other = |at| shared(0, 2, 2, 900, at);
    assert_right(&[writer, reads, other(20)], &Rules::default());
    assert_wrong(&[writer, reads, other(19)], Law::L1);
    // The reply may be lost.
    let lost = Record { fence: 0, ..unheard(reads) };
    assert_right(&[writer, lost, other(20)], &Rules::default());
    assert_wrong(&[writer, lost, other(19)], Law::L1);
}

#[test]
fn an_unanswered_request_to_tolerate_fewer_may_have_ended_a_hold() {
    let reader = shared(0, 1, 1, 900, 10);
    let lost = unheard(shared(1, 1, 0, 900, 20));
    let check = refused(ok(Op::Check, 1, 1, 0, (30, 30)));
    assert_right(&[reader, lost, check], &Rules::default());
    assert_wrong(&[reader, unheard(shared(0, 1, 0, 900, 20)), check], Law::L3);
}

#[test]
fn a_deletion_ends_all_holds_and_explains_it_once() {
    let readers = [shared(0, 1, 1, 900, 10), shared(0, 2, 2, 900, 11)];
    let delete = ok(Op::Delete, u32::MAX, 0, 0, (15, 18));
    let writer = shared(1, 3, 3, 900, 20);
    assert_right(&[readers[0], readers[1], delete, writer], &Rules::default());
    assert_wrong(&[readers[0], readers[1], delete, writer, shared(0, 4, 4, 9, 30)], Law::L1);
    // A later check shows that one of the holds still existed.
    let check = ok(Op::Check, 2, 2, 0, (19, 19));
    assert_wrong(&[readers[0], readers[1], delete, check], Law::L3);
}

#[test]
fn data_may_be_lost_of_each_hold() {
    let readers = [shared(0, 1, 1, 900, 10), shared(0, 2, 2, 900, 11)];
    let rules = Rules { loss: span(12, 14), ..Rules::default() };
    assert_right(&[readers[0], readers[1], shared(1, 3, 3, 900, 20)], &rules);
    // A grant after the loss is not lost.
    let since = shared(0, 4, 3, 900, 20);
    assert_eq!(laws(&[readers[0], since, shared(1, 3, 4, 900, 30)], &rules), [Law::L1]);
}

#[test]
fn a_holder_overtakes_those_who_wait_and_nobody_else_does() {
    let reader = shared(0, 1, 1, 900, 10);
    let seen = ok(Op::Seen, 2, 0, 0, (14, 15));
    let waiter = Record { share: 1, ..ok(Op::Wait, 2, 3, 900, (12, 25)) };
    let writes = [shared(1, 1, 2, 900, 16), ok(Op::Release, 1, 2, 0, (20, 20))];
    assert_right(&[reader, seen, writes[0], writes[1], waiter], &Rules::default());
    let left = ok(Op::Release, 1, 1, 0, (15, 15));
    assert_wrong(&[reader, left, seen, writes[0], writes[1], waiter], Law::L4);
    let other = [shared(0, 3, 2, 900, 16), ok(Op::Release, 3, 2, 0, (20, 20))];
    let leaves = ok(Op::Release, 1, 1, 0, (21, 21));
    assert_wrong(&[reader, seen, other[0], other[1], leaves, waiter], Law::L4);
}

/// One of two places is free from 201 ms on. Somebody waits until 600 ms, and before it an owner
/// that tolerates `share` holders waits until `until`.
fn place(share: u8, until: u64, outcome: Outcome) -> Vec<Law> {
    let holders = [shared(2, 1, 1, 2_000, 10), shared(2, 2, 2, 900, 10)];
    let release = ok(Op::Release, 2, 2, 0, (200, 201));
    let waits = |owner, share, until| {
        let wait = ok(Op::Wait, owner, 0, 900, (20, until));
        Record { share, outcome: Outcome::Refused, ..wait }
    };
    let first = Record { outcome, ..waits(3, share, until) };
    let records = [holders[0], holders[1], release, first, waits(4, 2, 600)];
    laws(&records, &Rules { idle_micros: 50_000, ..Rules::default() })
}

#[test]
fn a_place_is_not_free_for_long_while_somebody_waits() {
    assert_eq!(place(2, 600, Outcome::Refused), [Law::L5]);
    assert_eq!(place(0, 600, Outcome::Refused), [Law::L5]);
    // The first waiter may be one that does not tolerate the holder.
    assert_eq!(place(1, 600, Outcome::Refused), []);
    assert_eq!(place(1, 560, Outcome::Refused), []);
    // When the first waiter has left, the next is let in, whatever the first was told.
    assert_eq!(place(1, 400, Outcome::Refused), [Law::L5]);
    assert_eq!(place(1, 400, Outcome::Failed), [Law::L5]);
    assert_eq!(place(1, 560, Outcome::Failed), []);
}

#[test]
fn each_grant_begins_another_while() {
    let holder = [shared(0, 1, 1, 2_000, 10), ok(Op::Check, 1, 1, 0, (11, 11))];
    let former = [shared(0, 9, 2, 5, 12), ok(Op::Release, 9, 2, 0, (13, 13))];
    let wait =
        |owner, fence, told| Record { share: 0, ..ok(Op::Wait, owner, fence, 900, (20, told)) };
    let rules = Rules { idle_micros: 50_000, ..Rules::default() };
    let begin = [holder[0], holder[1], former[0], former[1]];
    let served = [wait(2, 3, 60), wait(3, 4, 105), wait(4, 5, 150)];
    assert_right(&[&begin[..], &served].concat(), &rules);
    let late = [wait(2, 3, 60), wait(3, 4, 190)];
    assert_eq!(laws(&[&begin[..], &late].concat(), &rules), [Law::L5]);
}
