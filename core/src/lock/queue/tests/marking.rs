//! Which lock is looked at when: in turn, what is due first, and never too often.

use super::super::marking::IN_A_TICK;
use super::*;
use std::cell::Cell;
use std::collections::HashSet;

/// None of these locks is marked.
fn three_locks() -> Queues<Connection> {
    let mut queues = Queues::new();
    for key in [b"a", b"b", b"c"] {
        let _ = queues.join(Name::new(0, key), waiter("bob", 1));
    }
    while take_marked(&mut queues).is_some() {}
    queues
}

#[test]
fn each_lock_has_its_turn_to_be_looked_at() {
    let mut queues = three_locks();
    let mut seen = HashSet::new();
    for _ in 0..queues.queues.capacity() {
        queues.doubt_next_slots(1);
        seen.extend(take_marked(&mut queues).map(|name| name.key.to_vec()));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    queues.doubt_next_slots(usize::MAX);
    assert_eq!(std::iter::from_fn(|| take_marked(&mut queues)).count(), 3);
}

#[test]
fn who_is_left_of_a_crowd_has_its_turn_at_once() {
    let mut queues = Queues::new();
    let keys = (0..1_000_u32).map(u32::to_be_bytes);
    let crowd: Vec<_> = keys
        .map(|key| match queues.join(Name::new(0, &key), waiter("bob", 1)) {
            Joined::Queued(id) => id,
            other => panic!("{other:?}"),
        })
        .collect();
    for id in crowd.into_iter().skip(1) {
        let _ = queues.leave(id);
    }
    while take_marked(&mut queues).is_some() {}
    for _ in 0..3 {
        queues.doubt_next_slots(1);
        assert!(take_marked(&mut queues).is_some());
    }
}

/// The keys of the locks that are marked for this cause, in the order in which they are served.
fn marked(queues: &mut Queues<Connection>, cause: Cause) -> Vec<u8> {
    std::iter::from_fn(|| queues.take_marked(cause)).map(|marked| marked.name.key[0]).collect()
}

#[test]
fn locks_are_served_in_the_order_in_which_they_were_marked() {
    let mut queues = three_locks();
    for key in [b"c", b"a", b"b"] {
        touch(&mut queues, key, Suspicion::Freed, NOW);
    }
    // Locks that are marked again keep their places; a lock that was served goes behind the others.
    assert_eq!(queues.take_marked(Cause::Suspected).unwrap().name.key[0], b'c');
    for key in [b"c", b"b", b"a"] {
        touch(&mut queues, key, Suspicion::Freed, NOW);
    }
    queues.check();
    assert_eq!(marked(&mut queues, Cause::Suspected), *b"abc");
}

#[test]
fn what_is_due_comes_before_what_is_suspected_and_that_before_all_that_is_doubted() {
    let mut queues = three_locks();
    touch(&mut queues, b"a", Suspicion::Freed, NOW);
    touch(&mut queues, b"b", Suspicion::Freed, NOW);
    assert!(queues.mark(Name::new(0, b"b")) && queues.mark(Name::new(0, b"c")));
    touch(&mut queues, b"c", Suspicion::Freed, NOW);
    queues.check();
    assert_eq!(marked(&mut queues, Cause::Due), *b"bc");
    assert_eq!(marked(&mut queues, Cause::Suspected), *b"a");
    assert!(!queues.has_marks());
    queues.mark_all(None);
    touch(&mut queues, b"c", Suspicion::Freed, NOW);
    queues.doubt_all_slots();
    queues.check();
    assert_eq!(marked(&mut queues, Cause::Suspected), *b"c");
    let mut doubted = marked(&mut queues, Cause::Doubted);
    doubted.sort_unstable();
    assert_eq!(doubted, *b"ab");
    assert!(!queues.has_marks());
}

/// How often a lock that is held is looked at, if it is named this often, and how often the clock is read for that.
fn looks_and_readings(
    suspicion: Suspicion,
    held: Stored<'_>,
    every_micros: usize,
    for_micros: u64,
) -> (u64, usize) {
    let (mut queues, _) = queue_of(&["bob"]);
    let mut fences = FenceClock::new();
    let (mut looks, readings) = (0_u64, Cell::new(0));
    for micros in (0..for_micros).step_by(every_micros) {
        let now = NOW.plus_micros(micros);
        let clock = || {
            readings.set(usize::saturating_add(readings.get(), 1));
            now
        };
        let _ = queues.suspect([KEY].into_iter(), || Some(suspicion), clock);
        let _ = queues.wake(at(now), 9);
        while let Some(name) = take_marked(&mut queues) {
            let look = queues.look(name.as_name(), held, at(now), LIMITS, &mut fences);
            assert_eq!(look, Look::Held { lost: Vec::new() });
            queues.check();
            looks = looks.saturating_add(1);
        }
    }
    (looks, readings.get())
}

#[test]
fn a_lock_that_was_just_looked_at_is_looked_at_again_after_a_moment() {
    let (mut queues, _) = queue_of(&["bob"]);
    assert_held(&mut queues, held_by("alice", None));
    touch(&mut queues, KEY, Suspicion::Freed, NOW);
    assert!(queues.has_marks(), "nobody has looked because of a touch before");
    assert_held(&mut queues, held_by("alice", None));
    touch(&mut queues, KEY, Suspicion::Freed, NOW.plus_micros(1));
    assert!(!queues.has_marks() && queues.waiters_if_settled(Name::new(0, KEY)).is_none());
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(Suspicion::Freed.gap_millis())));
    touch(&mut queues, KEY, Suspicion::Freed, in_ms(Suspicion::Freed.gap_millis()));
    assert!(queues.has_marks());
    queues.check();
}

#[test]
fn a_lock_that_may_only_have_been_rewritten_is_looked_at_less_often() {
    let (mut queues, _) = queue_of(&["bob"]);
    assert_held(&mut queues, held_by("alice", None));
    let gap = Suspicion::Rewritten.gap_millis();
    touch(&mut queues, KEY, Suspicion::Rewritten, NOW);
    assert_held(&mut queues, held_by("alice", None));
    touch(&mut queues, KEY, Suspicion::Rewritten, in_ms(3));
    assert!(!queues.has_marks());
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(gap)));
    touch(&mut queues, KEY, Suspicion::Freed, in_ms(3));
    assert!(queues.has_marks(), "that it may be free is more urgent");
    assert_held_at(&mut queues, held_by("alice", None), in_ms(3));
    touch(&mut queues, KEY, Suspicion::Rewritten, in_ms(4));
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(5)), "and is not forgotten over it");
    queues.check();
}

#[test]
fn a_lock_that_is_named_all_the_time_is_looked_at_once_in_a_while() {
    let held = held_by("alice", Some(in_ms(60_000)));
    let (looks, _) = looks_and_readings(Suspicion::Freed, held, 100, 100_000);
    assert_eq!(looks, 100 / Suspicion::Freed.gap_millis(), "in 100 ms");
    let held = held_by("alice", None);
    let (looks, readings) = looks_and_readings(Suspicion::Rewritten, held, 1_000, 1_000_000);
    assert_eq!(looks, 1_000 / Suspicion::Rewritten.gap_millis(), "in a second");
    assert!(readings <= 2, "{readings} readings: else the looks themselves tell the time");
}

#[test]
fn touches_between_two_looks_count_from_the_second_look() {
    let (mut queues, _) = queue_of(&["bob"]);
    let held = held_by("alice", None);
    let gap = Suspicion::Rewritten.gap_millis();
    assert_held(&mut queues, held);
    touch(&mut queues, KEY, Suspicion::Rewritten, NOW);
    // The command is queued in a transaction, and executed after the look that it caused.
    touch(&mut queues, KEY, Suspicion::Rewritten, in_ms(1));
    let mut due = NOW;
    for expected in [0, gap, 2 * gap, 4 * gap, 8 * gap] {
        due = queues.next_due(at(due)).filter(|_| !queues.has_marks()).unwrap_or(due);
        assert_eq!(due, in_ms(expected));
        let _ = queues.wake(at(due), 9);
        assert_held_at(&mut queues, held, due);
        queues.check();
    }
    assert!(queues.waiters_if_settled(Name::new(0, KEY)).is_none());
    touch(&mut queues, KEY, Suspicion::Rewritten, in_ms(8 * gap + 1));
    assert_eq!(queues.next_due(at(due)), Some(in_ms(9 * gap)), "not as late as it would be");
}

#[test]
fn slots_are_in_doubt_until_somebody_has_asked() {
    let mut queues = three_locks();
    touch(&mut queues, b"a", Suspicion::Freed, NOW);
    queues.doubt_next_slots(usize::MAX);
    for cause in [Cause::Suspected, Cause::Doubted, Cause::Doubted] {
        assert_eq!(queues.take_marked(cause).unwrap().ownership, Ownership::InDoubt);
    }
    queues.mark_all(None);
    assert_eq!(queues.take_marked(Cause::Doubted).unwrap().ownership, Ownership::Ours);
    queues.doubt_all_slots();
    assert_eq!(queues.take_marked(Cause::Doubted).unwrap().ownership, Ownership::InDoubt);
}

#[test]
fn a_touch_counts_from_the_end_of_the_pause_that_held_its_command_back() {
    let (mut queues, _) = queue_of(&["bob"]);
    assert_held(&mut queues, held_by("alice", None));
    touch(&mut queues, KEY, Suspicion::Freed, NOW);
    for millis in (0..2_500).step_by(10) {
        queues.postpone(Name::new(0, KEY), in_ms(millis), 10);
        assert!(!queues.has_marks());
        let _ = queues.wake(at(in_ms(millis + 10)), 9);
        assert!(queues.has_marks());
    }
    assert_held_at(&mut queues, held_by("alice", None), in_ms(2_500));
    assert_eq!(queues.next_due(at(in_ms(2_500))), Some(in_ms(2_510)), "and not a second later");
    queues.check();
}

#[test]
fn a_clock_set_back_before_any_look_was_due_makes_the_lock_be_looked_at() {
    let (mut queues, _) = queue_of(&["bob"]);
    let an_hour_ahead = in_ms(3_600_000);
    let held = held_by("alice", None);
    assert_held_at(&mut queues, held, an_hour_ahead);
    let _ = queues.wake(at(NOW), 9);
    assert!(queues.has_marks());
    assert_held(&mut queues, held);
    let _ = queues.wake(at(in_ms(999)), 9);
    assert!(!queues.has_marks(), "it is looked at every second, and not more often");
    queues.check();
}

/// `count` locks, none of them marked.
fn crowd(count: usize) -> Queues<Connection> {
    let mut queues = Queues::new();
    for number in 0..count {
        let key = number.to_string();
        let joined = queues.join(Name::new(0, key.as_bytes()), waiter("a", 1));
        assert!(matches!(joined, Joined::Queued(_)));
    }
    while take_marked(&mut queues).is_some() {}
    queues
}

/// The other locks are due in the next turn. They wait longer for their look, and all other clients wait no longer for
/// the server.
#[test]
fn no_more_locks_are_marked_in_one_turn_than_are_looked_at_in_it() {
    let most = Cause::Due.looks_in_a_turn();
    let mut queues = crowd(most + 1);
    for number in 0..=most {
        queues.look_no_later(Name::new(0, number.to_string().as_bytes()), NOW);
    }
    for (expected, is_more_due) in [(most, true), (1, false)] {
        assert!(queues.wake(at(NOW), 9).is_empty());
        assert_eq!(queues.next_due(at(NOW)).is_some_and(|due| due <= NOW), is_more_due);
        assert_eq!(std::iter::from_fn(|| take_marked(&mut queues)).count(), expected);
    }
    queues.check();
}

/// How many locks are looked at by routine until then, if a turn comes whenever one is due.
fn by_routine(queues: &mut Queues<Connection>, from: u64, until: u64) -> usize {
    let mut looks = 0_usize;
    let mut now = in_ms(from);
    while let Some(due) = queues.next_due(at(now)).filter(|due| *due < in_ms(until)) {
        now = now.max(due);
        assert!(queues.wake(at(now), 9).is_empty());
        looks = looks.saturating_add(marked(queues, Cause::Routine).len());
        assert!(!queues.has_marks());
    }
    queues.check();
    looks
}

#[test]
fn each_lock_is_looked_at_every_second_unless_they_are_very_many() {
    for count in [1, IN_A_TICK, 5_000] {
        let mut queues = crowd(count);
        assert_eq!(by_routine(&mut queues, 0, 1_000), 0, "{count}");
        assert_eq!(by_routine(&mut queues, 1_000, 1_980), count);
    }
    let mut queues = crowd(30_000);
    for second in 1..6 {
        let looks = by_routine(&mut queues, second * 1_000, (second + 1) * 1_000);
        assert_eq!(looks, 10_000, "in second {second}");
    }
}

#[test]
fn a_lock_that_was_looked_at_for_another_cause_is_not_looked_at_by_routine_before_a_second() {
    let mut queues = crowd(2);
    touch(&mut queues, b"0", Suspicion::Freed, in_ms(500));
    assert!(queues.wake(at(in_ms(500)), 9).is_empty());
    assert_eq!(marked(&mut queues, Cause::Suspected), *b"0");
    assert_eq!(by_routine(&mut queues, 500, 1_500), 1);
    assert_eq!(by_routine(&mut queues, 1_500, 1_979), 1);
}

#[test]
fn the_routine_rests_when_its_looks_take_too_long() {
    let mut queues = crowd(10);
    let _ = queues.wake(at(in_ms(1_000)), 9);
    assert!(queues.take_marked(Cause::Routine).is_some());
    queues.rest();
    assert!(queues.take_marked(Cause::Routine).is_none());
    let due = queues.next_due(at(in_ms(1_000))).unwrap();
    assert!(due > in_ms(1_000) && due <= in_ms(1_010), "{due:?}");
    let _ = queues.wake(at(due), 9);
    assert_eq!(marked(&mut queues, Cause::Routine).len(), 9);
}

/// However many locks another database has.
#[test]
fn each_database_in_doubt_has_its_turn() {
    let mut queues = crowd(1_000);
    let _ = queues.join(Name::new(7, b"x"), waiter("b", 2));
    while take_marked(&mut queues).is_some() {}
    queues.mark_all(Some(3));
    assert!(!queues.has_marks(), "nobody waits in that one");
    queues.mark_all(None);
    assert!(queues.waiters_if_settled(Name::new(7, b"x")).is_none(), "it is settled before");
    let first = [(); 2].map(|()| queues.take_marked(Cause::Doubted).unwrap().name.db);
    assert!(first.contains(&7), "{first:?}");
    // Locks that were looked at since are not looked at again, unless they are doubted again.
    assert_eq!(marked(&mut queues, Cause::Doubted).len(), 999);
    queues.mark_all(Some(0));
    let _ = queues.take_marked(Cause::Doubted);
    queues.mark_all(Some(0));
    assert_eq!(marked(&mut queues, Cause::Doubted).len(), 1_000);
    queues.check();
}
