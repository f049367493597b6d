//! Looks at the locks of one who waits for several.

use super::*;
use crate::lock::Names;

const OTHER: &[u8] = b"orders:43";

fn name(key: &'static [u8]) -> Name<'static> {
    Name::new(0, key)
}

fn look(queues: &mut Queues<Connection>, key: &'static [u8], stored: Stored<'_>) -> Look {
    let look = queues.look(name(key), stored, at(NOW), LIMITS, &mut FenceClock::new());
    queues.check();
    look
}

#[test]
fn while_one_lock_is_held_a_look_at_another_that_is_free_comes_to_nothing() {
    let mut queues = Queues::new();
    let names = Names { first: name(KEY), also: &[OTHER] };
    let Joined::Queued(id) = queues.join(names, waiter("a", 1)) else { panic!("nobody waited") };
    let held = || Look::Held { lost: Vec::new() };
    assert_eq!(look(&mut queues, KEY, Stored::Nothing), Look::ToSettle);
    queues.refused(id, name(OTHER), true);
    assert_eq!(look(&mut queues, OTHER, held_by("b", None)), held());
    assert_eq!(look(&mut queues, KEY, Stored::Nothing), held());
    assert!(!queues.has_marks());
    // From the one that was held all are granted.
    assert_eq!(look(&mut queues, OTHER, Stored::Nothing), Look::ToSettle);
    // Whoever touched that may have freed it.
    touch(&mut queues, OTHER, Suspicion::Freed, NOW);
    assert_eq!(look(&mut queues, KEY, Stored::Nothing), Look::ToSettle);
}

#[test]
fn a_lock_that_could_not_be_written_keeps_no_look_from_being_more() {
    let mut queues = Queues::new();
    let names = Names { first: name(KEY), also: &[OTHER] };
    let Joined::Queued(id) = queues.join(names, waiter("a", 1)) else { panic!("nobody waited") };
    queues.refused(id, name(OTHER), false);
    assert_eq!(look(&mut queues, KEY, Stored::Nothing), Look::ToSettle);
}
