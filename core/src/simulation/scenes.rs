//! Short stories on the virtual server: what commands see between an event and the timer that follows it.

use super::alike::Role;
use super::host::LIMITS;
use super::model::{Client, LockName, Reply, Waits};
use super::requests::{Claim, Request, owner};
use super::schedule::EVERYTHING;
use super::world::{Server, lock};
use crate::command::{Error, acquire};
use crate::lock::{Checked, Deadline, Hold, KeptOwner, Proof};

const K: LockName = (0, "k0");
const START: u64 = 1_763_000_000_000_000;

/// The client of each request, whose number is also the request's.
const ALICE: Client = 1;
const BOB: Client = 2;
const CAROL: Client = 3;

fn server() -> Server {
    Server::new(START, EVERYTHING, 1_000, true)
}

fn asks(owner: &'static str) -> Request {
    Request { name: K, owner, ttl: 60_000, share: 1, waits: None, ephemeral: None }
}

fn waits(owner: &'static str) -> Request {
    Request { waits: Some(Waits::Block(0)), ..asks(owner) }
}

/// A request whose hold is bound to a connection, with a grace in milliseconds.
fn bound(owner: &'static str, grace: u64) -> Request {
    Request { ephemeral: Some((0, grace)), ..asks(owner) }
}

fn releases(server: &Server, client: Client, owner: &'static str) {
    server.release(client, Claim { name: K, owner, fence: None });
}

/// The owners that `LOCK.HOLDERS` names, their fences, and the number of waiters.
fn seen(server: &Server) -> (Vec<(String, u64)>, usize) {
    let place = server.at(K);
    let look = |holds: &mut dyn Iterator<Item = Hold<'_>>, waiters: usize, _| {
        let named = holds
            .map(|hold| (String::from_utf8_lossy(hold.owner).into_owned(), hold.fence_number()));
        (named.collect(), waiters)
    };
    server.engine.read(server, &place, look).unwrap()
}

fn holders(server: &Server) -> Vec<String> {
    seen(server).0.into_iter().map(|(owner, _)| owner).collect()
}

fn holds(server: &Server, name: &'static str) -> bool {
    let proof = Proof { owner: owner(name), fence: None };
    server.engine.check(server, &server.at(K), &proof).unwrap() != Checked::NotHolder
}

/// Grants Bob the lock, and ends his connection before he hears of it. Returns his fence.
fn granted_unheard(server: &Server) -> u64 {
    server.acquire(ALICE, asks("a"));
    server.acquire(BOB, waits("b"));
    assert_eq!(seen(server).1, 1);
    releases(server, ALICE, "a");
    let (named, waiters) = seen(server);
    assert_eq!((named.len(), waiters), (1, 0));
    server.dies_unheard(0);
    named[0].1
}

#[test]
fn a_grant_that_nobody_has_heard_of_is_none_to_whoever_looks() {
    let server = server();
    let fence = granted_unheard(&server);
    assert!(server.engine.is_pending_release(lock(K), fence));
    assert!(!server.engine.is_pending_release(lock(K), fence + 1));
    assert_eq!(seen(&server), (vec![], 0));
    assert!(!holds(&server, "b"));
    assert!(!server.is_at_rest());
    server.work();
    assert!(holders(&server).is_empty());
    assert!(!server.engine.is_pending_release(lock(K), fence));
    assert!(server.is_at_rest());
}

#[test]
fn a_grant_that_nobody_has_heard_of_is_taken_back_before_a_try() {
    let server = server();
    let _fence = granted_unheard(&server);
    server.acquire(CAROL, asks("c"));
    assert_eq!(holders(&server), ["c"]);
}

#[test]
fn another_hold_is_seen_beside_a_grant_that_nobody_has_heard_of() {
    let server = server();
    let shared = |request: Request| Request { share: 2, ..request };
    server.acquire(ALICE, asks("a"));
    server.acquire(BOB, shared(waits("b")));
    server.acquire(CAROL, shared(waits("c")));
    releases(&server, ALICE, "a");
    assert_eq!(holders(&server), ["b", "c"]);
    server.dies_unheard(0);
    assert_eq!(holders(&server), ["c"]);
    assert!(holds(&server, "c") && !holds(&server, "b"));
}

#[test]
fn an_owner_that_was_told_of_its_grant_elsewhere_keeps_it() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    server.acquire(BOB, waits("b"));
    releases(&server, ALICE, "a");
    assert!(holds(&server, "b"), "and he is told so here");
    server.dies_unheard(0);
    server.work();
    assert_eq!(holders(&server), ["b"]);
}

#[test]
fn a_grant_that_nobody_has_heard_of_waits_for_the_end_of_a_pause() {
    let server = server();
    let fence = granted_unheard(&server);
    server.becomes(Role::Paused);
    server.work();
    assert!(server.engine.is_pending_release(lock(K), fence));
    assert!(holders(&server).is_empty());
    server.becomes(Role::Primary);
    server.passes(20_000);
    server.work();
    assert!(!server.engine.is_pending_release(lock(K), fence));
}

#[test]
fn a_hold_whose_connection_has_ended_is_none_to_whoever_looks() {
    for (grace, is_held) in [(0, false), (50, true)] {
        let server = server();
        server.acquire(ALICE, bound("a", grace));
        assert_eq!(holders(&server), ["a"]);
        server.disconnects(0);
        assert!(server.engine.has_bindings() && !server.is_at_rest());
        assert_eq!(holders(&server).len(), usize::from(is_held));
        assert_eq!(holds(&server, "a"), is_held);
        server.acquire(BOB, asks("b"));
        assert_eq!(holders(&server), [if is_held { "a" } else { "b" }]);
    }
}

#[test]
fn a_hold_whose_connection_ended_in_a_pause_ends_soon_after_the_pause() {
    let server = server();
    server.acquire(ALICE, bound("a", 0));
    server.becomes(Role::Paused);
    server.disconnects(0);
    server.work();
    assert_eq!(server.state.borrow().keys.len(), 1);
    server.becomes(Role::Primary);
    server.passes(20_000);
    server.work();
    assert_eq!(server.state.borrow().keys.len(), 0);
    assert!(!server.engine.has_bindings() && server.is_at_rest());
}

#[test]
fn holds_are_bound_until_they_are_released() {
    let server = server();
    assert!(!server.engine.has_bindings());
    server.acquire(ALICE, bound("a", 0));
    assert!(server.engine.has_bindings());
    let _changed = server.engine.take_due_changed();
    releases(&server, ALICE, "a");
    assert!(!server.engine.has_bindings());
    assert!(server.engine.take_due_changed(), "the host need not hear of connections any more");
}

#[test]
fn what_was_bound_at_a_primary_is_forgotten_by_a_replica() {
    let server = server();
    server.acquire(ALICE, bound("a", 0));
    server.disconnects(0);
    // The server reports later that it has become a replica.
    server.state.borrow_mut().role = Role::Replica;
    server.state.borrow_mut().model.bound.clear();
    server.work();
    assert!(!server.engine.has_bindings());
    assert_eq!(server.state.borrow().keys.len(), 1, "its primary decides");
}

#[test]
fn a_lease_is_over_when_its_deadline_has_passed_and_the_key_says_no_other() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    let (named, _) = seen(&server);
    let fence = named[0].1;
    let kept = KeptOwner::from(owner("a"));
    let is_over = |fence, millis: u64| {
        let deadline = Deadline::from_millis(START / 1_000 + millis);
        server.engine.lease_is_over(&server, &kept, fence, deadline, || server.at(K))
    };
    server.passes(50_000);
    assert!(!is_over(fence, 60));
    assert!(!is_over(fence, 40), "it was extended");
    assert!(is_over(fence + 1, 40), "that grant has ended");
    releases(&server, ALICE, "a");
    assert!(is_over(fence, 40));
    assert!(!is_over(fence, 60), "nobody looks before the deadline");
}

#[test]
fn an_evicted_lock_is_held() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    server.evict(K);
    assert_eq!(server.state.borrow().keys.len(), 0);
    assert_eq!(holders(&server), ["a"]);
    assert!(holds(&server, "a"));
    server.work();
    assert_eq!(server.state.borrow().keys.len(), 1);
}

#[test]
fn every_contended_lock_is_looked_at_when_the_data_has_been_loaded() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    server.acquire(BOB, waits("b"));
    server.work();
    let is_marked = || server.engine.with_queues(|queues| queues.is_marked(lock(K)));
    assert!(!is_marked());
    server.engine.loaded();
    assert!(is_marked());
    assert!(server.engine.take_due_changed());
}

#[test]
fn everybody_is_sent_away_from_a_server_that_has_become_a_replica() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    server.acquire(BOB, waits("b"));
    server.acquire(CAROL, waits("c"));
    server.state.borrow_mut().answers.clear();
    server.becomes(Role::Replica);
    let told = [BOB, CAROL].map(|client| (client, Reply::SentAway));
    assert_eq!(server.state.borrow().answers, told);
    assert_eq!(seen(&server).1, 0);
}

#[test]
fn those_who_wait_are_sent_away_when_the_slot_has_gone() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    server.acquire(BOB, waits("b"));
    server.state.borrow_mut().answers.clear();
    server.slot_goes(K);
    assert_eq!(server.state.borrow().answers, [(BOB, Reply::SentAway)]);
    assert_eq!(seen(&server).1, 0);
}

#[test]
fn a_lease_that_runs_out_while_somebody_waits_is_counted() {
    let server = server();
    assert_eq!(server.engine.seen(lock(K)), None, "nobody waits");
    server.acquire(ALICE, asks("a"));
    assert_eq!(server.engine.seen(lock(K)), None, "nobody waits");
    server.acquire(BOB, waits("b"));
    server.work();
    let value = server.engine.seen(lock(K)).flatten().map(|seen| seen.value);
    assert!(value.is_some_and(|value| value.ends_with(b":a")));
    server.passes(60_001_000);
    server.work();
    assert_eq!(holders(&server), ["b"]);
    let counters = server.engine.with_observer(|observer| *observer.counters());
    assert_eq!((counters.expiries_with_waiters, counters.hand_offs), (1, 1));
}

#[test]
fn it_is_told_whether_the_server_or_the_queue_of_the_lock_is_full() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    server.acquire(BOB, waits("b"));
    let asks = |for_all, per_lock| {
        server.makes_room(for_all, per_lock, usize::MAX);
        asks_to_be_blocked(&server, "c").unwrap_err()
    };
    assert_eq!(asks(2, 1), Error::LockQueueFull);
    assert_eq!(asks(1, 2), Error::QueueFull);
}

#[test]
fn a_request_whose_client_cannot_wait_is_a_try_that_was_refused() {
    let server = server();
    server.acquire(ALICE, asks("a"));
    server.state.borrow_mut().may_block = false;
    asks_to_be_blocked(&server, "b").expect("an answer");
    assert_eq!(server.engine.with_observer(|observer| observer.counters().tries_refused), 1);
    assert_eq!(seen(&server).1, 0);
}

/// Asks for the lock, ready to wait, without the model.
fn asks_to_be_blocked(server: &Server, owner: &str) -> Result<(), Error> {
    let words = [b"", K.1.as_bytes(), owner.as_bytes(), b"1000", b"BLOCK", b"0"];
    let request = acquire::Request::parse(&words, &LIMITS, || panic!("it names an owner"))?;
    server.engine.change(server, &[server.at(K)], &request).map(drop)
}
