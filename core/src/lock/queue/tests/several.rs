//! Waiters for several locks: a place in each queue, and all of the locks or none.

use super::tickets::ticket;
use super::*;
use crate::lock::wait::{Ticket, TicketRequest, WaitKind};
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

fn queue(queues: &Queues<Connection>, key: &[u8]) -> Vec<Connection> {
    queues.queue(Name::new(0, key)).map(|(waiter, _)| connection_of(waiter)).collect()
}

/// The waiter whose turn it is, and whether it waits for other locks, too.
fn turn(
    queues: &mut Queues<Connection>,
    key: &[u8],
    stored: Stored<'_>,
) -> Option<(WaiterId, bool)> {
    let fences = &mut FenceClock::new();
    let settled = queues.settle(Name::new(0, key), stored, at(NOW), LIMITS, fences);
    queues.check();
    settled.turn.map(|turn| (turn.waiter, turn.is_for_several))
}

#[track_caller]
fn assert_waits(queues: &mut Queues<Connection>, key: &[u8]) {
    assert_eq!(turn(queues, key, Stored::Nothing), None);
}

#[track_caller]
fn assert_turn_of(queues: &mut Queues<Connection>, key: &[u8], id: WaiterId) {
    assert_eq!(turn(queues, key, Stored::Nothing), Some((id, true)));
}

fn keys_of(queues: &Queues<Connection>, id: WaiterId) -> Vec<Vec<u8>> {
    queues.names_of(id).iter().map(|name| name.key.to_vec()).collect()
}

#[test]
fn its_turn_comes_when_it_is_first_in_every_queue() {
    let mut queues = Queues::new();
    let before = join_all(&mut queues, &[B], waiter("x", 1));
    let both = join_all(&mut queues, &[A, B], waiter("y", 2));
    let behind = join_all(&mut queues, &[A], waiter("z", 3));
    assert_waits(&mut queues, A);
    assert!(queues.leave(before).is_some());
    assert_turn_of(&mut queues, A, both);
    assert_turn_of(&mut queues, B, both);
    let left = queues.leave(both).unwrap();
    assert_eq!(&*left.name.key, A);
    assert_eq!((queue(&queues, A), queue(&queues, B)), (vec![3], vec![]));
    assert_eq!(turn(&mut queues, A, Stored::Nothing), Some((behind, false)));
}

#[test]
fn nobody_waits_in_a_circle() {
    let mut queues = Queues::new();
    let one = join_all(&mut queues, &[A, B], waiter("x", 1));
    let other = join_all(&mut queues, &[B, A], waiter("y", 2));
    let third = join_all(&mut queues, &[C, B, A], waiter("z", 3));
    assert_waits(&mut queues, C);
    for (id, keys) in [(one, &[A, B][..]), (other, &[A, B]), (third, &[A, B, C])] {
        for key in keys {
            assert_turn_of(&mut queues, key, id);
        }
        assert!(queues.leave(id).is_some());
        queues.check();
    }
    assert!(queues.is_empty());
}

#[test]
fn who_leaves_has_no_place_left_and_whoever_is_first_then_is_looked_at() {
    let mut queues = Queues::new();
    let both = join_all(&mut queues, &[A, B, C], waiter("x", 1));
    join_all(&mut queues, &[C], waiter("y", 2));
    while take_marked(&mut queues).is_some() {}
    for key in [A, B, C] {
        assert_turn_of(&mut queues, key, both);
    }
    assert!(queues.leave(both).is_some());
    queues.check();
    assert_eq!(queues.waiters_for(Name::new(0, A)), 0);
    assert_eq!(queues.waiters_for(Name::new(0, B)), 0);
    assert_eq!(take_marked(&mut queues).map(|name| name.key.to_vec()), Some(C.to_vec()));
    assert_eq!(take_marked(&mut queues), None);
    assert!(queues.leave(both).is_none());
}

#[test]
fn the_same_locks_in_another_order_are_the_same_places() {
    let mut queues = Queues::new();
    let id = join_all(&mut queues, &[A, B], waiter("x", 1));
    join_all(&mut queues, &[A], waiter("y", 2));
    let again = queues.join(names(&[B, A]), waiter("x", 3));
    assert!(matches!(again, Joined::InPlaceOf(known, KeptWait::Blocked(1)) if known == id));
    queues.check();
    assert_eq!((queue(&queues, A), queue(&queues, B)), (vec![3, 2], vec![3]));
}

#[test]
fn who_asks_for_other_locks_gives_up_all_its_places() {
    for other in [&[A][..], &[B], &[A, C], &[C, B, A], &[B, C]] {
        let mut queues = Queues::new();
        join_all(&mut queues, &[A, B], waiter("x", 1));
        join_all(&mut queues, &[A], waiter("y", 2));
        let Joined::Anew(id, given_up) = queues.join(names(other), waiter("x", 3)) else {
            panic!("{other:?} are not the same")
        };
        queues.check();
        let given_up: Vec<_> = given_up.iter().map(|left| connection_of(&left.waiter)).collect();
        assert_eq!(given_up, [1]);
        assert_eq!(keys_of(&queues, id), other);
        for key in [A, B, C] {
            let expected = other.contains(&key).then_some(3);
            let first = (key == A).then_some(2);
            let all: Vec<_> = first.into_iter().chain(expected).collect();
            assert_eq!(queue(&queues, key), all, "{other:?}");
        }
    }
}

#[test]
fn one_request_ends_all_former_ones_for_any_of_its_locks() {
    let mut queues = Queues::new();
    join_all(&mut queues, &[A], waiter("x", 1));
    join_all(&mut queues, &[B], waiter("x", 2));
    join_all(&mut queues, &[C], waiter("y", 3));
    let joined = queues.join(names(&[A, B, C]), waiter("x", 4));
    queues.check();
    assert!(matches!(joined, Joined::Anew(_, given_up) if given_up.len() == 2));
    assert_eq!(queue(&queues, A), [4]);
    assert_eq!(queue(&queues, B), [4]);
    assert_eq!(queue(&queues, C), [3, 4]);
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
    join_all(&mut queues, &[A, B, C], ticket("x", 1, 0));
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
    let id = join_all(&mut queues, &[A, B], ticket("x", 1, 0));
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

#[test]
fn a_ticket_for_several_is_given_up_by_the_name_of_any() {
    for key in [A, B, C] {
        let mut queues = Queues::new();
        join_all(&mut queues, &[A, B, C], ticket("x", 1, 0));
        let left = queues.leave_by_ticket(Name::new(0, key), Owner::new(b"x").unwrap());
        assert_eq!(left.map(|left| left.name.key.to_vec()), Some(A.to_vec()));
        queues.check();
        assert!(queues.is_empty());
    }
}

#[test]
fn everybody_is_sent_away_once() {
    let mut queues = Queues::new();
    join_all(&mut queues, &[A, B, C], waiter("x", 1));
    join_all(&mut queues, &[B, C], ticket("y", 2, 0));
    assert_eq!(queues.leave_all().len(), 2);
    queues.check();
    assert!(queues.is_empty());
    join_all(&mut queues, &[A, B], waiter("x", 1));
    let first = queues.leave_first(Name::new(0, B)).unwrap();
    assert_eq!(&*first.name.key, A);
    queues.check();
    assert!(queues.leave_first(Name::new(0, A)).is_none());
}

#[test]
fn patience_ends_once_for_all_of_them() {
    let mut queues = Queues::new();
    join_all(&mut queues, &[A, B, C], with_patience(5, waiter("x", 1)));
    assert_eq!(queues.wake(at(in_ms(4)), usize::MAX).len(), 0);
    assert_eq!(queues.wake(at(in_ms(5)), usize::MAX).len(), 1);
    queues.check();
    assert!(queues.is_empty());
}

#[test]
fn who_asks_with_another_share_has_all_its_locks_looked_at() {
    let mut queues = Queues::new();
    join_all(&mut queues, &[A, B], waiter("x", 1));
    for key in [A, B] {
        let held = held_by("other", None);
        assert_eq!(turn(&mut queues, key, held), None);
        assert!(!queues.is_marked(Name::new(0, key)));
    }
    let shared = Waiter { share: Share::UNLIMITED, ..waiter("x", 2) };
    assert!(matches!(queues.join(names(&[A, B]), shared), Joined::InPlaceOf(..)));
    queues.check();
    assert!([A, B].iter().all(|key| queues.is_marked(Name::new(0, key))));
}

#[test]
fn one_of_its_locks_that_it_holds_is_not_told_alone() {
    let mut queues = Queues::new();
    let both = join_all(&mut queues, &[A, B], waiter("x", 1));
    assert_eq!(turn(&mut queues, A, held_by("x", None)), Some((both, true)));
    join_all(&mut queues, &[C], waiter("y", 2));
    join_all(&mut queues, &[C, b"d"], waiter("z", 3));
    assert_eq!(turn(&mut queues, C, held_by("z", None)), None);
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
