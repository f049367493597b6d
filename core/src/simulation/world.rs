//! A tiny server: keys that expire, pauses, a role, and a clock that is stepped. See also
//! [`strangers`](super::strangers).
//!
//! Every event of a key also happens to the model's key, and the engine is told of it in the way of the real server's
//! events.

use super::alike::{
    CONNECTIONS, FENCE_MARGIN_MILLIS, MICROS_PER_MILLI, PAUSE_MICROS, RECHECK_MICROS,
    REFUSAL_MICROS, Role,
};
use super::content::Content;
use super::history::History;
use super::keyspace::Keyspace;
use super::model::{Client, LockName, Model, Reply};
use super::requests::Requested;
use super::tally::Tally;
use crate::command::Error;
use crate::engine::{Engine, WaiterGrant};
use crate::lock::{Deadline, FenceClock, Moment, Monotonic, Name, Now, Room, Suspicion, WaiterId};
use std::cell::RefCell;
use std::collections::BTreeMap;

pub(super) const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];

pub(super) struct Server {
    pub(super) engine: Engine<Client>,
    pub(super) state: RefCell<State>,
}

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
    /// The connections that the holds of these clients are bound to.
    pub(super) connection_of: BTreeMap<Client, u64>,
    /// The client that is about to join a queue.
    pub(super) joining: Option<Client>,
    /// The client whose request is ready to wait, the lock and the owner.
    pub(super) may_wait: Option<(Client, LockName, &'static str)>,
    pub(super) requested: Option<Requested>,
    /// Whether the next client that is told of its grant has already left.
    pub(super) dies_at_once: bool,
    /// Whether a command that may change a lock is being executed.
    pub(super) in_command: bool,
    /// An evicted lock that the engine must write again now.
    returning: Option<(LockName, Content)>,
    pub(super) is_open: bool,
    pub(super) role: Role,
    pub(super) room: Room,
    pub(super) may_block: bool,
    /// A lock whose slot is being migrated to another node.
    pub(super) gone: Option<LockName>,
    /// How much is done before other clients get their turn.
    pub(super) at_once: usize,
    /// How far the clock of key expiry is behind: in a transaction it stands still.
    pub(super) lag_millis: u64,
    /// The locks that the engine has settled in this step.
    pub(super) settled: Vec<LockName>,
    /// Whether the module is told of what happens to keys.
    pub(super) is_heard: bool,
    pub(super) keys: Keyspace,
    /// Time that has passed, in microseconds. The wall clock may differ.
    elapsed: u64,
    pub(super) wall: u64,
    /// Until when, in elapsed time, a lock may be found unsettled.
    excused: BTreeMap<LockName, u64>,
    /// Until when, in elapsed time, any lock may be found unsettled, because writes were not allowed, or nothing was
    /// granted.
    paused_until: u64,
    /// How long a new primary grants nothing.
    quarantine_millis: u64,
    /// The latest wall time that the queues were told since the module last worked.
    told_at: u64,
}

impl State {
    pub(super) fn now(&self) -> Moment {
        Moment::from_micros(self.wall)
    }

    pub(super) fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(self.elapsed)
    }

    pub(super) fn clocks(&self) -> Now {
        Now { wall: self.now(), monotonic: self.monotonic() }
    }

    pub(super) fn wall_millis(&self) -> u64 {
        self.wall / MICROS_PER_MILLI
    }

    fn may_write(&self) -> bool {
        self.role == Role::Primary
    }

    /// The engine looks at a lock, or is about to defer it.
    pub(super) fn settles(&mut self, name: LockName) {
        self.settled.push(name);
        if self.model.anyone_waits_for(name) {
            self.told_at = self.told_at.max(self.wall);
        }
    }

    /// A client was told that it holds the lock.
    pub(super) fn told(&mut self, name: LockName, fence: u64) {
        let is_learned = fence <= self.now().plus_millis(FenceClock::HORIZON_MILLIS).micros();
        self.history.told(name, fence, is_learned);
    }

    /// The engine has opened the key to write it. An evicted lock is written again now, or never.
    pub(super) fn puts_back(&mut self, name: LockName, now: u64) {
        let Some(lock) = self.model.evicted(name) else { return };
        let was_there = self.model.keys.contains_key(&name);
        self.model.put_back(name, now);
        if !was_there && self.model.keys.contains_key(&name) {
            self.returning = Some((name, lock));
        } else {
            self.history.evictions_forgotten(|evicted| evicted == name);
        }
    }

    /// The engine writes an evicted lock again.
    pub(super) fn restores(&mut self, name: LockName, value: &[u8], deadline: Option<Deadline>) {
        let has_run_out = deadline.is_some_and(|deadline| deadline.has_passed(self.now()));
        assert!(!has_run_out, "{name:?} was put back, but its lease has run out");
        match self.returning.take() {
            Some((returning, lock @ Content::Lock(_))) if returning == name => {
                self.history.restored(name, &lock);
            }
            other => panic!("{name:?} was put back, but was {other:?}"),
        }
        self.keys.put(name, value, deadline.map(Deadline::millis));
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
            history: History::default(),
            answers: Vec::new(),
            tally: Tally::default(),
            parked: BTreeMap::new(),
            in_flight: Vec::new(),
            connections: std::array::from_fn(|slot| u64::try_from(slot).expect("a few")),
            next_connection: u64::try_from(CONNECTIONS).expect("a few"),
            connection: None,
            connection_of: BTreeMap::new(),
            joining: None,
            may_wait: None,
            requested: None,
            in_command: false,
            dies_at_once: false,
            returning: None,
            is_open: false,
            role: Role::Primary,
            may_block: true,
            room: Room::UNLIMITED,
            gone: None,
            at_once,
            lag_millis: 0,
            settled: Vec::new(),
            is_heard: true,
            keys: Keyspace::default(),
            elapsed: 0,
            wall,
            excused: BTreeMap::new(),
            paused_until: 0,
            quarantine_millis,
            told_at: wall,
        };
        Self { engine: Engine::new(), state: RefCell::new(state) }
    }

    pub(super) fn passes(&self, micros: u64) {
        let state = &mut *self.state.borrow_mut();
        state.elapsed += micros;
        state.model.elapsed = state.elapsed;
        state.wall += micros;
    }

    /// Somebody sets the wall clock.
    pub(super) fn steps(&self, micros: i64) {
        let state = &mut *self.state.borrow_mut();
        state.wall = state.wall.saturating_add_signed(micros);
        // The clock was set back, but not to before the queues were last told the time: they cannot know, and are late
        // by as much.
        if micros < 0 && state.wall >= state.told_at {
            let late = micros.unsigned_abs();
            state.paused_until += late;
            state.excused.values_mut().for_each(|until| *until += late);
        }
    }

    /// Does what is due, as the timer does.
    pub(super) fn work(&self) {
        let mut state = self.state.borrow_mut();
        state.told_at = state.wall;
        for other in state.model.give_up_unheard() {
            state.history.left_unheard(other.name, other.fence);
        }
        drop(state);
        self.engine.work(self);
        if self.is_at_rest() {
            self.state.borrow_mut().model.assert_deaf_are_gone();
        }
        let mut state = self.state.borrow_mut();
        if state.role == Role::Replica {
            state.history.may_stay_unheard(|_| true);
        }
        drop(state);
        assert!(self.state.borrow().returning.is_none(), "an evicted lock was not put back");
    }

    /// Whether [`Server::work`] has done everything that was due.
    pub(super) fn is_at_rest(&self) -> bool {
        let now = self.state.borrow().clocks();
        self.engine.next_due(now).is_none_or(|due| due > now.wall)
    }

    /// Opening a key makes the server remove it if it has expired.
    pub(super) fn remove_if_expired(&self, name: LockName) {
        let state = self.state.borrow();
        let at_millis = state.wall_millis() - state.lag_millis;
        let has_expired = state.may_write() && state.keys.has_expired(name, at_millis);
        drop(state);
        if has_expired {
            self.delete(name);
        }
    }

    pub(super) fn becomes(&self, role: Role) {
        let former = self.state.borrow().role;
        if (role == Role::Replica) != (former == Role::Replica) {
            let state = &mut *self.state.borrow_mut();
            self.engine.role_changed();
            state.model.forget_evictions(|_| true);
            state.model.bound.clear();
            state.model.unheard.clear();
            state.model.found_deaf.clear();
            state.history.evictions_forgotten(|_| true);
        }
        match role {
            Role::Replica => self.engine.send_all_away(self, Error::Demoted),
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
                state.model.quarantine_ends = state.elapsed + millis * MICROS_PER_MILLI;
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
        self.work();
        let is_kept = self.is_kept(name);
        self.forget_bindings_of(name);
        let state = &mut *self.state.borrow_mut();
        state.gone = None;
        state.history.may_stay_unheard(|unheard| unheard == name);
        if !is_kept {
            // The other node has heard of the deletion.
            state.model.forget_evictions(|evicted| evicted == name);
            state.history.evictions_forgotten(|evicted| evicted == name);
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
        state.room = Room { for_all, per_lock, ..Room::UNLIMITED };
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
            let until = state.elapsed + gap_millis * MICROS_PER_MILLI;
            let excused = state.excused.entry(name).or_insert(until);
            *excused = until.max(*excused);
        }
    }
}

impl State {
    pub(super) fn unheard(&mut self, name: LockName) {
        self.excused.insert(name, self.elapsed + RECHECK_MICROS);
    }

    /// Called after every step. Records until when a waiter may be found waiting for a free lock.
    pub(super) fn notes_pause(&mut self) {
        let micros = match self.role {
            Role::Primary => return,
            Role::Paused | Role::Replica => PAUSE_MICROS,
            Role::Refusing => REFUSAL_MICROS,
        };
        self.paused_until = self.paused_until.max(self.elapsed + micros);
    }

    /// Whether the module may still defer its work.
    pub(super) fn is_paused(&self) -> bool {
        self.elapsed <= self.paused_until
    }

    pub(super) fn is_excused(&self, name: LockName) -> bool {
        self.is_paused() || self.excused.get(&name).is_some_and(|&until| self.elapsed <= until)
    }
}

/// The name as the module knows it.
pub(super) fn lock(name: LockName) -> Name<'static> {
    Name::new(name.0, name.1.as_bytes())
}
