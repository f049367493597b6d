//! Short stories on the virtual server: what commands see between an event and the timer that follows it.

use super::host::LIMITS;
use super::model::{Asked, Client, Waits};
use super::names::{KEYS, LockName, Names, lock};
use super::requests::{Claim, owner};
use super::schedule::EVERYTHING;
use super::world::{Role, Server};
use crate::command::{Error, acquire};
use crate::lock::{Checked, Deadline, Hold, KeptOwner, Proof, Suspicion};

const K: LockName = (0, "k0");
const START: u64 = 1_763_000_000_000_000;

/// The client of each request, whose number is also the request's.
const ALICE: Client = 1;
const BOB: Client = 2;
const CAROL: Client = 3;

const A: &str = "owner1";
const B: &str = "owner2";
const C: &str = "owner3";

fn server() -> Server {
    Server::new(START, EVERYTHING, 1_000, true)
}

fn asks(owner: &'static str) -> Asked {
    Asked { names: Names::one(K), owner, ttl: 60_000, share: 1, waits: None, bind: None }
}

fn waits(owner: &'static str) -> Asked {
    Asked { waits: Some(Waits::Block(0)), ..asks(owner) }
}

/// A request whose hold is bound to a connection, with a grace in milliseconds.
fn bound(owner: &'static str, grace: u64) -> Asked {
    Asked { bind: Some((0, grace)), ..asks(owner) }
}

fn releases(server: &Server, client: Client, owner: &'static str) {
    server.release(client, Claim { names: Names::one(K), owner, fence: None });
}

/// The owners that `LOCK.HOLDERS` names, their fences, and the number of waiters.
fn seen(server: &Server) -> (Vec<(String, u64)>, usize) {
    let place = server.at(K);
    let look = |holds: &mut dyn Iterator<Item = Hold<'_>>, waiters: usize, _| {
        let named = holds
            .map(|hold| (String::from_utf8_lossy(hold.owner).into_owned(), hold.fence_number()));
        (named.collect(), waiters)
    };
    server.engine.on(server).read(&place, look).unwrap()
}

fn holders(server: &Server) -> Vec<String> {
    seen(server).0.into_iter().map(|(owner, _)| owner).collect()
}

fn holds(server: &Server, name: &'static str) -> bool {
    let proof = Proof { owner: owner(name), fence: None };
    server.engine.on(server).check(&server.at(K), &proof).unwrap() != Checked::NotHolder
}

#[test]
fn a_grant_that_nobody_has_heard_of_is_taken_back_before_a_try() {
    let server = server();
    server.acquire(ALICE, asks(A));
    server.acquire(BOB, waits(B));
    assert_eq!(seen(&server).1, 1);
    releases(&server, ALICE, A);
    assert_eq!((holders(&server), seen(&server).1), (vec![B.to_owned()], 0));
    server.dies_unheard(0);
    assert!(!server.is_at_rest());
    // Not while the server uses the key itself.
    server.state.borrow_mut().in_use = Some(K);
    server.work();
    server.state.borrow_mut().in_use = None;
    server.acquire(CAROL, asks(C));
    assert_eq!(holders(&server), [C]);
}

#[test]
fn a_hold_whose_connection_has_ended_is_none_to_whoever_looks() {
    for (grace, is_held) in [(0, false), (50, true)] {
        let server = server();
        server.acquire(ALICE, bound(A, grace));
        assert_eq!(holders(&server), [A]);
        server.disconnects(0);
        assert!(server.engine.has_bindings() && !server.is_at_rest());
        assert_eq!(holders(&server).len(), usize::from(is_held));
        assert_eq!(holds(&server, A), is_held);
        server.acquire(BOB, asks(B));
        assert_eq!(holders(&server), [if is_held { A } else { B }]);
    }
}

#[test]
fn a_grant_that_nobody_waits_for_makes_nothing_due() {
    let server = server();
    let _before = server.engine.take_due_changed();
    server.acquire(ALICE, asks(A));
    releases(&server, ALICE, A);
    assert!(!server.engine.take_due_changed(), "the host sets its timer for nothing");
}

#[test]
fn holds_are_bound_until_they_are_released() {
    let server = server();
    assert!(!server.engine.has_bindings());
    server.acquire(ALICE, bound(A, 0));
    assert!(server.engine.has_bindings());
    let _changed = server.engine.take_due_changed();
    releases(&server, ALICE, A);
    assert!(!server.engine.has_bindings());
    assert!(server.engine.take_due_changed(), "the host need not hear of connections any more");
}

#[test]
fn a_flush_of_another_database_has_no_bound_hold_looked_at() {
    let server = server();
    server.acquire(ALICE, bound(A, 0));
    let now = || server.state.borrow().clocks();
    let due = || server.engine.next_due(now());
    let before = due();
    server.flush(Some(1));
    assert_eq!(due(), before);
    server.flush(Some(0));
    assert_eq!(due(), Some(now().wall));
}

#[test]
fn locks_that_somebody_waits_for_come_first_when_a_connection_ends() {
    let server = Server::new(START, 1, 1_000, true);
    let [first, wanted, last] = [0, 1, 2].map(|number| (0, KEYS[number]));
    for (client, name) in (ALICE..).zip([first, wanted, last]) {
        server.acquire(client, Asked { names: Names::one(name), ..bound(A, 0) });
    }
    server.acquire(ALICE + 3, Asked { names: Names::one(wanted), ..waits(B) });
    server.disconnects(0);
    server.work();
    let state = server.state.borrow();
    let is_alices = |name| format!("{:?}", state.keys.kept.get(&name)).contains(A);
    assert_eq!([first, wanted, last].map(is_alices), [true, false, true]);
}

#[test]
fn what_was_bound_at_a_primary_is_forgotten_by_a_replica() {
    let server = server();
    server.acquire(ALICE, bound(A, 0));
    server.disconnects(0);
    // The server reports later that it has become a replica.
    server.state.borrow_mut().role = Role::Replica;
    server.state.borrow_mut().model.bound.clear();
    server.work();
    assert!(!server.engine.has_bindings());
    assert_eq!(server.state.borrow().keys.kept.len(), 1, "its primary decides");
}

#[test]
fn a_lease_is_over_when_its_deadline_has_passed_and_the_key_says_no_other() {
    let server = server();
    server.acquire(ALICE, asks(A));
    let (named, _) = seen(&server);
    let fence = named[0].1;
    let kept = KeptOwner::from(owner(A));
    let is_over = |fence, millis: u64| {
        let deadline = Deadline::from_millis(START / 1_000 + millis);
        server.engine.on(&server).lease_is_over(&kept, fence, deadline, || server.at(K))
    };
    server.passes(50_000);
    assert!(!is_over(fence, 60));
    assert!(!is_over(fence, 40), "it was extended");
    assert!(is_over(fence + 1, 40), "that grant has ended");
    releases(&server, ALICE, A);
    assert!(is_over(fence, 40));
    assert!(!is_over(fence, 60), "nobody looks before the deadline");
}

#[test]
fn every_contended_lock_is_looked_at_when_the_data_has_been_loaded() {
    let server = server();
    server.acquire(ALICE, asks(A));
    server.acquire(BOB, waits(B));
    server.work();
    let is_marked = || server.engine.with_queues(|queues| queues.is_marked(lock(K)));
    assert!(!is_marked());
    server.engine.loaded();
    assert!(is_marked());
    assert!(server.engine.take_due_changed());
}

#[test]
fn a_lease_that_runs_out_while_somebody_waits_is_counted() {
    let server = server();
    assert_eq!(server.engine.seen(lock(K)), None, "nobody waits");
    server.acquire(ALICE, asks(A));
    assert_eq!(server.engine.seen(lock(K)), None, "nobody waits");
    server.acquire(BOB, waits(B));
    server.work();
    let value = server.engine.seen(lock(K)).flatten().map(|seen| seen.value);
    assert!(value.is_some_and(|value| value.ends_with(b":owner1")));
    server.passes(60_001_000);
    server.work();
    assert_eq!(holders(&server), [B]);
    let counters = server.engine.with_observer(|observer| *observer.counters());
    assert_eq!((counters.expiries_with_waiters, counters.hand_offs), (1, 1));
}

#[test]
fn it_is_told_whether_the_server_or_the_queue_of_the_lock_is_full() {
    let server = server();
    server.acquire(ALICE, asks(A));
    server.acquire(BOB, waits(B));
    let asks = |for_all, per_lock| {
        server.makes_room(for_all, per_lock, usize::MAX);
        asks_to_be_blocked(&server, C).unwrap_err()
    };
    assert_eq!(asks(2, 1), Error::LockQueueFull);
    assert_eq!(asks(1, 2), Error::QueueFull);
}

#[test]
fn a_request_whose_client_cannot_wait_is_a_try_that_was_refused() {
    let server = server();
    server.acquire(ALICE, asks(A));
    server.state.borrow_mut().may_block = false;
    asks_to_be_blocked(&server, B).expect("an answer");
    assert_eq!(seen(&server).1, 0);
    assert_eq!(server.engine.with_observer(|observer| observer.counters().tries_refused), 1);
}

/// Asks for the lock, ready to wait, without the model.
fn asks_to_be_blocked(server: &Server, owner: &str) -> Result<(), Error> {
    let words = [b"", K.1.as_bytes(), owner.as_bytes(), b"1000", b"BLOCK", b"0"];
    let request = acquire::Request::parse(&words, &LIMITS, || panic!("it names an owner"))?;
    server.engine.on(server).change_or_wait(&[server.at(K)], &request).map(drop)
}

#[test]
fn where_one_of_many_locks_stays_held_the_others_are_not_asked_for() {
    let server = server();
    let [.., last] = KEYS;
    server.acquire(ALICE, Asked { names: Names::of(0, &[last]), ..asks(A) });
    server.acquire(BOB, Asked { names: Names::of(0, &KEYS), ..waits(B) });
    for key in KEYS {
        server.passes(3_000);
        server.state.borrow_mut().named = 0;
        server.touched((0, key), Suspicion::Freed);
        server.work();
        // Each lock that was named earlier is looked at once more.
        assert!(server.state.borrow().named < KEYS.len(), "{key}: others were looked at in vain");
    }
    server.release(ALICE, Claim { names: Names::of(0, &[last]), owner: A, fence: None });
    let state = server.state.borrow();
    for key in KEYS {
        assert_eq!(state.model.holders((0, key), state.wall)[0].0, B);
    }
}

#[test]
fn a_lease_that_ends_while_several_locks_are_looked_at_is_extended_with_the_others() {
    let server = server();
    let [first, last] = [KEYS[0], KEYS[1]];
    for (client, key, ttl) in [(ALICE, first, 5), (BOB, last, 50)] {
        server.acquire(client, Asked { names: Names::of(0, &[key]), ttl, ..asks(A) });
    }
    server.passes(4_500);
    // The first lease is over if the engine asks for the time once more.
    server.step_begins(2_000);
    server.extend(CAROL, Claim { names: Names::of(0, &[first, last]), owner: A, fence: None }, 30);
    let state = server.state.borrow();
    for key in [first, last] {
        assert_eq!(state.model.holders((0, key), state.wall)[0].0, A, "{key} is not held");
    }
}
