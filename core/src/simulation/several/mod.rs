//! Random schedules of requests for several locks, and of everything that may interfere: the same engine, on another
//! virtual server.
//!
//! Here the model does not follow the engine step by step. It says whether each grant may be made at its moment, how
//! each request must end, and, when the engine has nothing more to do, whether anybody waits needlessly.
//!
//! ```text
//!   L1, L3   the holders after every write, and the outcome of every request
//!   L2       the fences of grants
//!   L4       a waiter that gets its locks is first in all of their queues
//!   L5       at rest, no waiter is left that could have all of its locks
//!   whole    one fence on all locks of a grant, and all are written before anybody is told, or all are taken back
//! ```
//!
//! `LEASEHOLD_SEED` and `LEASEHOLD_SEEDS` work as for the [other simulation](super).

mod host;
mod model;
mod plan;
mod requests;
mod schedule;
mod server;

use super::alike;
use super::seeds::{self, Trace};
use crate::lock::Told;
use host::live_in;
use model::{Client, Content, Key};
use requests::{Claim, Request, Waits};
use schedule::{EVERYTHING, Op, Schedule, Step};
use server::{KEYS, Server, lock};

const SEEDS: u64 = 2_000;
const STEPS: usize = 300;

/// How often the timer may ring before all is done, however little is done each time.
const MOST_RINGS: usize = 500;

#[test]
fn several_locks_are_granted_at_once_or_not_at_all_and_l1_to_l5_hold() {
    seeds::run_each(SEEDS, "simulation::several", run);
}

#[test]
fn where_one_of_many_locks_stays_held_the_others_are_not_asked_for() {
    let server = Server::new(1_763_000_000_000_000, EVERYTHING, 0, true);
    let request = |keys: &[Key], owner, waits| {
        let keys = keys.to_vec();
        Request { keys, owner, ttl: 60_000, share: 1, waits, ephemeral: None }
    };
    let [.., last] = KEYS;
    server.acquire(0, &request(&[last], "ann", None));
    server.acquire(1, &request(&KEYS, "bob", Some(Waits::Block(0))));
    for key in KEYS {
        server.passes(3_000);
        server.named.set(0);
        server.touches(key);
        server.work();
        // Each lock that was named earlier is looked at once more.
        assert!(server.named.get() < KEYS.len(), "{key}: others were looked at in vain");
    }
    server.release(&Claim { keys: vec![last], owner: "ann", fence: None });
    let state = server.state.borrow();
    assert!(KEYS.iter().all(|key| state.model.own(key, "bob", state.wall).is_some()));
}

#[test]
fn a_lease_that_ends_while_several_locks_are_looked_at_is_extended_with_the_others() {
    let server = Server::new(1_763_000_000_000_000, EVERYTHING, 0, true);
    let [first, last] = [KEYS[0], KEYS[1]];
    for (client, key, ttl) in [(0, first, 5), (1, last, 50)] {
        let (keys, owner) = (vec![key], "ann");
        let request = Request { keys, owner, ttl, share: 1, waits: None, ephemeral: None };
        server.acquire(client, &request);
    }
    server.passes(4_500);
    // The first lease is over if the engine asks for the time once more.
    server.state.borrow_mut().passes_when_asked = 2_000;
    server.extend(&Claim { keys: vec![first, last], owner: "ann", fence: None }, 30);
    let state = server.state.borrow();
    for key in [first, last] {
        assert!(state.model.own(key, "ann", state.wall).is_some(), "{key} is not held");
    }
}

/// Takes every step of a schedule, and checks everything after each.
fn run(seed: u64, mut trace: Trace<'_>) {
    let mut schedule = Schedule::new(seed);
    let Schedule { start, at_once, quarantine_millis, .. } = schedule;
    let server = Server::new(start, at_once, quarantine_millis, !seed.is_multiple_of(4));
    for number in 0..STEPS {
        let step = schedule.next(&server.state.borrow());
        if let Some(trace) = &mut trace {
            let micros = server.state.borrow().wall;
            trace(format!("{number:>4} {micros} {step:?}"));
        }
        let Step { then_works, .. } = step;
        // Every request comes from a client of its own.
        take(&server, Client::try_from(number).expect("a small number"), step);
        server.connections_have_ended();
        assert_same(&server);
        server.forgets_what_is_gone();
        if then_works && server.is_at_rest() && server.state.borrow().is_primary() {
            assert_nobody_waits_in_vain(&server);
        }
    }
}

fn take(server: &Server, client: Client, step: Step) {
    server.state.borrow_mut().dies_at_once = step.dies_at_once;
    match step.op {
        // These steps only move or set a clock.
        Op::Pass(_) | Op::Step(_) => happen(server, client, step.op),
        op => saying_what_is_due(server, || happen(server, client, op)),
    }
    if step.then_works {
        let mut rings = 0;
        loop {
            server.work();
            rings += 1;
            if server.is_at_rest() {
                break;
            }
            assert!(rings < MOST_RINGS, "never done");
        }
    }
    if step.then_delivers {
        saying_what_is_due(server, || server.deliver());
    }
    server.state.borrow_mut().notes_pause();
}

fn saying_what_is_due(server: &Server, happen: impl FnOnce()) {
    alike::saying_what_is_due(&server.engine, || server.state.borrow().clocks(), happen);
}

fn happen(server: &Server, client: Client, op: Op) {
    match op {
        Op::Pass(micros) => server.passes(micros),
        Op::Step(micros) => server.steps(micros),
        Op::Acquire(request) => server.acquire(client, &request),
        Op::Release(claim) => server.release(&claim),
        Op::Extend(claim, ttl) => server.extend(&claim, ttl),
        Op::Disconnect(slot) => server.disconnects(slot),
        Op::Leave(client) => server.leaves(client),
        Op::DieUnheard(at) => server.dies_unheard(at),
        Op::Put(key, content) => server.put(key, &content),
        Op::Delete(key) => server.delete(key),
        Op::Flush => server.flush(),
        Op::Evict(key) => server.evict(key),
        Op::RemoveExpired => server.remove_expired(),
        Op::Touch(key) => server.touches(key),
        Op::Become(role) => server.becomes(role),
        Op::Room(for_all, per_lock, tickets) => {
            let state = &mut *server.state.borrow_mut();
            (state.room.for_all, state.room.per_lock) = (for_all, per_lock);
            (state.room_for_tickets.for_all, state.room_for_tickets.per_lock) = (tickets, tickets);
        }
        Op::RefuseWrite(at) => server.state.borrow_mut().refuses = Some(at),
    }
}

/// Checks holders and waiters, and that nothing is half done.
fn assert_same(server: &Server) {
    let state = &*server.state.borrow();
    let (model, now) = (&state.model, state.wall);
    assert!(model.plan.is_none(), "half done: {:?}", model.plan);
    assert!(model.replaced.is_empty(), "{:?} were replaced, and not told", model.replaced);
    for key in KEYS {
        match model.keys.get(key) {
            Some(Content::OtherType) => {}
            _ => {
                let kept = state.keys.copy((0, key)).or_else(|| server.evicted(key));
                model.assert_holds(key, &live_in(kept.as_ref(), now), now);
            }
        }
    }
    server.engine.with_queues(|queues| {
        queues.check();
        assert_eq!(queues.waiters(), model.waiters.len(), "those who wait, and the model's");
        for key in KEYS {
            let mut queue = queues.queue(lock(key));
            for waiting in model.waiters_for(key) {
                let (waiter, of) = queue.next().expect("as many wait as in the model");
                let client = match &waiter.told {
                    Told::Blocked(client) => u64::from(*client),
                    Told::Ticket(ticket) => ticket.client,
                };
                assert_eq!(client, waiting.client.into(), "{key}: who waits, and the model's");
                assert_eq!(waiter.told.kind(), waiting.kind);
                assert_eq!(of, waiting.asked.keys.len());
                assert_eq!(waiter.told.lease(waiter.ttl).millis(), waiting.asked.ttl);
                assert_eq!(waiter.share.number(), waiting.asked.share);
                let gives_up = waiting.gives_up.map(crate::lock::Monotonic::from_micros);
                assert_eq!(waiter.gives_up, gives_up);
            }
            assert!(queue.next().is_none(), "{key}: more wait than in the model");
        }
    });
}

/// L5. Also, no hold is left that must be taken back, or whose connection has ended.
fn assert_nobody_waits_in_vain(server: &Server) {
    let state = &mut *server.state.borrow_mut();
    if state.is_paused() {
        return;
    }
    let (model, now) = (&state.model, state.wall);
    for (at, waiting) in model.waiters.iter().enumerate() {
        let is_excused = waiting.asked.keys.iter().any(|key| state.is_excused(key));
        assert!(is_excused || !model.has_turn(at, now), "L5: {waiting:?} could have all of them");
        let is_late = waiting.gives_up.is_some_and(|end| end <= model.elapsed);
        assert!(!is_late, "the patience of {waiting:?} has ended");
    }
    for undone in model.undone.iter().filter(|undone| undone.is_certain) {
        let live = model.live(undone.key, now).unwrap_or_default();
        let is_there = live.iter().any(|held| held.fence == undone.fence);
        assert!(!is_there, "{undone:?} was not taken back: {live:?}");
    }
    // Each was taken back, or had run out. A hold that has run out stays where others share the lock, and is in force
    // again if the clock is set back.
    state.model.undone.iter_mut().for_each(|undone| undone.is_certain = false);
}
