//! Random schedules over a virtual clock: the engine on a tiny server, side by side with the [`model`].
//!
//! ```text
//!                     ┌──────────────► server ◄── keys, time, answers ──► engine
//!   seed ─► schedule ─┤  every step      │
//!                     │                  ▼
//!                     └──────────────► model ◄── equal? ──► keys, queues, answers
//!                                        history: L1 to L4         L5: nobody waits for a free lock
//! ```
//!
//! A schedule depends only on its seed, so a failure can be replayed at will:
//!
//! ```text
//!     LEASEHOLD_SEED=0x2a cargo test simulation      this seed, step by step
//!     LEASEHOLD_SEEDS=100000 cargo test simulation   this many seeds
//! ```

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

mod alike;
mod answers;
mod binding;
mod chance;
mod content;
mod history;
mod host;
mod keyspace;
mod model;
mod requests;
mod scenes;
mod schedule;
mod seeds;
mod settling;
mod several;
mod strangers;
mod tally;
mod tickets;
mod waiting;
mod world;

use crate::lock::{Monotonic, Stored, Told};
use alike::Role;
use content::{Content, Held};
use model::{Client, LockName, Model, Reply};
use requests::Request;
use schedule::{EVERYTHING, Op, Schedule, Step};
use seeds::Trace;
use tally::Tally;
use world::{Server, lock};

const SEEDS: u64 = 2_000;
const STEPS: usize = 2_000;

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
    for number in 0..STEPS {
        let step = schedule.next(&server);
        let micros = server.state.borrow().now().micros();
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
            let state = server.state.borrow();
            if !state.is_paused() {
                state.history.assert_none_is_unheard(state.now());
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
    drop(state);
    match step.op {
        // These steps only move or set a clock.
        Op::Pass(_) | Op::Step(_) | Op::AcquireWhileSet(..) => happen(server, client, step.op),
        op => saying_what_is_due(server, || happen(server, client, op)),
    }
    if step.then_works {
        // A grant may prove undeliverable, or belong to a ticket whose connection has ended: the timer rings once more
        // for each.
        let rings = usize::from(step.dies_at_once) + server.state.borrow().model.gone_tickets();
        server.work();
        for _ in 0..rings {
            if !server.is_at_rest() {
                server.work();
            }
        }
        let may_have_left_some = server.state.borrow().at_once < EVERYTHING;
        assert!(server.is_at_rest() || may_have_left_some, "never done");
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
        Op::Acquire(request) => acquire(server, client, request),
        Op::AcquireWhileSet(request, micros) => {
            server.steps(micros);
            acquire(server, client, request);
            server.steps(-micros);
        }
        Op::TryInTransaction(request, lag_millis) => {
            settling(server, request.name, request.owner, || {
                server.state.borrow_mut().lag_millis = lag_millis;
                server.acquire(client, request);
                server.state.borrow_mut().lag_millis = 0;
            })
        }
        Op::Release(claim) => {
            settling(server, claim.name, claim.owner, || server.release(client, claim))
        }
        Op::Extend(claim, ttl) => {
            settling(server, claim.name, claim.owner, || server.extend(client, claim, ttl))
        }
        Op::Raise(claim, fence) => {
            settling(server, claim.name, claim.owner, || server.raise(client, claim, fence))
        }
        Op::Check(claim) => server.check(client, claim),
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
    }
}

fn acquire(server: &Server, client: Client, request: Request) {
    settling(server, request.name, request.owner, || server.acquire(client, request));
    let is_unseen = server.engine.with_queues(|queues| queues.is_marked(lock(request.name)));
    let waits = server.state.borrow().parked.contains_key(&client);
    // A lock stays marked while it can admit more waiters than one turn may serve.
    let may_have_left_some = server.state.borrow().at_once < EVERYTHING;
    assert!(!(waits && is_unseen) || may_have_left_some, "joined blindly");
}

/// A command that may change a lock first applies what has happened to the lock.
fn settling(server: &Server, name: LockName, holder: &str, execute: impl FnOnce()) {
    let was_dirty = server.engine.with_queues(|queues| queues.is_marked(lock(name)));
    let mut state = server.state.borrow_mut();
    state.settled.clear();
    state.in_command = true;
    let now = state.now().micros();
    if state.role == Role::Primary {
        state.model.part_pending(name, holder, now);
    }
    drop(state);
    execute();
    server.state.borrow_mut().in_command = false;
    let was_settled = server.state.borrow().settled.contains(&name);
    assert!(!was_dirty || was_settled, "{name:?} was not settled");
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
        keys.len(),
        model.keys.len(),
        "the keys, and the model's: {keys:?} {:?}",
        model.keys
    );
    for (&name, content) in &model.keys {
        assert!(holds(keys.stored(name), content), "{name:?}: {keys:?}, the model's: {content:?}");
    }
    let evicted = server.engine.peek(|_, _, evicted| evicted.len());
    assert_eq!(evicted, Some(model.evictions()), "the evicted locks, and the model's");
    assert_eq!(server.engine.with_observer(|observer| Tally::of(observer)), state.tally);
    server.engine.with_queues(|queues| {
        assert_eq!(queues.waiters(), model.waiters.len(), "those who wait, and the model's");
        for name in waited_for(model) {
            let mut queue = queues.queue(lock(name));
            for waiting in model.waiters_for(name) {
                let (waiter, _) = queue.next().expect("as many wait as in the model");
                let (client, lease) = match &waiter.told {
                    Told::Blocked(client) => ((*client).into(), waiter.ttl),
                    Told::Ticket(ticket) => (ticket.client, waiter.ttl.min(ticket.lasts)),
                };
                assert_eq!(client, waiting.client.into(), "{name:?}: who waits, and the model's");
                assert_eq!(waiter.told.kind(), waiting.kind);
                assert_eq!(waiter.owner.as_owner().as_bytes(), waiting.owner.as_bytes());
                assert_eq!(lease.millis(), waiting.ttl);
                assert_eq!(waiter.share.number(), waiting.share);
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

impl Server {
    /// Whether the model, which settles a lock when the engine looks at it, is ahead of the server.
    fn differs_from_the_model(&self, name: LockName) -> bool {
        let state = self.state.borrow();
        let is_same = match state.model.keys.get(&name) {
            Some(content) => holds(state.keys.stored(name), content),
            None => matches!(state.keys.stored(name), Stored::Nothing),
        };
        let waiters = self.engine.with_queues(|queues| queues.waiters_for(lock(name)));
        !is_same || waiters != state.model.waiters_for(name).count()
    }
}

fn holds(stored: Stored<'_>, content: &Content) -> bool {
    match (stored, content) {
        (Stored::OtherType, Content::OtherType) => true,
        (Stored::Text { value, deadline }, Content::Lock(lock)) => {
            let is_same = match *lock.holds {
                [Held { holder, fence, own_end: None, .. }] => says(value, holder, fence),
                _ => lists(value, &lock.holds),
            };
            is_same && deadline.map(|deadline| deadline.millis()) == lock.expiry
        }
        _ => false,
    }
}

/// A line for each hold. Ended holds have no deadline.
fn lists(value: &[u8], holds: &[Held]) -> bool {
    let text = str::from_utf8(value).expect("owners of letters and digits");
    let lines = text.split_terminator('\n').filter(|line| !line.contains(" 00000000000000 "));
    let line = |held: &Held| {
        let Held { holder, fence, own_end, share } = *held;
        let end = own_end.expect("a hold among others has an end");
        format!("{fence:016} {end:014} {share:05} {:03}:{holder}", holder.len())
    };
    lines.eq(holds.iter().map(line))
}

/// `fence:holder`, or a foreign lock's holder alone.
fn says(value: &[u8], holder: &str, fence: u64) -> bool {
    match value.strip_suffix(holder.as_bytes()) {
        Some(b"") => fence == 0,
        Some([digits @ .., b':']) => {
            str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()) == Some(fence)
        }
        _ => false,
    }
}

/// L5. Nobody waits for a lock that is its own already either.
fn assert_nobody_waits_in_vain(server: &Server) {
    let state = server.state.borrow();
    let now = state.now().micros();
    for name in waited_for(&state.model) {
        let can_be_given = state.model.is_free(name, now) || state.model.turn(name, now).is_some();
        assert!(
            !can_be_given || state.is_excused(name),
            "L5: {name:?} can be had by one who waits, and is not given"
        );
    }
}

/// The locks that have waiters.
fn waited_for(model: &Model) -> Vec<LockName> {
    let mut names = Vec::new();
    for waiting in &model.waiters {
        if !names.contains(&waiting.name) {
            names.push(waiting.name);
        }
    }
    names
}
