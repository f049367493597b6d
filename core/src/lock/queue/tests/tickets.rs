//! Waiters by ticket: they keep their places by asking again.

use super::*;
use crate::lock::wait::{KeptTicket, WaitKind};

const LASTS: u64 = 20;

/// A ticket that was asked for at `asked`.
pub(super) fn ticket(owner: &str, client: Connection, asked: u64) -> Waiter<Connection> {
    let lasts = Ttl::from_millis(LASTS).unwrap();
    let wait = KeptWait::Ticket(KeptTicket { lasts, channel: None, client: client.into() });
    let gives_up = after_ms(asked).plus_millis(LASTS);
    Waiter { wait, since: after_ms(asked), gives_up: Some(gives_up), ..waiter(owner, client) }
}

fn given_up(queues: &mut Queues<Connection>, moment: u64) -> Vec<Connection> {
    let ended = queues.wake(at(in_ms(moment)), usize::MAX);
    queues.check();
    ended.iter().map(|left| connection_of(&left.waiter)).collect()
}

#[test]
fn a_place_is_kept_by_asking_again_and_given_up_by_not_asking() {
    let mut queues = Queues::new();
    join(&mut queues, ticket("a", 1, 0));
    join(&mut queues, ticket("b", 2, 0));
    join(&mut queues, waiter("c", 3));
    let again = queues.join(Name::new(0, KEY), ticket("a", 4, 15));
    assert!(matches!(again, Joined::InPlaceOf(_, KeptWait::Ticket(_))));
    assert_queue(&queues, &[4, 2, 3]);
    assert_eq!(given_up(&mut queues, 19), []);
    assert_eq!(given_up(&mut queues, 20), [2]);
    assert_eq!(given_up(&mut queues, 34), []);
    assert_queue(&queues, &[4, 3]);
    assert_eq!(given_up(&mut queues, 35), [4]);
    assert_queue(&queues, &[3]);
    assert_eq!(queues.places(WaitKind::Ticket), 0);
}

#[test]
fn who_asks_for_less_gives_up_sooner() {
    let mut queues = Queues::new();
    join(&mut queues, ticket("a", 1, 0));
    let shorter = with_patience(5, ticket("a", 2, 0));
    assert!(matches!(queues.join(Name::new(0, KEY), shorter), Joined::InPlaceOf(..)));
    queues.check();
    assert_eq!(given_up(&mut queues, 5), [2]);
}

#[test]
fn an_owner_changes_from_one_way_of_waiting_to_the_other_in_its_place() {
    let mut queues = Queues::new();
    join(&mut queues, waiter("a", 1));
    join(&mut queues, ticket("b", 2, 0));
    let by_ticket = queues.join(Name::new(0, KEY), ticket("a", 3, 1));
    assert!(matches!(by_ticket, Joined::InPlaceOf(_, KeptWait::Blocked(1))));
    let blocked = queues.join(Name::new(0, KEY), waiter("b", 4));
    assert!(matches!(blocked, Joined::InPlaceOf(_, KeptWait::Ticket(_))));
    assert_queue(&queues, &[3, 4]);
    assert_eq!((queues.places(WaitKind::Ticket), queues.blocked()), (1, 1));
    assert_eq!(given_up(&mut queues, 1_000), [3], "the one who is blocked now has no end");
}

#[test]
fn only_the_owner_of_a_ticket_gives_it_up() {
    let mut queues = Queues::new();
    join(&mut queues, waiter("a", 1));
    join(&mut queues, ticket("b", 2, 0));
    let mut leaves = |owner: &[u8]| {
        queues.leave_by_ticket(Name::new(0, KEY), Owner::new(owner).unwrap()).is_some()
    };
    assert!(!leaves(b"a"), "it waits on its connection");
    assert!(!leaves(b"c"));
    assert!(leaves(b"b"));
    assert!(!leaves(b"b"));
    assert_queue(&queues, &[1]);
}

#[test]
fn a_crowd_has_an_index_until_few_are_left() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let has_index =
        |queues: &Queues<Connection>| queues.queues.iter().any(|(_, queue)| queue.owners.is_some());
    let mut queues = Queues::new();
    let mut ids = Vec::new();
    for (number, name) in (1..).zip(names) {
        ids.push(join(&mut queues, waiter(name, number)));
        assert_eq!(has_index(&queues), number > 4, "{number}");
    }
    for (left, id) in (0..6).rev().zip(ids) {
        assert!(queues.leave(id).is_some());
        assert_eq!(has_index(&queues), left >= 2, "{left}");
        queues.check();
    }
}
