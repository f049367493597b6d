//! What a host asks the engine beside its work. The work itself is compared with a model: see
//! [`simulation`](crate::simulation).

use super::bindings::{Binding, Demand};
use super::effort::Effort;
use super::{Answer, Engine, MILLIS_BETWEEN_COMPLAINTS};
use crate::lock::{
    Deadline, Ephemeral, Fence, Grace, KeptName, KeptNames, KeptOwner, Moment, Monotonic, Name,
    Now, Owner, Stored,
};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

const START: Monotonic = Monotonic::from_micros(0);

fn bind(engine: &Engine<()>, key: &str, fence_number: u64) {
    let name = KeptName::from(Name::new(0, key.as_bytes()));
    let owner = KeptOwner::from(Owner::new(b"a").unwrap());
    let ephemeral = Ephemeral { connection: 7, grace: Grace::from_millis(0).unwrap() };
    let mut bindings = engine.bindings.borrow_mut();
    let (since, look, demand) = (NOW, NOW, Demand::None);
    bindings.bind(Binding { name, owner, fence_number, ephemeral, since, demand, look });
}

#[test]
fn a_change_of_what_is_due_is_told_once() {
    let engine = Engine::<()>::new();
    assert!(!engine.take_due_changed());
    engine.changes_due();
    assert!(engine.take_due_changed());
    assert!(!engine.take_due_changed());
}

#[test]
fn complaints_are_a_minute_apart() {
    let engine = Engine::<()>::new();
    let next = START.plus_millis(MILLIS_BETWEEN_COMPLAINTS);
    assert!(engine.may_complain(START));
    assert!(!engine.may_complain(START));
    assert!(!engine.may_complain(START.plus_millis(MILLIS_BETWEEN_COMPLAINTS - 1)));
    assert!(engine.may_complain(next));
    assert!(!engine.may_complain(next.plus_millis(1)));
}

#[test]
fn bound_holds_are_counted() {
    let engine = Engine::<()>::new();
    for (count, key) in ["a", "b", "c"].iter().enumerate() {
        assert_eq!((engine.bindings(), engine.has_bindings()), (count, count > 0));
        bind(&engine, key, 1);
    }
    assert_eq!(engine.bindings(), 3);
}

#[test]
fn a_reset_forgets_everything() {
    let engine = Engine::<()>::new();
    engine.changes_due();
    assert!(engine.may_complain(START));
    bind(&engine, "k", 1);
    engine.undelivered.borrow_mut().insert(1);
    engine.reset();
    assert!(!engine.take_due_changed());
    assert!(engine.may_complain(START));
    assert_eq!(engine.bindings(), 0);
    assert!(engine.undelivered.borrow().is_empty());
}

#[test]
fn an_answer_names_the_fence_of_the_hold_that_it_tells_of() {
    let names = || KeptNames::from(Name::new(0, b"k"));
    let (fence, deadline) = (Fence::FIRST, Deadline::from_millis(NOW.millis()));
    let granted = Answer::Granted { names: names(), fence, deadline };
    assert_eq!(granted.fence_number(), Some(fence.number()));
    let again = Answer::Again { names: names(), fence_number: 7, deadline: None };
    assert_eq!(again.fence_number(), Some(7));
    assert_eq!(Answer::GaveUp.fence_number(), None);
}

#[test]
fn long_values_and_many_hearers_take_longer() {
    let rounds = |effort: Effort| (0..9).find(|&batch| !effort.fills(batch + 1)).unwrap();
    let text = |len| vec![b'x'; len];
    let of_round = |value: &[u8]| rounds(Effort::of_round(Stored::Text { value, deadline: None }));
    assert_eq!([0, 8_191, 8_192, 24_575].map(|len| of_round(&text(len))), [1, 1, 2, 3]);
    assert_eq!(rounds(Effort::of_round(Stored::Nothing)), 1);
    assert_eq!([0, 19, 20, 60].map(|hearers| rounds(Effort::of_telling(hearers))), [0, 0, 1, 3]);
}

#[test]
fn holds_are_looked_at_when_slots_may_have_come() {
    let engine = Engine::<()>::new();
    bind(&engine, "k", 1);
    let now = Now { wall: NOW, monotonic: START };
    let later = Now { wall: NOW.plus_millis(1), monotonic: START };
    let binding = engine.bindings.borrow_mut().take_look(NOW).unwrap();
    engine.bindings.borrow_mut().keep(binding, later.wall);
    assert_eq!(engine.next_due(now), None);
    engine.slots_moved();
    assert!(engine.take_due_changed());
    assert_eq!(engine.next_due(now), Some(NOW));
}

#[test]
fn all_that_was_evicted_is_put_back_when_slots_begin_to_go() {
    const MANY: usize = 1_000;
    let engine = Engine::<()>::new();
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
