use super::*;
use crate::lock::{Fence, Owner, Value};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);
const KEY: &[u8] = b"orders:42";

fn in_ms(millis: u64) -> Moment {
    NOW.plus_millis(millis)
}

fn until(end: Moment) -> Option<Deadline> {
    Some(Deadline::from_millis(end.millis()))
}

/// A grant as the module writes it.
fn grant(owner: &str) -> Vec<u8> {
    Value::new(Fence::FIRST, Owner::new(owner.as_bytes()).unwrap()).as_bytes().to_vec()
}

fn keep(evicted: &mut Evicted, name: Name<'_>, value: &[u8], end: Moment) -> bool {
    evicted.keep(name, Stored::Text { value, deadline: until(end) }, false, NOW)
}

/// The owners of the locks put back at this moment, as the caller would put them back.
fn put_back(evicted: &mut Evicted, now: Moment) -> Vec<(i32, String)> {
    std::iter::from_fn(|| {
        let KeptName { db, key } = evicted.next(now)?;
        assert!(evicted.take(Name::new(db, &key), Stored::Nothing, now).is_some());
        Some((db, String::from_utf8_lossy(&key).into_owned()))
    })
    .collect()
}

#[test]
fn a_grant_is_put_back_as_it_was_and_then_no_longer_kept() {
    let mut evicted = Evicted::new();
    assert_eq!((evicted.is_empty(), evicted.due(NOW)), (true, None));
    assert!(keep(&mut evicted, Name::new(0, KEY), &grant("a"), in_ms(50)));
    assert_eq!((evicted.len(), evicted.due(NOW)), (1, Some(NOW)));
    let seen = Seen { value: grant("a").into(), deadline: until(in_ms(50)) };
    assert_eq!(evicted.get(Name::new(0, KEY)), Some(&seen));
    assert_eq!(
        (evicted.get(Name::new(1, KEY)), evicted.get(Name::new(0, b"orders:43"))),
        (None, None)
    );
    assert_eq!(evicted.take(Name::new(0, KEY), Stored::Nothing, in_ms(50)), Some(seen));
    assert_eq!(
        (evicted.get(Name::new(0, KEY)), evicted.is_empty(), evicted.due(NOW)),
        (None, true, None)
    );
    assert_eq!(evicted.take(Name::new(0, KEY), Stored::Nothing, NOW), None);
}

#[test]
fn a_grant_without_an_end_is_kept_too() {
    let mut evicted = Evicted::new();
    let (value, deadline) = (&grant("a"), None);
    assert!(evicted.keep(Name::new(0, KEY), Stored::Text { value, deadline }, false, NOW));
    assert!(evicted.take(Name::new(0, KEY), Stored::Nothing, in_ms(u64::MAX)).is_some());
}

#[test]
fn a_foreign_lock_is_kept_only_if_somebody_waits_for_it() {
    let mut evicted = Evicted::new();
    let foreign = Stored::Text { value: b"stranger", deadline: until(in_ms(50)) };
    assert!(!evicted.keep(Name::new(0, KEY), foreign, false, NOW));
    assert!(evicted.is_empty());
    assert!(evicted.keep(Name::new(0, KEY), foreign, true, NOW));
    assert_eq!(&*evicted.get(Name::new(0, KEY)).unwrap().value, b"stranger");
}

#[test]
fn what_is_no_lock_or_has_run_out_is_not_kept() {
    let mut evicted = Evicted::new();
    for stored in [
        Stored::Nothing,
        Stored::OtherType,
        Stored::Text { value: &grant("a"), deadline: until(Moment::from_millis(NOW.millis() - 1)) },
    ] {
        assert!(!evicted.keep(Name::new(0, KEY), stored, true, NOW), "{stored:?}");
    }
    assert!(evicted.is_empty());
}

#[test]
fn what_was_evicted_last_replaces_what_was_evicted_before() {
    let mut evicted = Evicted::new();
    keep(&mut evicted, Name::new(0, KEY), &grant("a"), in_ms(50));
    keep(&mut evicted, Name::new(0, KEY), &grant("b"), in_ms(60));
    assert_eq!(evicted.len(), 1);
    assert_eq!(&*evicted.get(Name::new(0, KEY)).unwrap().value, grant("b"));
    assert!(!keep(&mut evicted, Name::new(0, KEY), b"something else stood there", in_ms(60)));
    assert!(evicted.is_empty() && evicted.get(Name::new(0, KEY)).is_none());
}

#[test]
fn nothing_is_put_back_over_what_the_key_holds_now_or_after_the_lease() {
    for (stored, now) in [
        (Stored::Text { value: b"another", deadline: None }, NOW),
        (Stored::OtherType, NOW),
        (Stored::Nothing, in_ms(51)),
    ] {
        let mut evicted = Evicted::new();
        keep(&mut evicted, Name::new(0, KEY), &grant("a"), in_ms(50));
        assert_eq!(evicted.take(Name::new(0, KEY), stored, now), None, "{stored:?}");
        assert!(evicted.is_empty(), "nor later");
    }
}

#[test]
fn a_flush_forgets_what_was_evicted_from_that_database() {
    let mut evicted = Evicted::new();
    for db in [0, 1, 2] {
        keep(&mut evicted, Name::new(db, KEY), &grant("a"), in_ms(50));
    }
    evicted.forget(Some(1));
    assert_eq!(evicted.len(), 2);
    let key = String::from_utf8_lossy(KEY).into_owned();
    assert_eq!(put_back(&mut evicted, NOW), [(0, key.clone()), (2, key)]);
    keep(&mut evicted, Name::new(0, KEY), &grant("a"), in_ms(50));
    evicted.forget(None);
    assert!(evicted.is_empty() && evicted.next(NOW).is_none());
}

#[test]
fn what_was_evicted_moves_with_its_database() {
    let mut evicted = Evicted::new();
    keep(&mut evicted, Name::new(0, b"a"), &grant("a"), in_ms(50));
    keep(&mut evicted, Name::new(3, b"b"), &grant("b"), in_ms(50));
    keep(&mut evicted, Name::new(7, b"c"), &grant("c"), in_ms(50));
    evicted.swap(0, 3);
    evicted.swap(7, 8);
    let names = [(3, "a"), (0, "b"), (8, "c")].map(|(db, key)| (db, key.to_owned()));
    for (db, key) in &names {
        assert!(evicted.get(Name::new(*db, key.as_bytes())).is_some(), "{db} {key}");
    }
    assert_eq!(put_back(&mut evicted, NOW), names);
}

/// `count` locks, the first evicted first.
fn many(count: u64) -> Evicted {
    let mut evicted = Evicted::new();
    for number in 0..count {
        keep(
            &mut evicted,
            Name::new(0, number.to_string().as_bytes()),
            &grant("a"),
            in_ms(3_600_000),
        );
    }
    evicted
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
    let numbers: Vec<u64> = all.iter().map(|(_, key)| key.parse().unwrap()).collect();
    assert_eq!(numbers, (0..BURST + 30).collect::<Vec<_>>());
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
        while let Some(KeptName { db, key }) = evicted.next(in_ms(millis)) {
            evicted.remove(Name::new(db, &key));
            keep(&mut evicted, Name::new(db, &key), &grant("a"), in_ms(3_600_000));
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
    for number in 0..2 * BURST {
        keep(
            &mut evicted,
            Name::new(0, number.to_string().as_bytes()),
            &grant("b"),
            in_ms(3_600_000),
        );
    }
    assert!(put_back(&mut evicted, in_ms(1)).len() <= usize::try_from(BURST).unwrap());
    assert!(!evicted.is_empty());
}
