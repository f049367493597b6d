//! What a host asks the engine beside its work. The work itself is compared with a model: see
//! [`simulation`](crate::simulation).

use super::effort::Effort;
use super::{MILLIS_BETWEEN_COMPLAINTS, Memory};
use crate::lock::{Moment, Monotonic, Name, Stored};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

const START: Monotonic = Monotonic::from_micros(0);

#[test]
fn complaints_are_a_minute_apart() {
    let engine = Memory::<()>::new();
    let next = START.plus_millis(MILLIS_BETWEEN_COMPLAINTS);
    assert!(engine.may_complain(START));
    assert!(!engine.may_complain(START));
    assert!(!engine.may_complain(START.plus_millis(MILLIS_BETWEEN_COMPLAINTS - 1)));
    assert!(engine.may_complain(next));
    assert!(!engine.may_complain(next.plus_millis(1)));
}

#[test]
fn long_values_and_many_hearers_take_longer() {
    let rounds = |effort: Effort| (0..9).find(|&batch| !effort.fills(batch + 1)).unwrap();
    let text = |len| vec![b'x'; len];
    let of_round = |value: &[u8]| rounds(Effort::of_round(Stored::Text { value, deadline: None }));
    assert_eq!([0, 8_191, 8_192, 24_575].map(|len| of_round(&text(len))), [1, 1, 2, 3]);
    assert_eq!(rounds(Effort::of_round(Stored::Nothing)), 1);
    assert_eq!(
        [0, 19, 20, 60].map(|receivers| rounds(Effort::of_telling(receivers))),
        [0, 0, 1, 3]
    );
}

#[test]
fn all_that_was_evicted_is_put_back_when_slots_begin_to_go() {
    const MANY: usize = 1_000;
    let engine = Memory::<()>::new();
    let stored = Stored::Text { value: b"1763000000000000:a", deadline: None };
    for number in 0..MANY {
        let key = number.to_string();
        assert!(engine.evicted(Name::new(0, key.as_bytes()), stored, NOW));
    }
    let put_back = || (0..).take_while(|_| engine.evicted.borrow_mut().next(NOW).is_some()).count();
    assert!(put_back() < MANY);
    assert!(engine.take_due_changed());
    engine.slots_begin_to_go();
    assert!(engine.take_due_changed());
    assert_eq!(put_back(), MANY);
}
