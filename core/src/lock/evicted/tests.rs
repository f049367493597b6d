use super::*;
use crate::lock::{Fence, Owner, Value};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

fn in_ms(millis: u64) -> Moment {
    NOW.plus_millis(millis)
}

/// Evicts a lock of this name, which is held for an hour.
fn evict(evicted: &mut Evicted, name: Name<'_>) {
    let value = Value::new(Fence::FIRST, Owner::new(b"a").unwrap());
    let deadline = Some(Deadline::from_millis(in_ms(3_600_000).millis()));
    let stored = Stored::Text { value: value.as_bytes(), deadline };
    assert!(evicted.keep(name, stored, false, NOW));
}

/// The numbers of the locks put back at this moment, as the caller would put them back.
fn put_back(evicted: &mut Evicted, now: Moment) -> Vec<u64> {
    std::iter::from_fn(|| {
        let name = evicted.next(now)?;
        assert!(evicted.take(name.as_name(), Stored::Nothing, now).is_some());
        Some(str::from_utf8(&name.key).unwrap().parse().unwrap())
    })
    .collect()
}

/// `count` locks, the first evicted first.
fn many(count: u64) -> Evicted {
    let mut evicted = Evicted::new();
    (0..count).for_each(|number| evict(&mut evicted, Name::new(0, number.to_string().as_bytes())));
    evicted
}

#[test]
fn a_flush_forgets_what_was_evicted_from_that_database() {
    let mut evicted = Evicted::new();
    for db in [0, 1, 2] {
        evict(&mut evicted, Name::new(db, b"7"));
    }
    evicted.forget(Some(1));
    assert_eq!(evicted.len(), 2);
    assert!(evicted.get(Name::new(1, b"7")).is_none());
    assert_eq!(put_back(&mut evicted, NOW), [7, 7]);
    evict(&mut evicted, Name::new(0, b"7"));
    evicted.forget(None);
    assert!(evicted.is_empty() && evicted.next(NOW).is_none());
    assert!(evicted.get(Name::new(0, b"7")).is_none());
}

#[test]
fn some_are_put_back_at_once_and_then_one_each_millisecond_in_the_order_of_their_eviction() {
    let mut evicted = many(BURST + 30);
    let mut all = put_back(&mut evicted, NOW);
    assert_eq!(all.len(), usize::try_from(BURST).unwrap());
    assert_eq!(evicted.due(NOW), Some(in_ms(PAUSE_MILLIS)));
    assert_eq!(put_back(&mut evicted, NOW), []);
    all.extend(put_back(&mut evicted, in_ms(PAUSE_MILLIS)));
    assert_eq!(all.len(), usize::try_from(BURST + PAUSE_MILLIS).unwrap());
    for millis in PAUSE_MILLIS + 1..=30 {
        all.extend(put_back(&mut evicted, in_ms(millis)));
    }
    assert!(evicted.is_empty());
    assert_eq!(all, (0..BURST + 30).collect::<Vec<_>>());
}

#[test]
fn parts_of_a_millisecond_add_up() {
    let mut evicted = many(BURST + 10);
    assert_eq!(put_back(&mut evicted, NOW).len(), usize::try_from(BURST).unwrap());
    assert_eq!(put_back(&mut evicted, NOW.plus_micros(600)), []);
    assert_eq!(put_back(&mut evicted, NOW.plus_micros(1_200)).len(), 1);
}

#[test]
fn a_clock_that_is_set_does_not_put_it_off() {
    for hour in [NOW.millis() - 3_600_000, NOW.millis() + 3_600_000] {
        let mut evicted = many(BURST + 10);
        assert!(!put_back(&mut evicted, NOW).is_empty());
        let set = Moment::from_millis(hour);
        assert!(evicted.due(set).unwrap() <= set.plus_millis(PAUSE_MILLIS));
        let _ = evicted.next(set);
        let later = set.plus_millis(PAUSE_MILLIS);
        assert!(evicted.due(later).unwrap() <= later);
    }
}

#[test]
fn when_nothing_can_be_written_it_is_tried_again_a_moment_later() {
    let mut evicted = many(1);
    assert!(evicted.next(NOW).is_some());
    evicted.wait(NOW);
    assert_eq!((evicted.due(NOW), evicted.next(NOW)), (Some(in_ms(PAUSE_MILLIS)), None));
    assert!(!evicted.complains(NOW.plus_millis(PAUSE_MILLIS)));
    assert_eq!(put_back(&mut evicted, in_ms(PAUSE_MILLIS)).len(), 1);
}

#[test]
fn the_log_is_told_once_a_minute_that_locks_cannot_be_put_back_in_time() {
    let mut evicted = many(10_000);
    assert!(!evicted.complains(NOW), "none was to be put back yet");
    let complaints = (0..120_000).step_by(1_000).filter(|&millis| {
        while let Some(name) = evicted.next(in_ms(millis)) {
            evicted.remove(name.as_name());
            evict(&mut evicted, name.as_name());
        }
        evicted.complains(in_ms(millis))
    });
    assert_eq!(complaints.collect::<Vec<_>>(), [0, 60_000]);
    evicted.forget(None);
    assert!(!evicted.complains(in_ms(240_000)));
}

#[test]
fn in_a_hurry_all_are_put_back_at_once_and_later_ones_as_before() {
    let mut evicted = many(3 * BURST);
    assert_eq!(put_back(&mut evicted, NOW).len(), usize::try_from(BURST).unwrap());
    evicted.hurry();
    assert_eq!(evicted.due(in_ms(1)), Some(in_ms(1)));
    assert_eq!(put_back(&mut evicted, in_ms(1)).len(), usize::try_from(2 * BURST).unwrap());
    (0..2 * BURST)
        .for_each(|number| evict(&mut evicted, Name::new(0, number.to_string().as_bytes())));
    assert!(put_back(&mut evicted, in_ms(1)).len() <= usize::try_from(BURST).unwrap());
    assert!(!evicted.is_empty());
}
