//! What each event adds to the figures, the log and the list of the most contended locks.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::*;
use crate::lock::{Owner, Proof, Share, Stored};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);
const LOCK: Name<'static> = Name { db: 0, key: b"k" };
const OTHER: Name<'static> = Name { db: 0, key: b"other" };

fn at(millis: u64) -> Moment {
    NOW.plus_millis(millis)
}

/// The fence of a grant issued `millis` after `NOW`.
fn fence(millis: u64) -> Fence {
    Fence::new(at(millis).micros()).unwrap()
}

fn in_ms(millis: u64) -> Deadline {
    Deadline::from_millis(at(millis).millis())
}

/// A release or an extension by this owner, which does not hold the lock.
fn refused(
    observer: &mut Observer,
    refused: Refused,
    lock: Name<'_>,
    owner: &str,
    stored: Stored<'_>,
    now: Moment,
) -> Option<Loss> {
    let proof = Proof { owner: Owner::new(owner.as_bytes()).unwrap(), fence: None };
    let is_held = !stored.may_be_granted(now);
    observer.refusal(refused, lock, &NotHolder { proof, is_held }, now)
}

/// A grant of `LOCK` that begins and ends this many milliseconds after `NOW`.
fn grant(observer: &mut Observer, owner: &str, begin: u64, end: u64) -> Option<Loss> {
    let owner = Owner::new(owner.as_bytes()).unwrap();
    let grant = Grant { owner, fence: fence(begin), deadline: in_ms(end), share: Share::EXCLUSIVE };
    observer.granted(LOCK, &grant, Given::Asked, OtherHolders::None, at(begin))
}

fn text(value: &str, deadline: Option<Deadline>) -> Stored<'_> {
    Stored::Text { value: value.as_bytes(), deadline }
}

/// Event, owner and milliseconds of every entry, newest first.
fn noted(observer: &Observer) -> Vec<(Noted, &str, Option<u64>)> {
    let entries = observer.latest(usize::MAX).map(|entry| {
        assert!(entry.key.as_bytes() == LOCK.key && entry.db == LOCK.db);
        (entry.event, std::str::from_utf8(entry.owner.as_bytes()).unwrap(), entry.millis)
    });
    entries.collect()
}

/// The rows that are not 0.
fn rows(observer: &Observer, now: Moment) -> Vec<(&'static str, u64)> {
    let rows = observer.rows(ServerGauges::default(), now);
    rows.filter(|row| row.1 > 0).map(|(name, value)| (name.to_str().unwrap(), value)).collect()
}

#[test]
fn a_grant_and_its_release_are_counted_and_timed() {
    let mut observer = Observer::new();
    assert_eq!(grant(&mut observer, "a", 0, 500), None);
    assert_eq!(rows(&observer, at(10)), [("held", 1), ("grants", 1)]);
    observer.released(LOCK, Some(fence(0)), at(80));
    let hold = |name| (name, 80_000);
    let holds = ["hold_us_p50", "hold_us_p95", "hold_us_p99", "hold_us_max"].map(hold);
    let counted = [("grants", 1), ("releases", 1)];
    assert_eq!(rows(&observer, at(80)), [&counted[..], &holds].concat());
    assert!(noted(&observer).is_empty());
}

#[test]
fn a_fence_that_was_ahead_of_the_clock_times_no_hold() {
    let mut observer = Observer::new();
    let owner = Owner::new(b"a").unwrap();
    let ahead =
        Grant { owner, fence: fence(5_000), deadline: in_ms(60_000), share: Share::EXCLUSIVE };
    let _ = observer.granted(LOCK, &ahead, Given::Asked, OtherHolders::None, NOW);
    observer.released(LOCK, Some(ahead.fence), at(9_000));
    assert_eq!(observer.holds.count(), 0);
    let _ = grant(&mut observer, "a", 9_000, 60_000);
    observer.released(LOCK, Some(fence(9_000)), at(9_001));
    assert_eq!((observer.holds.count(), observer.holds.max()), (1, 1_000));
}

#[test]
fn a_hold_that_was_shorter_than_the_clock_can_tell_took_no_time() {
    let mut observer = Observer::new();
    let owner = Owner::new(b"a").unwrap();
    for number in 0..5 {
        // Many grants in one tick of the clock.
        let fence = Fence::new(NOW.micros() + number).unwrap();
        let _ = observer.granted(
            LOCK,
            &Grant { owner, fence, deadline: in_ms(9), share: Share::EXCLUSIVE },
            Given::Asked,
            OtherHolders::None,
            NOW,
        );
        observer.released(LOCK, Some(fence), NOW);
    }
    assert_eq!((observer.holds.count(), observer.holds.max()), (5, 0));
    // A clock that was set back further makes the duration unknown.
    let _ = grant(&mut observer, "a", 5_000, 60_000);
    observer.released(LOCK, Some(fence(5_000)), NOW);
    assert_eq!(observer.holds.count(), 5);
}

#[test]
fn a_foreign_lock_is_counted_and_not_timed() {
    let mut observer = Observer::new();
    observer.released(LOCK, None, NOW);
    observer.extended(LOCK, None, in_ms(1));
    assert_eq!(rows(&observer, NOW), [("releases", 1), ("extends", 1)]);
}

#[test]
fn a_hand_off_is_a_grant_too() {
    let mut observer = Observer::new();
    let owner = Owner::new(b"a").unwrap();
    let grant = Grant { owner, fence: fence(0), deadline: in_ms(9), share: Share::EXCLUSIVE };
    let _ = observer.granted(LOCK, &grant, Given::HandedOff, OtherHolders::None, NOW);
    assert_eq!(rows(&observer, NOW), [("held", 1), ("grants", 1), ("hand_offs", 1)]);
}

#[test]
fn a_retry_or_an_extension_that_moves_the_end_keeps_the_lock_held() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 10);
    observer.retried(LOCK, Some(fence(0)), None);
    assert_eq!(rows(&observer, at(11)), [("grants", 1), ("retries", 1)]);
    observer.retried(LOCK, Some(fence(0)), Some(in_ms(20)));
    assert_eq!(observer.held(at(20)), 1);
    observer.extended(LOCK, Some(fence(0)), in_ms(30));
    assert_eq!(observer.held(at(30)), 1);
    assert_eq!((observer.counters.retries, observer.counters.extends), (2, 1));
}

#[test]
fn refused_tries_are_counted_for_the_server_and_for_the_lock() {
    let mut observer = Observer::new();
    observer.refused(LOCK);
    observer.refused(LOCK);
    assert_eq!(rows(&observer, NOW), [("tries_refused", 2)]);
    assert_eq!(observer.top(1)[0].refused, 2);
    observer.reset_top();
    assert!(observer.top(1).is_empty());
    assert_eq!(rows(&observer, NOW), [("tries_refused", 2)], "RESET empties the list alone");
}

#[test]
fn every_wait_ends_in_one_of_four_ways() {
    let mut observer = Observer::new();
    for (number, end) in [WaitEnd::Granted, WaitEnd::TimedOut, WaitEnd::Abandoned, WaitEnd::Refused]
        .into_iter()
        .enumerate()
    {
        for _ in 0..=number {
            observer.wait_started(LOCK, b"a", 1 + number);
            observer.wait_ended(LOCK, b"a", 40_000, end, at(40));
        }
    }
    let counters = observer.counters;
    assert_eq!((counters.waits_started, counters.waiters_most), (1 + 2 + 3 + 4, 4));
    assert_eq!((counters.waits_granted, counters.waits_timed_out), (1, 2));
    assert_eq!((counters.waits_abandoned, counters.waits_refused), (3, 4));
    let lock = observer.top(1)[0];
    assert_eq!((lock.waits, lock.refused), (10, 0));
    // Waits that ended with an error continue elsewhere.
    assert_eq!((observer.waits.count(), lock.total_wait_us), (6, 6 * 40_000));
    assert_eq!((observer.waits.max(), lock.longest_wait_us), (40_000, 40_000));
    assert!(rows(&observer, NOW).contains(&("wait_us_p99", 40_000)));
}

#[test]
fn a_wait_is_noted_from_the_threshold_on() {
    let mut observer = Observer::new();
    let wait = |observer: &mut Observer, millis, end| {
        observer.wait_ended(LOCK, b"a", millis * 1_000, end, at(millis));
    };
    wait(&mut observer, USUAL_LONG_WAIT_MILLIS - 1, WaitEnd::Granted);
    assert!(noted(&observer).is_empty());
    wait(&mut observer, USUAL_LONG_WAIT_MILLIS, WaitEnd::TimedOut);
    observer.configure(Log::USUAL_LENGTH, 20);
    wait(&mut observer, 21, WaitEnd::Abandoned);
    wait(&mut observer, 22, WaitEnd::Refused);
    observer.configure(Log::USUAL_LENGTH, 0);
    wait(&mut observer, 1_000_000, WaitEnd::Granted);
    assert_eq!(
        noted(&observer),
        [(Noted::LongWait, "a", Some(21)), (Noted::LongWait, "a", Some(USUAL_LONG_WAIT_MILLIS))]
    );
}

#[test]
fn a_full_queue_is_noted_once_a_second_and_counted_each_time() {
    let mut observer = Observer::new();
    for millis in [0, 1, 999, 1_000, 1_001] {
        observer.queue_full(LOCK, b"a", at(millis));
    }
    assert_eq!(noted(&observer), vec![(Noted::QueueFull, "a", Some(0)); 2]);
    assert_eq!((observer.counters.queue_full, observer.top(1)[0].refused), (5, 5));
    assert_eq!(observer.counters.tries_refused, 0);
    // A clock that was set back does not suppress the note.
    observer.queue_full(LOCK, b"a", Moment::from_millis(NOW.millis() - 5_000));
    assert_eq!(noted(&observer).len(), 3);
}

#[test]
fn a_late_release_is_noted_once_and_counted_each_time() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    let late = refused(&mut observer, Refused::Release, LOCK, "a", Stored::Nothing, at(57));
    assert_eq!(late, Some(Loss::RanOut { by_ms: 7 }));
    let again = refused(&mut observer, Refused::Release, LOCK, "a", Stored::Nothing, at(90));
    assert_eq!(again, None);
    let stranger = refused(&mut observer, Refused::Release, LOCK, "b", Stored::Nothing, at(90));
    assert_eq!(stranger, None);
    assert_eq!(noted(&observer), [(Noted::LateRelease, "a", Some(7))]);
    let expected = [("grants", 1), ("releases_refused", 3), ("releases_late", 2)];
    assert_eq!(rows(&observer, at(90)), [&expected[..], &[("log_len", 1)]].concat());
}

#[test]
fn a_late_extension_is_told_apart_from_a_late_release() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    let late = refused(&mut observer, Refused::Extend, LOCK, "a", Stored::Nothing, at(57));
    assert_eq!(late, Some(Loss::RanOut { by_ms: 7 }));
    assert_eq!(noted(&observer), [(Noted::LateExtend, "a", Some(7))]);
    let counters = observer.counters;
    assert_eq!((counters.extends_refused, counters.extends_late), (1, 1));
    assert_eq!((counters.releases_refused, counters.releases_late), (0, 0));
}

#[test]
fn a_holder_that_comes_back_tells_what_became_of_its_lock() {
    let gone = Loss::Deleted { left_ms: 30 };
    let replaced = Loss::Overwritten { left_ms: 30 };
    for (stored, loss, event) in [
        (Stored::Nothing, gone, Noted::Deleted),
        (text("x", Some(in_ms(19))), gone, Noted::Deleted),
        (text("x", Some(in_ms(20))), replaced, Noted::Overwritten),
        (text("x", None), replaced, Noted::Overwritten),
        (Stored::OtherType, replaced, Noted::Overwritten),
    ] {
        let mut observer = Observer::new();
        let _ = grant(&mut observer, "a", 0, 50);
        let told = refused(&mut observer, Refused::Release, LOCK, "a", stored, at(20));
        assert_eq!(told, Some(loss), "{stored:?}");
        assert_eq!(noted(&observer), [(event, "a", Some(30))], "{stored:?}");
        assert_eq!(observer.counters.releases_late, 0);
    }
}

#[test]
fn a_lock_that_is_free_before_its_time_was_deleted() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    assert_eq!(grant(&mut observer, "b", 20, 90), Some(Loss::Deleted { left_ms: 30 }));
    assert_eq!(noted(&observer), [(Noted::Deleted, "", Some(30))]);
    let told =
        refused(&mut observer, Refused::Release, LOCK, "a", text("b", Some(in_ms(90))), at(21));
    assert_eq!(told, None, "once is enough");
    assert_eq!(noted(&observer).len(), 1);
}

#[test]
fn a_loss_that_was_seen_is_noted_once() {
    for overwritten in [false, true] {
        let mut observer = Observer::new();
        let _ = grant(&mut observer, "a", 0, 50);
        let event = if overwritten {
            observer.overwritten(LOCK, b"a", Some(in_ms(50)), at(20));
            Noted::Overwritten
        } else {
            observer.deleted(LOCK, b"a", Some(in_ms(50)), at(20));
            Noted::Deleted
        };
        assert_eq!(grant(&mut observer, "b", 21, 90), None);
        assert_eq!(noted(&observer), [(event, "a", Some(30))]);
    }
    let mut observer = Observer::new();
    observer.deleted(LOCK, b"foreign", None, NOW);
    assert_eq!(noted(&observer), [(Noted::Deleted, "foreign", None)]);
}

#[test]
fn a_loss_that_a_waiter_was_there_to_see_is_told_once_and_that_its_holder_was_late_is_still_noted()
{
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    observer.expired_with_waiters(LOCK, Some(fence(0)));
    assert_eq!(grant(&mut observer, "b", 51, 90), None);
    for _ in 0..2 {
        let stored = text("b", Some(in_ms(90)));
        assert_eq!(refused(&mut observer, Refused::Release, LOCK, "a", stored, at(60)), None);
    }
    assert_eq!(noted(&observer), [(Noted::LateRelease, "a", Some(10))]);
    assert_eq!(observer.counters.releases_late, 2);
    // The end of an earlier grant does not affect the current one.
    observer.expired_with_waiters(LOCK, Some(fence(0)));
    assert_eq!(observer.held(at(60)), 1);
}

#[test]
fn a_grant_that_the_module_took_back_was_not_deleted() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    let _event = observer.note_taken_back(LOCK, fence(0));
    assert_eq!(grant(&mut observer, "b", 1, 60), None);
    assert_eq!(rows(&observer, at(1)), [("held", 1), ("grants", 2)]);
}

#[test]
fn nothing_is_said_of_grants_from_before_a_change_of_roles() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    observer.forget_grants();
    assert_eq!(observer.held(NOW), 0);
    assert_eq!(grant(&mut observer, "b", 20, 90), None);
    assert_eq!(refused(&mut observer, Refused::Release, LOCK, "a", Stored::Nothing, at(60)), None);
}

#[test]
fn what_is_put_back_and_what_ran_out_with_waiters_is_counted() {
    let mut observer = Observer::new();
    observer.restored(LOCK, b"a", NOW);
    observer.expired_with_waiters(LOCK, None);
    let expected = [("expiries_with_waiters", 1), ("evictions_restored", 1), ("log_len", 1)];
    assert_eq!(rows(&observer, NOW), expected);
    assert_eq!(noted(&observer), [(Noted::Restored, "a", Some(0))]);
    observer.reset_log();
    assert_eq!(rows(&observer, NOW), expected[..2]);
}

#[test]
fn what_is_put_back_is_noted_once_a_second() {
    let mut observer = Observer::new();
    for millis in [0, 1, 999, 1_000, 1_001] {
        observer.restored(LOCK, b"a", at(millis));
    }
    assert_eq!(noted(&observer), vec![(Noted::Restored, "a", Some(0)); 2]);
    assert_eq!(observer.counters.evictions_restored, 5);
}

#[test]
fn the_log_is_as_long_as_an_operator_wants_it() {
    let mut observer = Observer::new();
    observer.restored(LOCK, b"a", NOW);
    observer.configure(0, 0);
    observer.restored(LOCK, b"a", NOW);
    assert!(noted(&observer).is_empty());
}

#[test]
fn what_others_count_is_shown_as_they_say() {
    let observer = Observer::new();
    let gauges = ServerGauges {
        version: 8,
        effective_max_waiters: 9,
        bindings: 10,
        evictions_pending: 7,
        quarantine_left_us: 6,
        waiters: 1,
        tickets: 10,
        longest_wait_us: 2,
        panics_caught: 3,
        fences_refused: 4,
        fence_ahead_us: 5,
    };
    let shown: Vec<_> = observer.rows(gauges, NOW).filter(|row| row.1 > 0).collect();
    assert_eq!(
        shown,
        [
            (c"version", 8),
            (c"waiters", 1),
            (c"tickets", 10),
            (c"effective_max_waiters", 9),
            (c"longest_wait_us", 2),
            (c"bindings", 10),
            (c"evictions_pending", 7),
            (c"quarantine_left_us", 6),
            (c"panics_caught", 3),
            (c"fences_refused", 4),
            (c"fence_ahead_us", 5)
        ]
    );
}

#[test]
fn all_of_it_is_small_and_fixed() {
    assert!(size_of::<Observer>() <= 12 * 1_024, "{}", size_of::<Observer>());
}

#[test]
fn locks_are_not_mixed_up() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    observer.released(OTHER, Some(fence(0)), at(1));
    let elsewhere = Name { db: 1, ..LOCK };
    assert_eq!(
        refused(&mut observer, Refused::Release, elsewhere, "a", Stored::Nothing, at(60)),
        None
    );
    assert_eq!(observer.held(at(1)), 1);
}
