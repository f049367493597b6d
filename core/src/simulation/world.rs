//! A tiny server: keys that expire, pauses, a role, and a clock that is stepped. See also
//! [`strangers`](super::strangers).
//!
//! Every event of a key also happens to the model's key, and the engine is told of it in the way of the real server's
//! events.

use super::dropping::Drop;
use super::history::History;
use super::keyspace::Keyspace;
use super::model::{Client, Model, Reply, Waiting};
use super::names::{LockName, lock};
use super::requests::Requested;
use super::schedule::EVERYTHING;
use super::tally::Tally;
use crate::command::Error;
use crate::engine::{Authority, Memory, WaiterGrant};
use crate::lock::{Deadline, FenceClock, Moment, Monotonic, Now, Suspicion, WaiterId};
use std::cell::RefCell;
use std::collections::BTreeMap;

pub(super) const MICROS_PER_MILLI: u64 = 1_000;

/// How much later than the event a lock may be settled if nobody told the module of the event.
const RECHECK_MICROS: u64 = 1_000 * MICROS_PER_MILLI;
const PAUSE_MICROS: u64 = 10 * MICROS_PER_MILLI;
const REFUSAL_MICROS: u64 = 100 * MICROS_PER_MILLI;

/// How far the clock of an old primary may be ahead of the server that replaces it.
const FENCE_MARGIN_MILLIS: u64 = 5_000;

/// How many connections with bound holds are open at a time.
pub(super) const CONNECTIONS: usize = 3;

/// How often the timer may ring until all is done for those who wait for several locks.
const MOST_RINGS: usize = 500;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    #[default]
    Primary,
    /// A primary under `CLIENT PAUSE`.
    Paused,
    /// A primary that refuses writes, because too few replicas are in sync.
    Refusing,
    Replica,
}

impl Role {
    pub(super) fn authority(self) -> Authority {
        match self {
            Self::Primary | Self::Refusing => Authority::Yes,
            Self::Paused => Authority::NotNow,
            Self::Replica => Authority::Replica,
        }
    }
}

pub(super) struct Server {
    pub(super) engine: Memory<Client>,
    pub(super) state: RefCell<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Whether the server announces an eviction while the value still exists.
    pub(super) tells_what_it_evicts: bool,
    pub(super) model: Model,
    pub(super) history: History,
    pub(super) answers: Vec<(Client, Reply)>,
    pub(super) tally: Tally,
    /// The engine's waiter of each waiting client.
    pub(super) parked: BTreeMap<Client, WaiterId>,
    /// Grants on their way to clients that have not heard of them.
    pub(super) in_flight: Vec<(Client, WaiterGrant)>,
    pub(super) connections: [u64; CONNECTIONS],
    pub(super) next_connection: u64,
    /// The connection of the current command, if it matters.
    pub(super) connection: Option<u64>,
    /// The client whose request is ready to wait.
    pub(super) asking: Option<Client>,
    pub(super) may_block: bool,
    /// The connections that the holds of these clients are bound to.
    pub(super) connection_of: BTreeMap<Client, u64>,
    /// The request that has been decided and not written yet.
    pub(super) requested: Option<Requested>,
    /// The locks that it, or a grant to a waiter, has not written yet.
    pub(super) half: Vec<LockName>,
    /// The locks that have been written for a grant, and its fence.
    pub(super) written: Vec<(LockName, u64)>,
    /// Which of the next writes of a grant is refused.
    pub(super) refuses: Option<usize>,
    pub(super) refused: Option<u64>,
    /// The model before the request was decided, if a write may be refused.
    pub(super) undecided: Option<Box<Model>>,
    /// Whose locks are dropped now, and how many holds and places were.
    pub(super) dropping: Option<Drop>,
    pub(super) dropped: usize,
    pub(super) settling: Option<(LockName, u64)>,
    pub(super) named: usize,
    /// Whether the next client that is told of its grant has already left.
    pub(super) dies_at_once: bool,
    /// Whether a command that may change a lock is being executed.
    pub(super) in_command: bool,
    /// An evicted lock that the engine must write again now.
    pub(super) returning: Option<LockName>,
    pub(super) is_open: bool,
    pub(super) role: Role,
    pub(super) gone: Option<LockName>,
    /// The key that the server uses itself during this step, so that nobody can change it.
    pub(super) in_use: Option<LockName>,
    /// How much is done before other clients get their turn.
    pub(super) at_once: usize,
    /// How far the clock of key expiry is behind: in a transaction it stands still.
    pub(super) lag_millis: u64,
    /// The locks of this command that must still be settled, because something has happened to them.
    pub(super) to_settle: Vec<LockName>,
    /// Whether the module is told of what happens to keys.
    pub(super) is_heard: bool,
    pub(super) keys: Keyspace,
    pub(super) wall: u64,
    /// How much time passes for the engine whenever it asks for the time, in microseconds. The server reads its own
    /// clock once for each command, and expires keys by that.
    pub(super) drift: u64,
    /// When the engine has asked for the time in this step.
    pub(super) asked_at: Vec<u64>,
    /// Until when, in elapsed time, a lock may be found unsettled.
    excused: BTreeMap<LockName, u64>,
    /// Until when, in elapsed time, any lock may be found unsettled, because writes were not allowed, or nothing was
    /// granted.
    paused_until: u64,
    quarantine_millis: u64,
    /// The latest wall time that the queues were told since the module last worked.
    told_at: u64,
}

impl State {
    /// The last moment that anybody was told.
    pub(super) fn now(&self) -> Moment {
        Moment::from_micros(self.asked_at.last().copied().unwrap_or(self.wall))
    }

    pub(super) fn tells_the_time(&mut self) -> Moment {
        let passed = self.asked_at.last().map_or(0, |last| last + self.drift - self.wall);
        self.asked_at.push(self.wall + passed);
        Moment::from_micros(self.wall + passed)
    }

    pub(super) fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(self.model.elapsed)
    }

    pub(super) fn clocks(&self) -> Now {
        Now { wall: Moment::from_micros(self.wall), monotonic: self.monotonic() }
    }

    pub(super) fn wall_millis(&self) -> u64 {
        self.wall / MICROS_PER_MILLI
    }

    /// The request that this write of the engine carries out.
    pub(super) fn takes_requested(&mut self, name: LockName) -> Option<Requested> {
        let requested = self.requested?;
        let at = self.half.iter().position(|other| *other == name)?;
        self.half.remove(at);
        self.requested = self.requested.filter(|_| !self.half.is_empty());
        Some(requested)
    }

    pub(super) fn waited_for(&self) -> Vec<LockName> {
        let mut all = Vec::new();
        for name in self.model.waiters.iter().flat_map(|waiting| waiting.asked.names.iter()) {
            if !all.contains(name) {
                all.push(*name);
            }
        }
        all
    }

    /// Whose turn it was then, unless it is nobody's any more: holds end while the engine works, before it looks or after.
    pub(super) fn turn_since(&self, name: LockName, then: u64) -> Option<Waiting> {
        let is_over = || self.model.turn(name, self.now().micros()).is_none();
        self.model.turn(name, then).filter(|_| !is_over())
    }

    /// The engine has turned to something else: everybody whose turn it was has been served.
    pub(super) fn assert_settled(&mut self) {
        let Some((name, since)) = self.settling.take() else { return };
        let left = self.turn_since(name, since).filter(|next| next.asked.names.is_one());
        assert!(
            left.is_none() || self.at_once < EVERYTHING,
            "L5: {name:?}: {left:?} was not served"
        );
        self.model.settled(name, since);
    }

    /// The engine looks at a lock, or is about to defer it.
    pub(super) fn settles(&mut self, name: LockName) {
        self.to_settle.retain(|other| *other != name);
        if self.model.anyone_waits_for(name) {
            self.told_at = self.told_at.max(self.wall);
        }
    }

    pub(super) fn is_in_use(&self, name: LockName) -> bool {
        self.in_use == Some(name) && self.keys.kept.contains_key(&name)
    }

    /// The engine cannot change this key, and may defer its work.
    pub(super) fn refuses_to_open(&mut self, name: LockName) {
        self.settles(name);
        self.settling = None;
        self.paused_until = self.paused_until.max(self.model.elapsed + PAUSE_MICROS);
    }

    /// A client was told that it holds the lock.
    pub(super) fn told(&mut self, name: LockName, fence: u64) {
        let is_learned = fence <= self.now().plus_millis(FenceClock::HORIZON_MILLIS).micros();
        self.history.told(name, fence, is_learned);
    }

    /// The engine writes an evicted lock again, if its key holds nothing and the lease lasts.
    pub(super) fn restores(&mut self, name: LockName, value: &[u8], deadline: Option<Deadline>) {
        let has_run_out = deadline.is_some_and(|deadline| deadline.has_passed(self.now()));
        assert!(!has_run_out, "{name:?} was put back, but its lease has run out");
        assert_eq!(self.returning.take(), Some(name), "it was not evicted");
        self.model.put_back(name, self.now().micros());
        self.keys.put(name, value, deadline.map(Deadline::millis));
    }

    /// The engine has opened the key of an evicted lock, and does something else with it.
    pub(super) fn restores_nothing(&mut self) {
        let Some(name) = self.returning.take() else { return };
        let was_there = self.model.keys.contains_key(&name);
        self.model.put_back(name, self.now().micros());
        let must_return = !was_there && self.model.keys.contains_key(&name);
        assert!(!must_return, "{name:?} was evicted, and is not put back");
    }
}

impl Server {
    pub(super) fn new(
        wall: u64,
        at_once: usize,
        quarantine_millis: u64,
        tells_what_it_evicts: bool,
    ) -> Self {
        let state = State {
            tells_what_it_evicts,
            model: Model::new(),
            connections: std::array::from_fn(|slot| u64::try_from(slot).expect("a few")),
            next_connection: u64::try_from(CONNECTIONS).expect("a few"),
            at_once,
            is_heard: true,
            may_block: true,
            wall,
            quarantine_millis,
            told_at: wall,
            ..State::default()
        };
        Self { engine: Memory::new(), state: RefCell::new(state) }
    }

    pub(super) fn passes(&self, micros: u64) {
        let state = &mut *self.state.borrow_mut();
        state.drifts();
        state.model.elapsed += micros;
        state.wall += micros;
    }

    pub(super) fn steps(&self, micros: i64) {
        let state = &mut *self.state.borrow_mut();
        state.drifts();
        let now = state.now();
        state.history.forget_run_out(&state.keys, now);
        state.wall = state.wall.saturating_add_signed(micros);
        // The clock was set back, but not to before the queues were last told the time: they cannot know, and are late
        // by as much.
        if micros < 0 && state.wall >= state.told_at {
            state.is_late(micros.unsigned_abs());
        }
    }

    pub(super) fn step_begins(&self, drift: u64) {
        let state = &mut *self.state.borrow_mut();
        state.drifts();
        state.drift = drift;
    }

    pub(super) fn work(&self) {
        let mut state = self.state.borrow_mut();
        state.told_at = state.wall;
        for other in state.model.give_up_unheard() {
            for &name in other.names.iter() {
                state.history.left_unheard(name, other.fence);
            }
        }
        // The engine may still be giving up what is on a channel, and then gives up later grants on it, too.
        let State { model, history, .. } = &mut *state;
        let later = model.unheard.iter().filter(|unheard| model.is_found_deaf(unheard));
        later.for_each(|unheard| history.may_be_given_back(unheard.fence));
        let (unheard, at_once) = (self.engine.unheard(), state.at_once);
        drop(state);
        self.engine.on(self).work();
        let given_up = unheard.saturating_sub(self.engine.unheard());
        // Each step gives up one that is due, and another with its channel.
        let most = at_once.saturating_mul(2);
        assert!(given_up <= most, "{given_up} grants that nobody heard of are given up at once");
        self.state.borrow_mut().assert_settled();
        if self.is_at_rest() {
            self.state.borrow_mut().model.assert_deaf_are_gone();
        }
        let mut state = self.state.borrow_mut();
        if state.role == Role::Replica {
            state.history.may_stay_unheard(|_| true);
        }
    }

    /// Whether [`Server::work`] has done everything that was due.
    pub(super) fn is_at_rest(&self) -> bool {
        let now = self.state.borrow().clocks();
        self.engine.next_due(now).is_none_or(|due| due > now.wall)
    }

    /// Opening a key makes the server remove it if it has expired.
    pub(super) fn remove_if_expired(&self, name: LockName) {
        let is_to_remove = self.state.borrow().is_to_remove(name);
        if is_to_remove {
            self.delete(name);
        }
    }

    pub(super) fn becomes(&self, role: Role) {
        let former = self.state.borrow().role;
        if (role == Role::Replica) != (former == Role::Replica) {
            let state = &mut *self.state.borrow_mut();
            self.engine.role_changed();
            state.model.evicted.clear();
            state.model.bound.clear();
            state.model.unheard.clear();
            state.model.found_deaf.clear();
        }
        match role {
            Role::Replica => {
                self.engine.on(self).send_all_away(Error::Demoted);
                assert!(self.state.borrow().model.waiters.is_empty(), "not all are sent away");
            }
            Role::Primary if former == Role::Replica => {
                let state = &mut *self.state.borrow_mut();
                let floor = state.now().plus_millis(FENCE_MARGIN_MILLIS);
                let monotonic = state.monotonic();
                let millis = state.quarantine_millis;
                let begin = |fences: &mut FenceClock| {
                    fences.raise(floor);
                    fences.quarantine(monotonic, millis);
                };
                self.engine.with_fences(|| monotonic, begin);
                state.model.quarantine_ends = state.model.elapsed + millis * MICROS_PER_MILLI;
                state.paused_until = state.paused_until.max(state.model.quarantine_ends);
                state.model.raise(floor.micros());
            }
            Role::Primary | Role::Paused | Role::Refusing => {}
        }
        self.state.borrow_mut().role = role;
    }

    /// A slot is being migrated to another node, and the cluster says so.
    pub(super) fn slot_goes(&self, name: LockName) {
        self.state.borrow_mut().gone = Some(name);
        self.engine.slots_moved();
        let sent_away = || {
            let state = self.state.borrow();
            state.answers.iter().filter(|(_, reply)| *reply == Reply::SentAway).count()
        };
        let before = sent_away();
        self.work();
        let now_sent = sent_away().saturating_sub(before);
        let is_too_much = now_sent > self.state.borrow().at_once;
        assert!(!is_too_much, "{now_sent} clients are sent away at once");
        let is_kept = self.is_kept(name);
        self.forget_bindings_of(name);
        let state = &mut *self.state.borrow_mut();
        let is_left = state.at_once == EVERYTHING && state.model.anyone_waits_for(name);
        assert!(!is_left || state.role != Role::Primary, "not all are sent away");
        state.gone = None;
        state.history.may_stay_unheard(|unheard| unheard == name);
        if !is_kept {
            // The other node has heard of the deletion.
            state.model.evicted.remove(&name);
        }
    }

    pub(super) fn hears_on(&self, channel: &'static str, hears: bool) {
        let deaf = &mut self.state.borrow_mut().model.deaf;
        if hears {
            deaf.remove(channel);
        } else {
            deaf.insert(channel);
        }
    }

    pub(super) fn makes_room(&self, for_all: usize, per_lock: usize, tickets: usize) {
        let state = &mut *self.state.borrow_mut();
        state.model.most_waiters = for_all;
        state.model.most_waiters_per_lock = per_lock;
        state.model.most_tickets = tickets;
    }

    /// The module is told that something happened to the key, unless the event got lost.
    pub(super) fn touched(&self, name: LockName, suspicion: Suspicion) {
        let mut state = self.state.borrow_mut();
        if !state.is_heard {
            return state.unheard(name);
        }
        // A command names a key, and the database is not known.
        let (place, clocks) = (lock(name), state.clocks());
        self.engine.suspect([place.key].into_iter(), || Some(suspicion), || clocks.wall);
        let is_marked = self.engine.with_queues(|queues| queues.is_marked(place));
        if state.model.anyone_waits_for(name) && !is_marked {
            // The lock was just looked at, and is not looked at again for a moment.
            let next = self.engine.with_queues(|queues| queues.next_due(clocks));
            let gap_millis = suspicion.gap_millis();
            let latest = clocks.wall.plus_millis(gap_millis);
            assert!(next.is_some_and(|next| next <= latest), "touched, and not looked at");
            let until = state.model.elapsed + gap_millis * MICROS_PER_MILLI;
            let excused = state.excused.entry(name).or_insert(until);
            *excused = until.max(*excused);
        }
    }
}

impl State {
    /// The time that has passed for the engine has passed for everybody.
    fn drifts(&mut self) {
        let passed = self.now().micros() - self.wall;
        self.asked_at.clear();
        self.model.elapsed += passed;
        self.wall += passed;
        self.is_late(passed);
    }

    /// How often the timer must ring, after the first time, until all is done. A grant may prove undeliverable, or
    /// belong to a ticket whose connection has ended. A look may find that a key has expired: then the server removes the
    /// key, and locks of that name in other databases are suspected, too.
    pub(super) fn rings(&self, dies_at_once: bool) -> usize {
        let for_several = |waiting: &Waiting| !waiting.asked.names.is_one();
        if self.model.waiters.iter().any(for_several) {
            return MOST_RINGS;
        }
        let waited_for = self.waited_for();
        let has_namesake =
            |name: &LockName| waited_for.iter().any(|other| other.1 == name.1 && other.0 != name.0);
        let suspect = |name: &&LockName| self.is_to_remove(**name) && has_namesake(name);
        let removed = self.keys.kept.keys().filter(suspect).count();
        usize::from(dies_at_once) + self.model.gone_tickets() + removed
    }

    /// Whether the server removes this key when it is opened.
    fn is_to_remove(&self, name: LockName) -> bool {
        let at_millis = self.wall_millis() - self.lag_millis;
        self.role == Role::Primary && self.keys.has_expired(name, at_millis)
    }

    fn is_late(&mut self, micros: u64) {
        self.paused_until += micros;
        self.excused.values_mut().for_each(|until| *until += micros);
    }

    pub(super) fn unheard(&mut self, name: LockName) {
        self.excused.insert(name, self.model.elapsed + RECHECK_MICROS);
    }

    /// Called after every step. Records until when a waiter may be found waiting for a free lock.
    pub(super) fn notes_pause(&mut self) {
        let micros = match self.role {
            Role::Primary => return,
            Role::Paused | Role::Replica => PAUSE_MICROS,
            Role::Refusing => REFUSAL_MICROS,
        };
        self.paused_until = self.paused_until.max(self.model.elapsed + micros);
    }

    /// Whether the module may still defer its work.
    pub(super) fn is_paused(&self) -> bool {
        self.model.elapsed <= self.paused_until
    }

    pub(super) fn is_excused(&self, name: LockName) -> bool {
        self.is_paused()
            || self.excused.get(&name).is_some_and(|&until| self.model.elapsed <= until)
    }
}
