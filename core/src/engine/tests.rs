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
fn an_answer_names_the_fence_of_the_hold_that_it_tells_of() {
    let names = || KeptNames { first: Name::new(0, b"k").into(), also: Box::default() };
    let (fence, deadline) = (Fence::FIRST, Deadline::from_millis(NOW.millis()));
    let granted = Answer::Granted { names: names(), fence, deadline };
    assert_eq!(granted.fence_number(), Some(fence.number()));
    let again =
        Answer::Again { names: names(), fence_number: 7, deadline: Deadline::from_millis(9) };
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
    assert_eq!(
        [0, 19, 20, 60].map(|receivers| rounds(Effort::of_telling(receivers))),
        [0, 0, 1, 3]
    );
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

mod turns {
    //! The decision about the request of a waiter whose turn it is.

    use super::*;
    use crate::command::Error;
    use crate::lock::{
        Decision, FenceClock, Holders, KeptTicket, KeptWait, Limits, Share, Standing, Ticket, Ttl,
        Waiter,
    };

    const LIMITS: Limits = Limits { max_ttl: Ttl::USUAL_LIMIT, max_holders: 3 };

    fn ttl(millis: u64) -> Ttl {
        Ttl::from_millis(millis).unwrap()
    }

    fn waiter() -> Waiter<()> {
        Waiter {
            owner: Owner::new(b"a").unwrap().into(),
            ttl: ttl(30),
            share: Share::EXCLUSIVE,
            since: START,
            gives_up: None,
            ephemeral: None,
            wait: KeptWait::Blocked(()),
        }
    }

    fn at(wall: Moment) -> Now {
        Now { wall, monotonic: START.plus_millis(10) }
    }

    fn standing(stored: Stored<'_>) -> Standing {
        let owner = Owner::new(b"a").unwrap();
        let holders: Holders<'_> = stored.holders(owner, NOW, &mut FenceClock::new()).unwrap();
        Standing::new(&holders, 0, Share::EXCLUSIVE, 3)
    }

    #[track_caller]
    fn assert_lease(waiter: &Waiter<()>, limits: Limits, millis: u64) {
        let engine = Engine::new();
        match engine.decide_for(waiter, &[standing(Stored::Nothing)], at(NOW), limits) {
            Ok(Decision::Granted(grant)) => {
                assert_eq!(grant.deadline, Deadline::after(NOW, ttl(millis)));
                assert_eq!(grant.fence.number(), NOW.micros());
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lease_begins_at_its_grant_and_is_no_longer_than_may_be_asked_for_now() {
        assert_lease(&waiter(), LIMITS, 30);
        assert_lease(&waiter(), Limits { max_ttl: ttl(7), ..LIMITS }, 7);
    }

    #[test]
    fn the_lease_of_a_ticket_is_as_long_as_it_lasts_and_no_longer_than_the_ttl() {
        for (asked, lease) in [(5, 5), (20, 20), (30, 20)] {
            let ticket = KeptTicket::new(Ticket { lasts: ttl(20), channel: None }, 7);
            let wait = KeptWait::Ticket(ticket);
            assert_lease(&Waiter { ttl: ttl(asked), wait, ..waiter() }, LIMITS, lease);
        }
    }

    #[test]
    fn whose_patience_has_ended_is_granted_nothing_and_told_of_what_it_holds() {
        let engine = Engine::new();
        let waiter = Waiter { gives_up: Some(START.plus_millis(10)), ..waiter() };
        let decide = |stored| engine.decide_for(&waiter, &[standing(stored)], at(NOW), LIMITS);
        assert!(matches!(decide(Stored::Nothing), Err(Answer::GaveUp)));
        let own = Stored::Text { value: b"a", deadline: None };
        assert!(matches!(decide(own), Ok(Decision::Again { fence_number: 0, .. })));
    }

    #[test]
    fn without_a_fence_left_it_is_told_so() {
        let (engine, waiter) = (Engine::new(), waiter());
        let late = Moment::from_micros(Fence::LAST.number() + 1);
        let decided = engine.decide_for(&waiter, &[standing(Stored::Nothing)], at(late), LIMITS);
        assert!(matches!(decided, Err(Answer::Refused(Error::NoFenceLeft))));
    }
}
