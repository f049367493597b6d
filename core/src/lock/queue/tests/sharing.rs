//! Several holders at a time, and the waiters behind them.

use super::*;
use crate::lock::hold::Grant;
use crate::lock::line::Value;

fn tolerating(share: u32, waiter: Waiter<Connection>) -> Waiter<Connection> {
    Waiter { share: Share::new(share).unwrap(), ..waiter }
}

/// A lock with these holds: owner, end of the lease, share.
fn held_by_all(holds: &[(&str, u64, u32)]) -> Stored<'static> {
    let value: Vec<u8> = holds
        .iter()
        .zip(Fence::FIRST.number()..)
        .flat_map(|(&(owner, end, share), number)| {
            let (owner, share) =
                (Owner::new(owner.as_bytes()).unwrap(), Share::new(share).unwrap());
            let fence = Fence::new(number).unwrap();
            let deadline = Deadline::from_millis(in_ms(end).millis());
            Value::of_line(&Grant { owner, fence, deadline, share }).as_bytes().to_vec()
        })
        .collect();
    let last = holds.iter().map(|hold| hold.1).max().unwrap();
    let deadline = Some(Deadline::from_millis(in_ms(last).millis()));
    Stored::Text { value: value.leak(), deadline }
}

#[test]
fn the_head_goes_in_beside_those_who_tolerate_it_and_the_next_one_waits_if_it_does_not_fit() {
    let mut queues = Queues::new();
    join(&mut queues, tolerating(0, waiter("a", 1)));
    join(&mut queues, waiter("w", 2));
    join(&mut queues, tolerating(0, waiter("b", 3)));
    let held = held_by_all(&[("x", 50, 0)]);
    assert_granted(settle(&mut queues, held), 1);
    assert_held(&mut queues, held);
    assert_queue(&queues, &[2, 3]);
}

#[test]
fn when_a_head_leaves_that_did_not_fit_the_one_behind_it_is_looked_at() {
    let mut queues = Queues::new();
    let head = join(&mut queues, waiter("w", 1));
    join(&mut queues, tolerating(0, waiter("b", 2)));
    let held = held_by_all(&[("x", 50, 0)]);
    assert_held(&mut queues, held);
    assert!(!queues.has_marks());
    assert!(queues.leave(head).is_some());
    assert!(take_marked(&mut queues).is_some());
    assert_granted(settle(&mut queues, held), 2);
}

#[test]
fn when_a_head_asks_anew_with_a_looser_share_it_is_looked_at() {
    let mut queues = Queues::new();
    join(&mut queues, waiter("a", 1));
    let held = held_by_all(&[("x", 50, 0)]);
    assert_held(&mut queues, held);
    let again = queues.join(Name::new(0, KEY), tolerating(0, waiter("a", 2)));
    assert!(matches!(again, Joined::InPlaceOf(_, KeptWait::Blocked(1))));
    assert!(take_marked(&mut queues).is_some());
    assert_granted(settle(&mut queues, held), 2);
}

#[test]
fn the_next_look_is_when_the_first_hold_ends_and_not_when_the_key_does() {
    let mut queues = Queues::new();
    join(&mut queues, tolerating(2, waiter("a", 1)));
    assert_held(&mut queues, held_by_all(&[("x", 500, 2), ("y", 20, 2)]));
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(21)));
}

#[test]
fn of_several_holds_those_that_ran_out_are_lost_and_no_other() {
    let mut queues = Queues::new();
    join(&mut queues, waiter("a", 1));
    let held = held_by_all(&[("x", 500, 0), ("y", 20, 0), ("z", 20, 0)]);
    assert_held(&mut queues, held);
    let lost = |queues: &mut Queues<Connection>, stored, now| {
        let settled = settle_with(queues, stored, now, &mut FenceClock::new());
        let lost = settled.lost.into_iter().map(|lost| (lost.owner.to_vec(), lost.by));
        lost.collect::<Vec<_>>()
    };
    let ran_out = |owner: &str| (owner.as_bytes().to_vec(), LostBy::RunningOut);
    assert_eq!(lost(&mut queues, held, in_ms(21)), [ran_out("y"), ran_out("z")]);
    assert_eq!(lost(&mut queues, held, in_ms(22)), [], "it was told");
    let deleted = (b"x".to_vec(), LostBy::Deletion);
    assert_eq!(lost(&mut queues, Stored::Nothing, in_ms(30)), [deleted]);
}

#[test]
fn one_that_changes_among_several_was_not_overwritten() {
    let mut queues = Queues::new();
    join(&mut queues, waiter("a", 1));
    assert_held(&mut queues, held_by_all(&[("x", 500, 0), ("y", 400, 0)]));
    let changed = held_by_all(&[("x", 500, 3), ("y", 450, 0), ("z", 400, 0)]);
    let settled = settle_with(&mut queues, changed, in_ms(1), &mut FenceClock::new());
    assert_eq!(settled.lost, []);
    let without = held_by_all(&[("x", 500, 3)]);
    let settled = settle_with(&mut queues, without, in_ms(2), &mut FenceClock::new());
    let lost: Vec<_> = settled.lost.iter().map(|lost| (&*lost.owner, lost.by)).collect();
    assert_eq!(lost, [(&b"y"[..], LostBy::Overwriting), (&b"z"[..], LostBy::Overwriting)]);
}
