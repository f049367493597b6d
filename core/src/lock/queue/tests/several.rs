//! Waiters for several locks: a place in each queue, and all of the locks or none.

use super::*;
use crate::lock::wait::{KeptTicket, Ticket, TicketRequest, WaitKind};
use crate::lock::{Names, Wanted};

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
    let room = |for_all, per_lock| Room { for_all, per_lock, ..Room::UNLIMITED };
    let owner = |name: &'static str| Owner::new(name.as_bytes()).unwrap();
    let has_room = |queues: &Queues<_>, keys: &[&[u8]], name, kind, room| {
        queues.has_room(names(keys), owner(name), kind, room)
    };
    assert!(has_room(&queues, &[B, C], "z", WaitKind::Ticket, room(5, 2)));
    assert!(!has_room(&queues, &[B, C], "z", WaitKind::Ticket, room(4, 2)));
    assert!(!has_room(&queues, &[b"d", C], "z", WaitKind::Ticket, room(5, 1)));
    assert!(has_room(&queues, &[b"d", C], "z", WaitKind::Blocked, room(4, 1)));
    assert!(!has_room(&queues, &[b"d", C], "z", WaitKind::Blocked, room(3, 1)));
    assert!(!has_room(&queues, &[C, A], "z", WaitKind::Blocked, room(4, 1)));
    let one = Room { connections: 1, ..room(9, 9) };
    assert!(!has_room(&queues, &[C], "z", WaitKind::Blocked, one), "there is one already");
    assert!(has_room(&queues, &[C], "z", WaitKind::Ticket, one));
    assert!(has_room(&queues, &[C, B, A], "x", WaitKind::Ticket, room(0, 0)), "in its own places");
    assert!(!has_room(&queues, &[A, B], "x", WaitKind::Ticket, room(0, 0)), "those are others");
    assert!(!has_room(&queues, &[A, B, C], "x", WaitKind::Blocked, room(0, 0)), "another way");
    let again = queues.join(names(&[A, B, C]), waiter("x", 3));
    assert!(matches!(again, Joined::InPlaceOf(..)));
    queues.check();
    assert_eq!(queues.places(WaitKind::Ticket), 0);
    assert_eq!((queues.blocked(), queues.places(WaitKind::Blocked)), (2, 5));
}

#[test]
fn a_ticket_is_renewed_by_the_same_locks_in_any_order_and_by_no_others() {
    let mut queues = Queues::new();
    let id = join_all(&mut queues, &[A, B], ticket("x", 1));
    let lasts = Ttl::from_millis(50).unwrap();
    let mut renew = |keys: &[&[u8]], share| {
        let owner = Owner::new(b"x").unwrap();
        let wanted = Wanted { owner, ttl: lasts, share };
        let ticket = Ticket { lasts, channel: None };
        let request = TicketRequest { ticket, client: 9, ephemeral: None };
        let renewed = queues.renew(names(keys), &wanted, &request, after_ms(5));
        queues.check();
        let gives_up = queues.waiter(id).unwrap().gives_up;
        (renewed, gives_up == Some(after_ms(55)))
    };
    for other in [&[A][..], &[B], &[A, C], &[A, B, C], &[C]] {
        assert_eq!(renew(other, Share::EXCLUSIVE), (Renewed::No, false), "{other:?}");
    }
    assert_eq!(renew(&[A, B], Share::UNLIMITED), (Renewed::No, false));
    assert_eq!(renew(&[B, A], Share::EXCLUSIVE), (Renewed::Yes, true));
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
