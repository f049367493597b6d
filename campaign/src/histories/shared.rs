//! Handwritten histories of locks that several owners hold.

use super::{assert_right, assert_wrong, laws, ok, refused, span, unheard};
use crate::checker::{Law, Rules, Span};
use crate::record::{EVERY_LOCK, Op, Outcome, Record};

/// A try that tolerates this many holders.
fn shared(share: u8, owner: u32, fence: u64, ttl: u32, at: u64) -> Record {
    Record { share, ..ok(Op::Try, owner, fence, ttl, (at, at)) }
}

/// The clock is set back within this span of milliseconds.
fn set_back(from: u64, to: u64) -> Rules {
    Rules { late_millis: 50, set_back: span(from, to), ..Rules::default() }
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
fn a_hold_that_has_ended_is_in_force_again_only_where_the_clock_was_set_back() {
    let (long, short) = (shared(0, 1, 1, 900, 10), shared(0, 2, 2, 20, 10));
    let lost = refused(ok(Op::Release, 2, 2, 0, (40, 40)));
    let again = shared(0, 2, 2, 20, 60);
    assert_wrong(&[long, short, lost, again], Law::L2);
    assert_right(&[long, short, lost, again], &set_back(45, 50));
    assert_right(&[long, short, lost, again], &set_back(30, 41));
    for elsewhen in [set_back(10, 35), set_back(65, 70)] {
        assert_eq!(laws(&[long, short, lost, again], &elsewhen), [Law::L2]);
    }
    // This also holds if the owner no longer knows its fence.
    let extended = ok(Op::Extend, 2, 0, 20, (60, 60));
    assert_right(&[long, short, lost, extended], &set_back(45, 50));
    assert_eq!(laws(&[long, short, lost, extended], &set_back(65, 70)), [Law::L3]);
}

#[test]
fn a_grant_that_was_over_when_its_waiter_was_told_is_told_of_later_where_the_clock_was_set_back() {
    let wait = Record { share: 0, ..ok(Op::Wait, 1, 0, 20, (5, 40)) };
    let other = shared(0, 2, 4, 900, 12);
    let again = shared(0, 1, 3, 20, 60);
    assert_right(&[refused(wait), other, again], &set_back(45, 50));
    for elsewhen in [set_back(1, 4), set_back(65, 70)] {
        assert_eq!(laws(&[refused(wait), other, again], &elsewhen), [Law::L2, Law::L1]);
    }
    // A later grant has ended what the wait was granted.
    let since = [shared(0, 1, 5, 20, 42), ok(Op::Release, 1, 5, 0, (43, 43))];
    let stale = laws(&[refused(wait), other, since[0], since[1], again], &set_back(45, 50));
    assert!(stale.contains(&Law::L2), "{stale:?}");
    // The lease of the wait must have ended: by itself, or because the clock was also set forward.
    let longer = Record { ttl: 900, ..wait };
    assert_eq!(laws(&[refused(longer), other, again], &set_back(45, 50)), [Law::L2, Law::L1]);
    let to_and_fro = Span { from: 30_000, to: 50_000 };
    assert_right(
        &[refused(longer), other, again],
        &Rules { loss: vec![to_and_fro], ..set_back(30, 50) },
    );
    // Only a waiter can be granted a lock and yet be refused.
    let tried = refused(Record { op: Op::Try, ..wait });
    assert_eq!(laws(&[tried, other, again], &set_back(45, 50)), [Law::L2, Law::L1]);
}

#[test]
fn a_short_wait_excuses_nothing_where_the_clock_was_set_back() {
    let wait = |share, asked, told| Record { share, ..ok(Op::Wait, 1, 0, 900, (asked, told)) };
    // Another owner held the lock all the time.
    let holder = [shared(1, 9, 2, 900, 1), ok(Op::Release, 9, 2, 0, (30, 30))];
    let later = [shared(0, 2, 10, 900, 40), shared(0, 1, 8, 900, 60)];
    let records = [holder[0], refused(wait(0, 5, 25)), holder[1], later[0], later[1]];
    assert_eq!(laws(&records, &set_back(27, 28)), [Law::L2, Law::L1]);
    // The owner held the lock itself, and is told another fence.
    let reader = |fence, at| shared(0, 1, fence, 900, at);
    let records = [reader(1, 10), refused(wait(1, 12, 14)), reader(5, 20)];
    assert_eq!(laws(&records, &set_back(15, 16)), [Law::L1]);
}

#[test]
fn what_was_deleted_since_is_not_told_of_later_where_the_clock_was_set_back() {
    let wait = refused(Record { share: 0, ..ok(Op::Wait, 7, 0, 20, (50, 300)) });
    let (other, again) = (shared(0, 2, 900, 20, 2_000), shared(0, 7, 800, 20, 3_000));
    let with = |delete: Record, rules: &Rules| laws(&[wait, delete, other, again], rules);
    let delete = |at| ok(Op::Delete, u32::MAX, 0, 0, at);
    let everything = Record { lock: EVERY_LOCK, ..delete((490, 500)) };
    // Whether the clock was set back before the deletion or after it.
    for from in [200, 600] {
        let rules = Rules { late_millis: 2_000, ..set_back(from, from + 10) };
        assert_right(&[wait, other, again], &rules);
        for certain in [everything, delete((490, 500)), delete((301, 1_000))] {
            assert_eq!(with(certain, &rules), [Law::L2, Law::L1]);
        }
        // A deletion that may have come before the grant, or after the owner asked again, ends
        // nothing.
        for uncertain in
            [delete((300, 500)), delete((490, 3_000)), unheard(everything), delete((20, 30))]
        {
            assert_eq!(with(uncertain, &rules), []);
        }
        // Nor does a deletion that may have been lost.
        let lost = |to| Rules { loss: vec![Span { from: 400_000, to }], ..rules.clone() };
        assert_eq!(with(everything, &lost(490_000)), []);
        assert_eq!(with(everything, &lost(489_999)), [Law::L2, Law::L1]);
    }
}

#[test]
fn who_was_overtaken_waited_for_what_was_deleted_since_and_is_not_told_of_it() {
    let wait = refused(ok(Op::Wait, 7, 0, 20, (50, 300)));
    let delete = ok(Op::Delete, u32::MAX, 0, 0, (490, 500));
    let seen = ok(Op::Seen, 7, 0, 0, (1_960, 1_970));
    let overtakes = ok(Op::Wait, 2, 900, 20, (1_980, 2_000));
    let waiter = ok(Op::Wait, 7, 901, 20, (1_950, 2_030));
    let rules = set_back(200, 210);
    // The owner may have queued before the other, and be told now of its earlier grant.
    assert_right(&[wait, seen, overtakes, waiter], &rules);
    assert_eq!(laws(&[wait, delete, seen, overtakes, waiter], &rules), [Law::L4]);
}

#[test]
fn nobody_acts_by_what_was_deleted_since_where_the_clock_was_set_back() {
    let hold = |fence, at| ok(Op::Try, 1, fence, 20, (at, at));
    let delete = |at| ok(Op::Delete, u32::MAX, 0, 0, at);
    let rules = |from| {
        let set_back = [45, from].map(|at| Span { from: at * 1_000, to: at * 1_000 });
        Rules { set_back: set_back.into(), ..Rules::default() }
    };
    for op in [Op::Extend, Op::Release] {
        let acts = ok(op, 1, 0, 20, (80, 81));
        assert_right(&[hold(1, 10), acts], &rules(75));
        assert_eq!(laws(&[hold(1, 10), acts], &rules(85)), []);
        for from in [75, 85] {
            assert_eq!(laws(&[hold(1, 10), delete((52, 53)), acts], &rules(from)), [Law::L3]);
            assert_eq!(laws(&[hold(1, 10), delete((52, 80)), acts], &rules(from)), []);
            assert_eq!(laws(&[hold(1, 10), delete((10, 53)), acts], &rules(from)), []);
        }
        // A grant after the deletion is not deleted.
        let since = [hold(1, 10), delete((52, 53)), hold(2, 54), acts];
        assert_right(&since, &rules(75));
        assert_eq!(laws(&since, &rules(85)), [Law::L3]);
        // A wait that was refused may also have been granted the lock.
        let wait = refused(ok(Op::Wait, 1, 0, 2, (54, 60)));
        assert_right(&[hold(1, 10), delete((52, 53)), wait, acts], &rules(75));
        assert_right(&[wait, acts], &rules(75));
        assert_eq!(laws(&[wait, acts], &rules(85)), [Law::L3]);
        assert_eq!(laws(&[wait, delete((70, 72)), acts], &rules(75)), [Law::L3]);
    }
}

#[test]
fn a_grant_is_made_before_those_with_larger_fences() {
    // The fence of a later grant limits when this one was made. Otherwise it could be in force at
    // the check.
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
