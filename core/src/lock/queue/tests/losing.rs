use super::*;

/// How the hold that was seen last was lost, as settling reports it.
fn lost(queues: &mut Queues<Connection>, stored: Stored<'_>, now: Moment) -> Option<LostBy> {
    settle_with(queues, stored, now, &mut FenceClock::new()).lost.first().map(|lost| lost.by)
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

#[test]
fn a_hold_that_was_released_is_not_lost() {
    let (mut queues, _) = queue_of(&["a", "b"]);
    assert_held(&mut queues, held_by("x", Some(in_ms(50))));
    queues.forget_seen(Name::new(0, KEY));
    assert_eq!(lost(&mut queues, Stored::Nothing, NOW), None);
}

#[test]
fn what_a_key_held_when_last_looked_at_is_known_while_somebody_waits() {
    let (mut queues, ids) = queue_of(&["a"]);
    assert_eq!(queues.seen(Name::new(0, KEY)), None);
    assert_held(&mut queues, held_by("x", Some(in_ms(50))));
    assert_held(&mut queues, held_by("x", Some(in_ms(60))));
    let seen = queues.seen(Name::new(0, KEY)).unwrap();
    assert_eq!(&*seen.value, b"x");
    assert_eq!(seen.deadline, Some(Deadline::from_millis(in_ms(60).millis())));
    assert_eq!(queues.seen(Name::new(1, KEY)), None);
    assert_held(&mut queues, held_by("y", None));
    assert_eq!(&*queues.seen(Name::new(0, KEY)).unwrap().value, b"y");
    assert!(queues.leave(ids[0]).is_some());
    assert_eq!(queues.seen(Name::new(0, KEY)), None);
}

/// As for a lock that a waiter for several locks waits for.
#[test]
fn what_a_key_holds_is_remembered_when_it_is_looked_at_for_another_lock() {
    let (mut queues, ids) = queue_of(&["a"]);
    let name = Name::new(0, KEY);
    assert!(queues.has(ids[0]));
    queues.remember(name, held_by("x", Some(in_ms(50))), NOW);
    assert_eq!(&*queues.seen(name).unwrap().value, b"x");
    assert!(queues.see(name, held_by("x", Some(in_ms(50))), NOW).is_empty());
    let by = |lost: Vec<Lost>| lost.into_iter().map(|lost| lost.by).collect::<Vec<_>>();
    let overwritten = queues.see(name, held_by("y", None), NOW);
    assert_eq!(by(overwritten), [LostBy::Overwriting]);
    assert_eq!(&*queues.seen(name).unwrap().value, b"y");
    assert_eq!(by(queues.see(name, Stored::Nothing, NOW)), [LostBy::Deletion]);
    assert_eq!(queues.seen(name), None);
    assert!(queues.leave(ids[0]).is_some());
    assert!(!queues.has(ids[0]));
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
