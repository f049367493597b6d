//! How many may wait.

use super::tickets::ticket;
use super::*;
use crate::lock::wait::WaitKind;

#[test]
fn there_is_room_up_to_either_limit() {
    let (queues, _) = queue_of(&["a", "b"]);
    let has_room = |key, for_all, per_lock| {
        let owner = Owner::new(b"c").unwrap();
        queues.has_room(
            Name::new(0, key),
            owner,
            WaitKind::Blocked,
            Room { for_all, per_lock, ..Room::UNLIMITED },
        )
    };
    assert!(has_room(KEY, 3, 3));
    assert!(!has_room(KEY, 2, 3));
    assert!(!has_room(KEY, 3, 2));
    assert!(has_room(b"another", 3, 1));
    assert!(!has_room(b"another", 2, 1));
    assert!(!has_room(b"another", 3, 0));
}

#[test]
fn who_waits_already_needs_no_room() {
    let (queues, _) = queue_of(&["a", "b"]);
    let none = Room { for_all: 0, per_lock: 0, ..Room::UNLIMITED };
    assert!(queues.has_room(Name::new(0, KEY), Owner::new(b"a").unwrap(), WaitKind::Blocked, none));
    assert!(!queues.has_room(
        Name::new(1, KEY),
        Owner::new(b"a").unwrap(),
        WaitKind::Blocked,
        none
    ));
    assert!(queues.has_room(
        Name::new(1, KEY),
        Owner::new(b"a").unwrap(),
        WaitKind::Blocked,
        ROOMY
    ));
}

#[test]
fn either_way_of_waiting_has_its_own_room() {
    let mut queues = Queues::new();
    join(&mut queues, waiter("a", 1));
    join(&mut queues, ticket("b", 2, 0));
    join(&mut queues, ticket("c", 3, 0));
    let has_room = |owner: &[u8], kind, for_all, per_lock| {
        let room = Room { for_all, per_lock, ..Room::UNLIMITED };
        queues.has_room(Name::new(0, KEY), Owner::new(owner).unwrap(), kind, room)
    };
    assert!(has_room(b"d", WaitKind::Blocked, 2, 2));
    assert!(!has_room(b"d", WaitKind::Ticket, 2, 3));
    assert!(!has_room(b"d", WaitKind::Ticket, 3, 2));
    assert!(has_room(b"d", WaitKind::Ticket, 3, 3));
    assert!(has_room(b"c", WaitKind::Ticket, 0, 0), "it has its place");
    assert!(!has_room(b"c", WaitKind::Blocked, 1, 1), "it would be one more of those");
}
