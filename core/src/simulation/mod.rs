//! Random schedules over a virtual clock: the engine on a tiny server, side by side with the [`model`].
//!
//! ```text
//!                     ┌──────────────► server ◄── keys, time, answers ──► engine
//!   seed ─► schedule ─┤  every step      │
//!                     │                  ▼
//!                     └──────────────► model ◄── equal? ──► keys, queues, answers
//!                                        history: L1 to L5         L5: nobody waits for a free lock
//! ```
//!
//! A request has one name or several; all of its locks are granted by one fence, or none is.
//!
//! A schedule depends only on its seed, so a failure can be replayed at will:
//!
//! ```text
//!     LEASEHOLD_SEED=0x2a cargo test simulation      this seed, step by step
//!     LEASEHOLD_SEEDS=100000 cargo test simulation   this many seeds
//! ```

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

mod answers;
mod binding;
mod content;
mod dropping;
mod history;
mod host;
mod keyspace;
mod model;
mod names;
mod requests;
mod scenes;
mod schedule;
mod seeds;
mod settling;
mod strangers;
mod tally;
mod tickets;
mod waiting;
mod world;

use crate::lock::{KeptWait, Monotonic};
use content::Content;
use model::{Asked, Client, Reply};
use names::lock;
use schedule::{EVERYTHING, Op, Schedule, Step};
use seeds::Trace;
use tally::Tally;
use world::Server;

const SEEDS: u64 = 2_000;

#[test]
fn the_queues_do_what_the_model_says_and_l1_to_l5_hold() {
    seeds::run_each(SEEDS, "simulation", run);
}

/// Takes every step of a schedule, and checks everything after each.
fn run(seed: u64, mut trace: Trace<'_>) {
    let mut schedule = Schedule::new(seed);
    let Schedule { start, at_once, quarantine_millis, window_millis, .. } = schedule;
    let server = Server::new(start, at_once, quarantine_millis, !seed.is_multiple_of(4));
    server.state.borrow_mut().model.window_millis = window_millis;
    let mut say = |line: std::fmt::Arguments<'_>| {
        if let Some(trace) = &mut trace {
            trace(line.to_string());
        }
    };
    for number in 0..schedule.steps {
        let step = schedule.next(&server);
        server.step_begins(step.drift);
        let micros = server.state.borrow().wall;
        say(format_args!("{number:>4} {micros} {step:?}"));
        // Every request comes on a connection of its own.
        let client = Client::try_from(number).expect("a small number");
        let Step { then_works, .. } = step;
        take(&server, client, step);
        for (client, reply) in &server.state.borrow().answers {
            say(format_args!("{:>21} {client} is told {reply:?}", ""));
        }
        assert_same(&server);
        server.assert_bindings(then_works);
        server.engine.with_queues(|queues| {
            if number % (1 + queues.waiters() / 8) == 0 {
                queues.check();
            }
        });
        if then_works && server.is_at_rest() {
            assert_nobody_waits_in_vain(&server);
            let state = &mut *server.state.borrow_mut();
            if !state.is_paused() {
                let now = state.now();
                state.history.assert_none_is_unheard(&state.keys, now);
            }
        }
        let mut state = server.state.borrow_mut();
        state.answers.clear();
        state.model.answers.clear();
    }
}

fn take(server: &Server, client: Client, step: Step) {
    let mut state = server.state.borrow_mut();
    state.is_heard = step.is_heard;
    state.dies_at_once = step.dies_at_once;
    state.in_use = step.in_use;
    drop(state);
    match step.op {
        // These steps only move or set a clock.
        Op::Pass(_) | Op::Step(_) | Op::AcquireWhileSet(..) => happen(server, client, step.op),
        op => saying_what_is_due(server, || happen(server, client, op)),
    }
    if step.then_works {
        let rings = server.state.borrow().rings(step.dies_at_once);
        server.work();
        for _ in (0..rings).take_while(|_| !server.is_at_rest()) {
            server.work();
        }
        let may_have_left_some = server.state.borrow().at_once < EVERYTHING;
        assert!(server.is_at_rest() || may_have_left_some, "never done");
    }
    if step.then_delivers {
        saying_what_is_due(server, || server.deliver());
    }
    server.state.borrow_mut().notes_pause();
}

/// A host sets its timer only if the engine says that what is due next has changed.
fn saying_what_is_due(server: &Server, happen: impl FnOnce()) {
    let next_due = || server.engine.next_due(server.state.borrow().clocks());
    let _changed_before = server.engine.take_due_changed();
    let before = next_due();
    happen();
    let is_sooner = next_due().is_some_and(|due| before.is_none_or(|before| due < before));
    assert!(!is_sooner || server.engine.take_due_changed(), "due sooner, and nobody is told");
}

fn happen(server: &Server, client: Client, op: Op) {
    match op {
        Op::Pass(micros) => server.passes(micros),
        Op::Step(micros) => server.steps(micros),
        Op::Acquire(request) => acquire(server, client, request),
        Op::AcquireWhileSet(request, micros) => {
            server.steps(micros);
            acquire(server, client, request);
            server.steps(-micros);
        }
        Op::TryInTransaction(request, lag_millis) => {
            server.state.borrow_mut().lag_millis = lag_millis;
            server.acquire(client, request);
            server.state.borrow_mut().lag_millis = 0;
        }
        Op::Release(claim) => server.release(client, claim),
        Op::Drop(drop) => server.drops(drop),
        Op::Extend(claim, ttl) => server.extend(client, claim, ttl),
        Op::Raise(claim, fence) => server.raise(client, claim, fence),
        Op::Check(claim) => server.check(client, claim),
        Op::Look(name) => server.look(name),
        Op::Disconnect(slot) => server.disconnects(slot),
        Op::Leave(client) => server.leaves(client),
        Op::DieUnheard(at) => server.dies_unheard(at),
        Op::Put(name, content) => server.put(name, content),
        Op::Delete(name) => server.delete(name),
        Op::ExpireAt(name, deadline) => server.expire_at(name, deadline),
        Op::Rename(from, to) => server.duplicate(from, to, false),
        Op::Copy(from, to) => server.duplicate(from, to, true),
        Op::Flush(db) => server.flush(db),
        Op::Swap(one, other) => server.swap(one, other),
        Op::Evict(name) => server.evict(name),
        Op::RemoveExpired => server.remove_expired(),
        Op::Touch(name, suspicion) => server.touched(name, suspicion),
        Op::Become(role) => server.becomes(role),
        Op::SendAway(name) => server.slot_goes(name),
        Op::Room(for_all, per_lock, tickets) => server.makes_room(for_all, per_lock, tickets),
        Op::Hear(channel, hears) => server.hears_on(channel, hears),
        Op::RefuseWrite(at) => server.state.borrow_mut().refuses = Some(at),
    }
}

fn acquire(server: &Server, client: Client, request: Asked) {
    server.acquire(client, request);
    let is_unseen = |&name| server.engine.with_queues(|queues| queues.is_marked(lock(name)));
    let waits = server.state.borrow().parked.contains_key(&client);
    // A lock stays marked while it can admit more waiters than one turn may serve.
    let may_have_left_some = server.state.borrow().at_once < EVERYTHING;
    // Of several locks, one may expire while the others are looked at.
    let joined_blindly = waits && request.names.is_one() && request.names.iter().any(is_unseen);
    assert!(!joined_blindly || may_have_left_some, "joined blindly");
}

fn assert_same(server: &Server) {
    let state = &*server.state.borrow();
    let world::State { model, keys, .. } = state;
    assert_eq!(
        by_client(&state.answers),
        by_client(&model.answers),
        "the answers, and the model's"
    );
    assert_eq!(
        keys.kept.len(),
        model.keys.len(),
        "the keys, and the model's: {keys:?} {:?}",
        model.keys
    );
    for (&name, content) in &model.keys {
        let stored = Content::of(state.keys.stored(name));
        assert_eq!(stored.as_ref(), Some(content), "{name:?}, and the model's");
    }
    let evicted = server.engine.peek(|_, _, evicted| evicted.len());
    assert_eq!(evicted, Some(model.evicted.len()), "the evicted locks, and the model's");
    assert_eq!(server.engine.with_observer(|observer| Tally::of(observer)), state.tally);
    server.engine.with_queues(|queues| {
        assert_eq!(queues.waiters(), model.waiters.len(), "those who wait, and the model's");
        for name in state.waited_for() {
            let mut queue = queues.queue(lock(name));
            for waiting in model.waiters_for(name) {
                let (waiter, of) = queue.next().expect("as many wait as in the model");
                let asked = &waiting.asked;
                let (client, lease) = match &waiter.wait {
                    KeptWait::Blocked(client) => ((*client).into(), waiter.ttl),
                    KeptWait::Ticket(ticket) => (ticket.client, waiter.ttl.min(ticket.lasts)),
                };
                assert_eq!(client, waiting.client.into(), "{name:?}: who waits, and the model's");
                assert_eq!(waiter.wait.kind(), waiting.kind);
                assert_eq!(waiter.owner.as_owner().as_bytes(), asked.owner.as_bytes());
                assert_eq!(of, asked.names.len());
                assert_eq!(lease.millis(), asked.ttl);
                assert_eq!(waiter.share.number(), asked.share);
                assert_eq!(waiter.since, Monotonic::from_micros(waiting.since));
                assert_eq!(waiter.gives_up, waiting.gives_up.map(Monotonic::from_micros));
            }
            assert!(queue.next().is_none(), "{name:?}: more wait than in the model");
        }
    });
}

/// A release is answered after the clients that get the lock.
fn by_client(answers: &[(Client, Reply)]) -> Vec<(Client, Reply)> {
    let mut answers = answers.to_vec();
    answers.sort_by_key(|(client, _)| *client);
    answers
}

/// L5. Nobody waits for locks that it can have, or that are its own already; or when its patience has ended.
fn assert_nobody_waits_in_vain(server: &Server) {
    let state = server.state.borrow();
    for name in state.waited_for() {
        let Some(next) = state.turn_since(name, state.wall) else { continue };
        let is_excused = next.asked.names.iter().any(|name| state.is_excused(*name));
        assert!(is_excused, "L5: {next:?} can have what it waits for, and is not given it");
    }
    let is_late = |end: u64| end <= state.model.elapsed;
    let late = state.model.waiters.iter().find(|waiting| waiting.gives_up.is_some_and(is_late));
    assert!(late.is_none(), "the patience of {late:?} has ended");
}
