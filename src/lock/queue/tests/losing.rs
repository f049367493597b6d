use super::*;

/// What settling says about the hold that was seen before.
fn lost(queues: &mut Queues<Connection>, stored: Stored<'_>, now: Moment) -> Option<LostBy> {
    settle_with(queues, stored, now, &mut FenceClock::new()).lost.map(|lost| lost.by)
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
        // The server may have taken the key already.
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

#[test]
fn a_hold_that_was_released_or_evicted_is_not_lost() {
    let seen = held_by("x", Some(in_ms(50)));
    let (mut queues, _) = queue_of(&["a", "b"]);
    assert_held(&mut queues, seen);
    queues.changed(0, KEY);
    assert_eq!(lost(&mut queues, Stored::Nothing, NOW), None);
    let (mut queues, _) = queue_of(&["a", "b"]);
    assert_held(&mut queues, seen);
    queues.mark_evicted(0, KEY);
    let settled = settle_with(&mut queues, Stored::Nothing, NOW, &mut FenceClock::new());
    assert!(settled.lost.is_none() && matches!(settled.next, Next::Restore(_)), "{settled:?}");
}

#[test]
fn what_a_key_held_when_it_was_evicted_is_known_until_that_is_put_back() {
    assert!(Queues::<Connection>::new().is_empty());
    let seen = held_by("x", Some(in_ms(50)));
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, seen);
    assert_eq!(queues.evicted(0, KEY), None);
    queues.mark_evicted(0, KEY);
    assert_eq!(&*queues.evicted(0, KEY).unwrap().value, b"x");
    assert!(matches!(settle(&mut queues, Stored::Nothing), Next::Restore(_)));
    assert_eq!(queues.evicted(0, KEY), None);
    assert!(!queues.is_empty());
}

#[test]
fn an_evicted_lock_whose_lease_is_over_has_run_out() {
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, held_by("x", Some(in_ms(50))));
    queues.mark_evicted(0, KEY);
    assert_eq!(lost(&mut queues, Stored::Nothing, in_ms(51)), Some(LostBy::RunningOut));
}

#[test]
fn a_lock_that_has_changed_hands_is_put_back_as_the_last_had_it() {
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, held_by("x", Some(in_ms(50))));
    assert_held(&mut queues, held_by("y", Some(in_ms(70))));
    queues.mark_evicted(0, KEY);
    let next = settle(&mut queues, Stored::Nothing);
    assert!(matches!(&next, Next::Restore(seen) if *seen.value == *b"y"), "{next:?}");
}
