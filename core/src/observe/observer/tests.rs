//! What each event adds to the figures, the log and the list of the most contended locks.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::*;
use crate::lock::{Owner, Proof, Share};
use crate::observe::ServerGauges;

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

/// The first event that is published.
fn note(observer: &mut Observer, outcome: Outcome<'_>, now: Moment) -> Option<Event> {
    observer.note(LOCK, &outcome, Given::Asked, now)[0]
}

fn granted(
    observer: &mut Observer,
    owner: &str,
    fence: Fence,
    end: u64,
    now: Moment,
) -> Option<Event> {
    let owner = Owner::new(owner.as_bytes()).unwrap();
    let grant = Grant { owner, fence, deadline: in_ms(end), share: Share::EXCLUSIVE };
    let outcome = Outcome::Granted { grant, former: None, others: OtherHolders::None };
    note(observer, outcome, now)
}

/// A grant of `LOCK` that begins and ends this many milliseconds after `NOW`.
fn grant(observer: &mut Observer, owner: &str, begin: u64, end: u64) -> Option<Event> {
    granted(observer, owner, fence(begin), end, at(begin))
}

/// A release or an extension by this owner, which does not hold the lock.
fn refused(
    observer: &mut Observer,
    refused: Refused,
    owner: &str,
    is_held: bool,
    now: Moment,
) -> Option<Event> {
    let proof = Proof { owner: Owner::new(owner.as_bytes()).unwrap(), fence: None };
    observer.refusal(refused, LOCK, &NotHolder { proof, is_held }, now)
}

/// A waiter saw that the first grant of "a", until 50 ms after `NOW`, is over.
fn lost(observer: &mut Observer, by: LostBy, now: Moment) -> Option<Event> {
    let (fence, deadline) = (Some(fence(0)), Some(in_ms(50)));
    observer.note_lost(LOCK, &Lost { owner: (*b"a").into(), fence, deadline, by }, now)
}

fn restored(observer: &mut Observer, now: Moment) {
    let seen = Seen { value: (*b"a").into(), deadline: None };
    observer.note_restored(LOCK, &seen, now);
}

/// Event, owner and milliseconds of every entry, newest first.
fn noted(observer: &Observer) -> Vec<(Noted, &str, Option<u64>)> {
    let entries = observer.log.latest(usize::MAX).map(|entry| {
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
    observer.released(OTHER, Some(fence(0)), at(80));
    assert_eq!(observer.recent.held(at(80)), 1, "that was another lock");
    observer.released(LOCK, None, at(80));
    let _ = note(&mut observer, Outcome::Extended { fence: None, deadline: in_ms(90) }, at(80));
    assert_eq!(observer.holds.count(), 1, "a foreign lock is not timed");
    observer.released(LOCK, Some(fence(0)), at(80));
    let hold = |name| (name, 80_000);
    let holds = ["hold_us_p50", "hold_us_p95", "hold_us_p99", "hold_us_max"].map(hold);
    let counted = [("grants", 1), ("releases", 3), ("extends", 1)];
    assert_eq!(rows(&observer, at(80)), [&counted[..], &holds].concat());
    assert!(noted(&observer).is_empty());
}

#[test]
fn a_hold_is_timed_if_its_fence_tells_the_time_of_its_grant() {
    let mut observer = Observer::new();
    // A fence ahead of the clock does not, and then neither does an earlier one.
    let _ = granted(&mut observer, "a", fence(5_000), 60_000, NOW);
    observer.released(LOCK, Some(fence(5_000)), at(9_000));
    assert_eq!(observer.holds.count(), 0);
    let _ = grant(&mut observer, "a", 9_000, 60_000);
    observer.released(LOCK, Some(fence(9_000)), at(9_001));
    assert_eq!((observer.holds.count(), observer.holds.max()), (1, 1_000));
    let mut observer = Observer::new();
    for number in 0..5 {
        // Many grants in one tick of the clock took no time.
        let fence = Fence::new(NOW.micros() + number).unwrap();
        let _ = granted(&mut observer, "a", fence, 9, NOW);
        observer.released(LOCK, Some(fence), NOW);
    }
    assert_eq!((observer.holds.count(), observer.holds.max()), (5, 0));
    // A clock that was set back further makes the duration unknown.
    let _ = grant(&mut observer, "a", 5_000, 60_000);
    observer.released(LOCK, Some(fence(5_000)), NOW);
    assert_eq!(observer.holds.count(), 5);
}

#[test]
fn a_retry_or_an_extension_that_moves_the_end_keeps_the_lock_held() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 10);
    let (owner, fence_number) = (Owner::new(b"a").unwrap(), fence(0).number());
    let again = |longer| Outcome::Again { owner, fence_number, longer, share: Share::EXCLUSIVE };
    assert_eq!(note(&mut observer, again(None), NOW), None);
    assert_eq!(rows(&observer, at(11)), [("grants", 1), ("retries", 1)]);
    assert_eq!(note(&mut observer, again(Some(in_ms(20))), NOW), Some(Event::Extended));
    assert_eq!(observer.recent.held(at(20)), 1);
    let extended = Outcome::Extended { fence: Some(fence(0)), deadline: in_ms(30) };
    assert_eq!(note(&mut observer, extended, NOW), Some(Event::Extended));
    assert_eq!(observer.recent.held(at(30)), 1);
}

#[test]
fn refused_tries_are_counted_for_the_server_and_for_the_lock() {
    let mut observer = Observer::new();
    observer.refused(LOCK);
    observer.refused(LOCK);
    assert_eq!(rows(&observer, NOW), [("tries_refused", 2)]);
    assert_eq!(observer.contention.top(1)[0].refused, 2);
    observer.contention.reset();
    assert!(observer.contention.top(1).is_empty());
    assert_eq!(rows(&observer, NOW), [("tries_refused", 2)], "RESET empties the list alone");
}

#[test]
fn every_wait_ends_in_one_of_four_ways() {
    let mut observer = Observer::new();
    let ends = [WaitEnd::Granted, WaitEnd::TimedOut, WaitEnd::Abandoned, WaitEnd::Refused];
    for (number, end) in ends.into_iter().enumerate() {
        for _ in 0..=number {
            observer.wait_started(LOCK, b"a", 1 + number);
            observer.wait_ended(LOCK, b"a", 40_000, end, at(40));
        }
    }
    let counters = observer.counters;
    assert_eq!((counters.waits_started, counters.waiters_most), (1 + 2 + 3 + 4, 4));
    assert_eq!((counters.waits_granted, counters.waits_timed_out), (1, 2));
    assert_eq!((counters.waits_abandoned, counters.waits_refused), (3, 4));
    let lock = observer.contention.top(1)[0];
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
    let long = |millis| (Noted::LongWait, "a", Some(millis));
    assert_eq!(noted(&observer), [long(21), long(USUAL_LONG_WAIT_MILLIS)]);
    observer.configure(0, 20);
    wait(&mut observer, 21, WaitEnd::Granted);
    assert!(noted(&observer).is_empty(), "an operator wants no log");
}

#[test]
fn what_comes_by_the_thousand_is_noted_once_a_second_and_counted_each_time() {
    let mut observer = Observer::new();
    for millis in [0, 1, 999, 1_000, 1_001] {
        observer.queue_full(LOCK, b"a", at(millis));
        restored(&mut observer, at(millis));
    }
    let both = [(Noted::Restored, "a", Some(0)), (Noted::QueueFull, "a", Some(0))];
    assert_eq!(noted(&observer), [both, both].concat());
    let expected = [("queue_full", 5), ("evictions_restored", 5)];
    assert_eq!(rows(&observer, NOW), [&expected[..], &[("log_len", 4)]].concat());
    assert_eq!(observer.contention.top(1)[0].refused, 5);
    // A clock that was set back does not suppress the note.
    observer.queue_full(LOCK, b"a", Moment::from_millis(NOW.millis() - 5_000));
    assert_eq!(noted(&observer).len(), 5);
    observer.log.reset();
    assert!(noted(&observer).is_empty());
}

#[test]
fn a_late_release_or_extension_is_noted_once_and_counted_each_time() {
    for (kind, note, names) in [
        (Refused::Release, Noted::LateRelease, ["releases_refused", "releases_late"]),
        (Refused::Extend, Noted::LateExtend, ["extends_refused", "extends_late"]),
    ] {
        let mut observer = Observer::new();
        let _ = grant(&mut observer, "a", 0, 50);
        let late = refused(&mut observer, kind, "a", false, at(57));
        assert_eq!(late, Some(Event::Lost));
        assert_eq!(refused(&mut observer, kind, "a", false, at(90)), None);
        assert_eq!(refused(&mut observer, kind, "b", false, at(90)), None, "a stranger");
        assert_eq!(noted(&observer), [(note, "a", Some(7))]);
        let expected = [("grants", 1), (names[0], 3), (names[1], 2), ("log_len", 1)];
        assert_eq!(rows(&observer, at(90)), expected);
    }
}

#[test]
fn a_holder_that_comes_back_tells_what_became_of_its_lock() {
    for (is_held, event) in [(false, Noted::Deleted), (true, Noted::Overwritten)] {
        let mut observer = Observer::new();
        let _ = grant(&mut observer, "a", 0, 50);
        let lost = refused(&mut observer, Refused::Release, "a", is_held, at(20));
        assert_eq!((lost, noted(&observer)), (Some(Event::Lost), vec![(event, "a", Some(30))]));
        assert_eq!(observer.counters.releases_late, 0);
    }
}

#[test]
fn a_lock_that_is_free_before_its_time_was_deleted() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    assert_eq!(grant(&mut observer, "b", 20, 90), Some(Event::Lost));
    let told = refused(&mut observer, Refused::Release, "a", true, at(21));
    assert_eq!(told, None, "once is enough");
    assert_eq!(noted(&observer), [(Noted::Deleted, "", Some(30))]);
}

#[test]
fn a_loss_that_a_waiter_saw_is_noted_once() {
    for (by, event) in
        [(LostBy::Deletion, Noted::Deleted), (LostBy::Overwriting, Noted::Overwritten)]
    {
        let mut observer = Observer::new();
        let _ = grant(&mut observer, "a", 0, 50);
        assert_eq!(lost(&mut observer, by, at(20)), Some(Event::Lost));
        assert_eq!(grant(&mut observer, "b", 21, 90), None);
        assert_eq!(noted(&observer), [(event, "a", Some(30))]);
    }
    let mut observer = Observer::new();
    let foreign = |by| Lost { owner: (*b"a").into(), fence: None, deadline: None, by };
    assert_eq!(observer.note_lost(LOCK, &foreign(LostBy::Deletion), NOW), None, "a release");
    let ran_out = foreign(LostBy::RunningOut);
    assert_eq!(observer.note_lost(LOCK, &ran_out, NOW), Some(Event::Lost));
    assert_eq!(rows(&observer, NOW), [("expiries_with_waiters", 1)]);
}

#[test]
fn that_a_holder_was_late_is_noted_although_a_waiter_saw_the_end_of_the_lease() {
    let mut observer = Observer::new();
    let _ = grant(&mut observer, "a", 0, 50);
    assert_eq!(lost(&mut observer, LostBy::RunningOut, at(51)), Some(Event::Lost));
    assert_eq!(grant(&mut observer, "b", 51, 90), None);
    for _ in 0..2 {
        assert_eq!(refused(&mut observer, Refused::Release, "a", true, at(60)), None);
    }
    assert_eq!(noted(&observer), [(Noted::LateRelease, "a", Some(10))]);
    assert_eq!(observer.counters.releases_late, 2);
    // The end of an earlier grant does not affect the current one.
    let _ = lost(&mut observer, LostBy::RunningOut, at(60));
    assert_eq!(observer.recent.held(at(60)), 1);
}

#[test]
fn nothing_is_said_of_a_grant_that_was_taken_back_or_forgotten_with_the_role() {
    let ways: [fn(&mut Observer); 2] =
        [|observer| observer.note_taken_back(LOCK, fence(0)), Observer::forget_grants];
    for forget in ways {
        let mut observer = Observer::new();
        let _ = grant(&mut observer, "a", 0, 50);
        forget(&mut observer);
        assert_eq!(observer.recent.held(NOW), 0);
        assert_eq!(grant(&mut observer, "b", 20, 90), None);
        assert_eq!(rows(&observer, at(20)), [("held", 1), ("grants", 2)]);
        assert_eq!(refused(&mut observer, Refused::Release, "a", false, at(60)), None);
    }
}

#[test]
fn all_of_it_is_small_and_fixed() {
    assert!(size_of::<Observer>() <= 12 * 1_024, "{}", size_of::<Observer>());
}
