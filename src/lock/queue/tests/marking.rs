//! Every lock is looked at now and then, whatever happened or did not.

use super::*;
use std::collections::HashSet;

/// None of which is to be looked at.
fn three_locks() -> Queues<Connection> {
    let mut queues = Queues::new();
    for key in [b"a", b"b", b"c"] {
        let _ = queues.join(0, key, waiter("bob", 1));
    }
    while queues.take_dirty().is_some() {}
    queues
}

#[test]
fn each_lock_has_its_turn_to_be_looked_at() {
    let mut queues = three_locks();
    let mut seen = HashSet::new();
    for _ in 0..queues.queues.capacity() {
        queues.mark_next(1);
        seen.extend(queues.take_dirty().map(|name| name.key.to_vec()));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    queues.mark_next(usize::MAX);
    assert_eq!(std::iter::from_fn(|| queues.take_dirty()).count(), 3);
}

#[test]
fn all_are_looked_at() {
    let mut queues = three_locks();
    queues.look_at_all();
    assert_eq!(std::iter::from_fn(|| queues.take_dirty()).count(), 3);
}
