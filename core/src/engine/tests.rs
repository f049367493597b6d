//! What a host asks the engine beside its work. The work itself is compared with a model: see
//! [`simulation`](crate::simulation).

use super::{Engine, MILLIS_BETWEEN_COMPLAINTS};
use crate::lock::{Ephemeral, Grace, KeptName, KeptOwner, Moment, Monotonic, Name, Owner};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

const START: Monotonic = Monotonic::from_micros(0);

fn bind(engine: &Engine<()>, key: &str, fence_number: u64) {
    let name = KeptName::from(Name::new(0, key.as_bytes()));
    let owner = KeptOwner::from(Owner::new(b"a").unwrap());
    let ephemeral = Ephemeral { connection: 7, grace: Grace::from_millis(0).unwrap() };
    engine.bindings.borrow_mut().bind(name, owner, fence_number, ephemeral, NOW, NOW);
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
