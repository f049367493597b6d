//! Waiters for several locks: a place in each queue, and all of the locks or none.

use super::*;
use crate::lock::Names;
use crate::lock::wait::{KeptTicket, WaitKind};

const A: &[u8] = b"a";
const B: &[u8] = b"b";
const C: &[u8] = b"c";

fn names<'k>(keys: &'k [&'k [u8]]) -> Names<'k> {
    Names { first: Name::new(0, keys[0]), also: &keys[1..] }
}

#[track_caller]
fn join_all(
    queues: &mut Queues<Connection>,
    keys: &[&[u8]],
    waiter: Waiter<Connection>,
) -> WaiterId {
    let joined = queues.join(names(keys), waiter);
    queues.check();
    match joined {
        Joined::Queued(id) => id,
        other => panic!("somebody of this owner waited: {other:?}"),
    }
}

/// A waiter by a ticket, which ends 20 ms from the start.
fn ticket(owner: &str, client: Connection) -> Waiter<Connection> {
    let lasts = Ttl::from_millis(20).unwrap();
    let wait = KeptWait::Ticket(KeptTicket { lasts, channel: None, client: client.into() });
    Waiter { wait, gives_up: Some(after_ms(20)), ..waiter(owner, client) }
}

fn keys_of(queues: &Queues<Connection>, id: WaiterId) -> Vec<Vec<u8>> {
    queues.names_of(id).iter().map(|name| name.key.to_vec()).collect()
}

#[test]
fn the_lock_that_was_not_to_be_had_is_looked_at_first() {
    let mut queues = Queues::new();
    let id = join_all(&mut queues, &[A, B, C], waiter("x", 1));
    assert_eq!(keys_of(&queues, id), [A, B, C]);
    queues.refused(id, Name::new(0, C), true);
    assert_eq!(keys_of(&queues, id), [C, A, B]);
    queues.refused(id, Name::new(0, B), true);
    assert_eq!(keys_of(&queues, id), [B, C, A]);
    queues.refused(id, Name::new(1, A), true);
    queues.refused(id, Name::new(0, b"d"), true);
    assert_eq!(keys_of(&queues, id), [B, C, A], "it does not wait for these");
}

#[test]
fn whoever_waits_counts_once_for_each_of_its_locks() {
    let mut queues = Queues::new();
    join_all(&mut queues, &[A, B, C], ticket("x", 1));
    join_all(&mut queues, &[A, B], waiter("y", 2));
    assert_eq!(queues.places(WaitKind::Ticket), 3);
    assert_eq!((queues.blocked(), queues.places(WaitKind::Blocked)), (1, 2));
    let one = Room { connections: 1, ..Room::UNLIMITED };
    let has_room = |kind| queues.has_room(names(&[C]), Owner::new(b"z").unwrap(), kind, one);
    assert!(!has_room(WaitKind::Blocked), "there is one already");
    assert!(has_room(WaitKind::Ticket));
    let again = queues.join(names(&[A, B, C]), waiter("x", 3));
    assert!(matches!(again, Joined::InPlaceOf(..)));
    queues.check();
    assert_eq!(queues.places(WaitKind::Ticket), 0);
    assert_eq!((queues.blocked(), queues.places(WaitKind::Blocked)), (2, 5));
}

fn look(queues: &mut Queues<Connection>, key: &'static [u8], stored: Stored<'_>) -> Look {
    let look = queues.look(Name::new(0, key), stored, at(NOW), LIMITS, &mut FenceClock::new());
    queues.check();
    look
}

#[test]
fn while_one_lock_is_held_a_look_at_another_that_is_free_comes_to_nothing() {
    let mut queues = Queues::new();
    let id = join_all(&mut queues, &[A, B], waiter("a", 1));
    let held = || Look::Held { lost: Vec::new() };
    assert_eq!(look(&mut queues, A, Stored::Nothing), Look::ToSettle);
    queues.refused(id, Name::new(0, B), true);
    assert_eq!(look(&mut queues, B, held_by("b", None)), held());
    assert_eq!(look(&mut queues, A, Stored::Nothing), held());
    assert!(!queues.has_marks());
    // The look at the lock that was held grants all of them.
    assert_eq!(look(&mut queues, B, Stored::Nothing), Look::ToSettle);
    // The client that touched the lock may have freed it.
    touch(&mut queues, B, Suspicion::Freed, NOW);
    assert_eq!(look(&mut queues, A, Stored::Nothing), Look::ToSettle);
}

#[test]
fn a_lock_that_could_not_be_written_keeps_no_look_from_being_more() {
    let mut queues = Queues::new();
    let id = join_all(&mut queues, &[A, B], waiter("a", 1));
    queues.refused(id, Name::new(0, B), false);
    assert_eq!(look(&mut queues, A, Stored::Nothing), Look::ToSettle);
}
