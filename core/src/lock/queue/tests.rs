//! What the [simulation](crate::simulation) does not compare: when locks are looked at, in which order, and what is kept
//! when everybody has gone.

mod marking;
mod several;

use super::super::owner::Owner;
use super::*;
use crate::lock::KeptName;

const NOW: Moment = Moment::from_millis(1_763_000_000_000);
const KEY: &[u8] = b"orders:42";
const LIMITS: Limits = Limits { max_ttl: Ttl::LONGEST, max_holders: 1_000 };

/// A waiter's connection is a number.
type Connection = u32;

fn in_ms(millis: u64) -> Moment {
    NOW.plus_millis(millis)
}

const START: Monotonic = Monotonic::from_micros(0);

fn after_ms(millis: u64) -> Monotonic {
    START.plus_millis(millis)
}

/// The instant at which the wall clock shows this time, if nobody has set the clock.
fn at(wall: Moment) -> Now {
    Now { wall, monotonic: after_ms(wall.millis_since(NOW)) }
}

/// Settles as on a server without limits.
fn settle_at<'v>(queues: &mut Queues<Connection>, stored: Stored<'v>, now: Moment) -> Settled<'v> {
    queues.settle(Name::new(0, KEY), stored, at(now), LIMITS, &mut FenceClock::new())
}

fn touch(queues: &mut Queues<Connection>, key: &[u8], suspicion: Suspicion, now: Moment) {
    let _is_sooner = queues.suspect([key].into_iter(), || Some(suspicion), || now);
}

/// A lock marked for any cause.
fn take_marked(queues: &mut Queues<Connection>) -> Option<KeptName> {
    let due = [Cause::Due, Cause::Suspected, Cause::Doubted, Cause::Routine];
    let due = due.into_iter().find_map(|cause| queues.take_marked(cause))?;
    Some(due.name)
}

fn waiter(owner: &str, connection: Connection) -> Waiter<Connection> {
    Waiter {
        owner: Owner::new(owner.as_bytes()).unwrap().into(),
        ttl: Ttl::from_millis(30).unwrap(),
        share: Share::EXCLUSIVE,
        since: START,
        gives_up: None,
        ephemeral: None,
        wait: KeptWait::Blocked(connection),
    }
}

/// Joins a queue, which then no longer counts as new.
#[track_caller]
fn join(queues: &mut Queues<Connection>, waiter: Waiter<Connection>) -> WaiterId {
    let Joined::Queued(id) = queues.join(Name::new(0, KEY), waiter) else {
        panic!("somebody of this owner waited")
    };
    for (_, queue) in &mut queues.queues {
        queue.begun = Some(Moment::from_micros(0));
    }
    id
}

/// A queue of these owners, whose connections are numbered from 1.
fn queue_of(owners: &[&str]) -> (Queues<Connection>, Vec<WaiterId>) {
    let mut queues = Queues::new();
    let ids =
        owners.iter().zip(1..).map(|(owner, number)| join(&mut queues, waiter(owner, number)));
    let ids = ids.collect();
    (queues, ids)
}

fn held_by(owner: &str, deadline: Option<Moment>) -> Stored<'_> {
    let deadline = deadline.map(|end| Deadline::from_millis(end.millis()));
    Stored::Text { value: owner.as_bytes(), deadline }
}

#[track_caller]
fn assert_held_at(queues: &mut Queues<Connection>, stored: Stored<'_>, now: Moment) {
    assert!(settle_at(queues, stored, now).turn.is_none());
    queues.check();
}

#[track_caller]
fn assert_held(queues: &mut Queues<Connection>, stored: Stored<'_>) {
    assert_held_at(queues, stored, NOW);
}

#[test]
fn the_longest_wait_is_that_of_the_oldest_at_the_head_of_any_queue() {
    let (mut queues, ids) = queue_of(&["a"]);
    let _ = queues.join(Name::new(0, b"another"), Waiter { since: after_ms(5), ..waiter("b", 2) });
    assert_eq!(queues.longest_since(), Some(START));
    assert_eq!(&*queues.leave(ids[0]).unwrap().name.key, KEY);
    assert_eq!(queues.longest_since(), Some(after_ms(5)));
    assert_eq!(queues.leave_all().len(), 1);
    assert_eq!(queues.longest_since(), None);
}

#[test]
fn a_touch_is_for_the_locks_of_that_name_in_every_database() {
    let (mut queues, _) = queue_of(&["a"]);
    let _ = queues.join(Name::new(1, KEY), waiter("a", 2));
    let _ = queues.join(Name::new(0, b"another"), waiter("a", 3));
    while take_marked(&mut queues).is_some() {}
    let words = [&b"orders:43"[..], b"SET"];
    assert!(!queues.suspect(words.into_iter(), || panic!("nobody waits for any of these"), || NOW));
    let words = [&b"orders:43"[..], KEY];
    assert!(!queues.suspect(words.into_iter(), || None, || NOW), "the command leaves locks alone");
    touch(&mut queues, b"orders:43", Suspicion::Freed, NOW);
    assert!(!queues.has_marks());
    touch(&mut queues, KEY, Suspicion::Freed, NOW);
    assert!(
        queues.is_marked(Name::new(0, KEY))
            && queues.is_marked(Name::new(1, KEY))
            && !queues.is_marked(Name::new(0, b"another"))
    );
}

#[test]
fn what_a_touch_is_about_is_noticed_after_twice_the_time_that_it_took() {
    let (mut queues, _) = queue_of(&["a"]);
    touch(&mut queues, KEY, Suspicion::Freed, NOW);
    let held = held_by("x", None);
    let mut now = NOW;
    for after in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024] {
        assert_held_at(&mut queues, held, now);
        assert!(
            queues.waiters_if_settled(Name::new(0, KEY)).is_none(),
            "a command does not overtake what was touched"
        );
        assert_eq!(queues.next_due(at(NOW)), Some(in_ms(after)));
        now = in_ms(after);
        assert!(queues.wake(at(now), 9).is_empty());
    }
    assert_held_at(&mut queues, held, now);
    assert!(
        queues.waiters_if_settled(Name::new(0, KEY)).is_some(),
        "after a second it is forgotten"
    );
    assert_eq!(queues.next_due(at(NOW)), Some(now.plus_millis(RECHECK_MILLIS)));
}

#[test]
fn a_held_lock_is_looked_at_when_its_lease_is_over_and_every_second_at_the_latest() {
    let (mut queues, _) = queue_of(&["a"]);
    for stored in [held_by("x", Some(in_ms(60_000))), held_by("x", None), Stored::OtherType] {
        assert_held(&mut queues, stored);
        assert_eq!(queues.next_due(at(NOW)), Some(in_ms(1_000)));
    }
    assert_held(&mut queues, held_by("x", Some(in_ms(50))));
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(51)));
    for (millis, is_marked) in [(50, false), (51, true)] {
        let _ = queues.wake(at(in_ms(millis)), usize::MAX);
        assert_eq!(queues.is_marked(Name::new(0, KEY)), is_marked);
    }
}

#[test]
fn nothing_is_kept_when_everybody_is_gone() {
    let mut queues = Queues::new();
    let patient = |number: Connection| {
        let gives_up = Some(after_ms(10));
        Waiter { gives_up, ..waiter(&number.to_string(), number) }
    };
    let ids: Vec<_> = (1..=1_000).map(|number| join(&mut queues, patient(number))).collect();
    assert_held(&mut queues, held_by("x", Some(in_ms(5))));
    queues.mark(Name::new(0, KEY));
    for id in ids {
        assert!(queues.leave(id).is_some());
    }
    queues.check();
    assert!(queues.is_empty() && !queues.has_marks() && queues.next_due(at(NOW)).is_none());
    assert_eq!((queues.waiters.capacity(), queues.queues.capacity()), (0, 0));
    assert_eq!(queues.names.count(), 0);
}

/// How the hold that was seen last was lost, as settling reports it.
fn lost(queues: &mut Queues<Connection>, stored: Stored<'_>, now: Moment) -> Option<LostBy> {
    settle_at(queues, stored, now).lost.first().map(|lost| lost.by)
}

#[test]
fn how_a_hold_ended_that_nobody_released_is_told_once() {
    let seen = held_by("x", Some(in_ms(50)));
    for (then, at, by) in [
        (seen, 49, None),
        (held_by("x", Some(in_ms(90))), 60, None),
        (seen, 51, Some(LostBy::RunningOut)),
        (held_by("x", Some(in_ms(5))), 6, Some(LostBy::RunningOut)),
        (Stored::Nothing, 51, Some(LostBy::RunningOut)),
        (held_by("y", None), 51, Some(LostBy::RunningOut)),
        // The server may have deleted the key already.
        (seen, 50, None),
        (Stored::Nothing, 50, Some(LostBy::RunningOut)),
        (held_by("y", None), 50, Some(LostBy::RunningOut)),
        (Stored::Nothing, 49, Some(LostBy::Deletion)),
        (held_by("y", None), 49, Some(LostBy::Overwriting)),
        (Stored::OtherType, 49, Some(LostBy::Overwriting)),
    ] {
        let (mut queues, _) = queue_of(&["a", "b"]);
        assert_eq!(lost(&mut queues, seen, NOW), None, "nothing was seen before");
        assert_eq!(lost(&mut queues, then, in_ms(at)), by, "{then:?} after {at} ms");
        if by.is_some() {
            assert_eq!(lost(&mut queues, then, in_ms(at)), None, "told once");
        }
    }
}

/// As for a lock that a waiter for several locks waits for.
#[test]
fn what_a_key_holds_is_remembered_when_it_is_looked_at_for_another_lock() {
    let (mut queues, _) = queue_of(&["a"]);
    let name = Name::new(0, KEY);
    queues.remember(name, held_by("x", Some(in_ms(50))), NOW);
    assert_eq!(&*queues.seen(name).unwrap().value, b"x");
    assert!(queues.see(name, held_by("x", Some(in_ms(50))), NOW).is_empty());
    let by = |lost: Vec<Lost>| lost.into_iter().map(|lost| lost.by).collect::<Vec<_>>();
    let overwritten = queues.see(name, held_by("y", None), NOW);
    assert_eq!(by(overwritten), [LostBy::Overwriting]);
    assert_eq!(&*queues.seen(name).unwrap().value, b"y");
    assert_eq!(by(queues.see(name, Stored::Nothing, NOW)), [LostBy::Deletion]);
    assert_eq!(queues.seen(name), None);
}

#[test]
fn a_lock_is_looked_at_when_another_one_says_so_if_that_is_sooner() {
    let (mut queues, _) = queue_of(&["a"]);
    let name = Name::new(0, KEY);
    assert_held(&mut queues, held_by("x", Some(in_ms(50))));
    for (look, due) in [(70, 51), (30, 30), (40, 30), (30, 30), (20, 20)] {
        queues.look_no_later(name, in_ms(look));
        assert_eq!(queues.next_due(at(NOW)), Some(in_ms(due)), "{look}");
    }
    queues.look_no_later(Name::new(1, KEY), in_ms(1));
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(20)));
}

#[test]
fn a_crowd_has_an_index_until_few_are_left() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let has_index =
        |queues: &Queues<Connection>| queues.queues.iter().any(|(_, queue)| queue.owners.is_some());
    let mut queues = Queues::new();
    let mut ids = Vec::new();
    for (number, name) in (1..).zip(names) {
        ids.push(join(&mut queues, waiter(name, number)));
        assert_eq!(has_index(&queues), number > 4, "{number}");
    }
    for (left, id) in (0..6).rev().zip(ids) {
        assert!(queues.leave(id).is_some());
        assert_eq!(has_index(&queues), left >= 2, "{left}");
        queues.check();
    }
}
