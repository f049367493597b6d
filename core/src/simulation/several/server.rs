//! A tiny server: keys that expire, a role, a clock that is set, connections that end, and others who write keys.

use super::host::live_in;
use super::model::{Asked, Bound, Client, Content, Held, Key, Model};
use super::requests::Waits;
use crate::command::Error;
use crate::engine::{Engine, WaiterGrant};
use crate::lock::{
    Deadline, FenceClock, Moment, Monotonic, Name, Now, Room, Stored, Suspicion, WaiterId,
};
use crate::simulation::alike::{
    CONNECTIONS, FENCE_MARGIN_MILLIS, MICROS_PER_MILLI, PAUSE_MICROS, RECHECK_MICROS,
    REFUSAL_MICROS, Role,
};
use crate::simulation::keyspace::{Kept, Keyspace};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

pub(super) const KEYS: [Key; 6] = ["k0", "k1", "k2", "k3", "k4", "k5"];

pub(super) struct Server {
    pub(super) engine: Engine<Client>,
    pub(super) state: RefCell<State>,
    /// How often the engine has named a lock other than the lock that it settles.
    pub(super) named: Cell<usize>,
}

pub(super) struct State {
    pub(super) keys: Keyspace,
    pub(super) model: Model,
    pub(super) role: Role,
    pub(super) at_once: usize,
    pub(super) quarantine_millis: u64,
    pub(super) room: Room,
    pub(super) room_for_tickets: Room,
    /// Whether there is room for the request that is ready to wait, once it has begun to wait.
    pub(super) has_room: Option<bool>,
    /// The client whose request is ready to wait, and what it asks for.
    pub(super) may_wait: Option<(Client, Asked, Waits)>,
    pub(super) connections: [u64; CONNECTIONS],
    next_connection: u64,
    /// The connection of the current command.
    pub(super) connection: Option<u64>,
    /// The engine's waiter of each waiting client, and its connection if that may end.
    pub(super) parked: BTreeMap<Client, (WaiterId, Option<u64>)>,
    /// Grants on their way to clients that have not heard of them.
    pub(super) in_flight: Vec<(Client, WaiterGrant)>,
    pub(super) dies_at_once: bool,
    /// Whether a client's command is being executed.
    pub(super) in_command: bool,
    pub(super) is_open: bool,
    /// How many locks the last release should have released.
    pub(super) released: usize,
    /// Which of the next writes of a grant is refused.
    pub(super) refuses: Option<usize>,
    pub(super) tells_what_it_evicts: bool,
    pub(super) elapsed: u64,
    pub(super) wall: u64,
    /// How much time passes for the engine alone whenever it has asked for the time, in microseconds: the server reads its
    /// own clock once for each command.
    pub(super) passes_when_asked: u64,
    pub(super) passed_for_the_engine: u64,
    /// Until when, in elapsed time, a lock may be found unsettled.
    excused: BTreeMap<Key, u64>,
    paused_until: u64,
    /// The latest wall time that the queues were told.
    told_at: u64,
}

impl State {
    pub(super) fn now(&self) -> Moment {
        Moment::from_micros(self.wall)
    }

    pub(super) fn clocks(&self) -> Now {
        Now { wall: self.now(), monotonic: Monotonic::from_micros(self.elapsed) }
    }

    pub(super) fn is_primary(&self) -> bool {
        self.role == Role::Primary
    }

    /// Tells the queues the time.
    pub(super) fn tells_the_time(&mut self) {
        self.told_at = self.told_at.max(self.wall);
    }

    pub(super) fn is_paused(&self) -> bool {
        !self.is_primary() || self.elapsed <= self.paused_until
    }

    pub(super) fn is_excused(&self, key: Key) -> bool {
        self.is_paused() || self.excused.get(key).is_some_and(|&until| self.elapsed <= until)
    }

    fn excuse(&mut self, key: Key, micros: u64) {
        let until = self.elapsed + micros;
        let excused = self.excused.entry(key).or_insert(until);
        *excused = until.max(*excused);
    }

    /// Called after every step. Records until when a waiter may be found waiting for a free lock.
    pub(super) fn notes_pause(&mut self) {
        let micros = match self.role {
            Role::Primary => return,
            Role::Paused => PAUSE_MICROS,
            Role::Refusing | Role::Replica => REFUSAL_MICROS,
        };
        self.paused_until = self.paused_until.max(self.elapsed + micros);
        if self.role == Role::Replica {
            self.model.undone.iter_mut().for_each(|undone| undone.is_certain = false);
        }
    }
}

impl Server {
    pub(super) fn new(
        wall: u64,
        at_once: usize,
        quarantine_millis: u64,
        tells_what_it_evicts: bool,
    ) -> Self {
        let roomy = Room::UNLIMITED;
        let state = State {
            keys: Keyspace::default(),
            model: Model::default(),
            role: Role::Primary,
            at_once,
            quarantine_millis,
            room: roomy,
            room_for_tickets: roomy,
            has_room: None,
            may_wait: None,
            connections: std::array::from_fn(|slot| u64::try_from(slot).expect("a few")),
            next_connection: u64::try_from(CONNECTIONS).expect("a few"),
            connection: None,
            parked: BTreeMap::new(),
            in_flight: Vec::new(),
            dies_at_once: false,
            in_command: false,
            is_open: false,
            released: 0,
            refuses: None,
            tells_what_it_evicts,
            elapsed: 0,
            wall,
            passes_when_asked: 0,
            passed_for_the_engine: 0,
            excused: BTreeMap::new(),
            paused_until: 0,
            told_at: wall,
        };
        Self { engine: Engine::new(), state: RefCell::new(state), named: Cell::new(0) }
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
        if micros < 0 && state.wall >= state.told_at {
            // The queues cannot know, and are late by as much.
            let late = micros.unsigned_abs();
            state.paused_until = state.paused_until.max(state.elapsed) + late;
            state.excused.values_mut().for_each(|until| *until += late);
        }
    }

    pub(super) fn work(&self) {
        let mut state = self.state.borrow_mut();
        state.told_at = state.wall;
        drop(state);
        self.engine.work(self);
    }

    /// Whether [`Server::work`] has done everything that was due.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_at_rest_at(self.state.borrow().clocks())
    }

    fn is_at_rest_at(&self, now: Now) -> bool {
        self.engine.next_due(now).is_none_or(|due| due > now.wall)
    }

    pub(super) fn becomes(&self, role: Role) {
        let former = self.state.borrow().role;
        if (role == Role::Replica) != (former == Role::Replica) {
            self.engine.role_changed();
            let state = &mut *self.state.borrow_mut();
            state.model.bound.clear();
            let is_there = |key: &Key| !matches!(state.keys.stored((0, key)), Stored::Nothing);
            state.model.keys.retain(|key, _| is_there(key));
        }
        match role {
            Role::Replica => self.engine.send_all_away(self, Error::Demoted),
            Role::Primary if former == Role::Replica => {
                let state = &mut *self.state.borrow_mut();
                let floor = state.now().plus_millis(FENCE_MARGIN_MILLIS);
                let (monotonic, millis) = (state.clocks().monotonic, state.quarantine_millis);
                self.engine.with_fences(
                    || monotonic,
                    |fences: &mut FenceClock| {
                        fences.raise(floor);
                        fences.quarantine(monotonic, millis);
                    },
                );
                state.model.quarantine_ends = state.elapsed + millis * MICROS_PER_MILLI;
                state.paused_until = state.paused_until.max(state.model.quarantine_ends);
            }
            Role::Primary | Role::Paused | Role::Refusing => {}
        }
        let state = &mut *self.state.borrow_mut();
        state.role = role;
        state.model.is_held_up = role != Role::Primary;
    }

    /// A connection ends, with the clients that wait on it or were about to be told of a grant on it.
    pub(super) fn disconnects(&self, slot: usize) {
        let connection = self.state.borrow().connections[slot];
        let parked = self.state.borrow().parked.clone();
        for (client, (_, on)) in parked {
            if on == Some(connection) {
                self.leaves(client);
            }
        }
        let state = &mut *self.state.borrow_mut();
        let (elapsed, model) = (state.elapsed, &mut state.model);
        if model.bound.iter().any(|bound| bound.connection == connection) {
            model.ended.insert(connection, elapsed);
        } else {
            // A ticket may be granted for this connection later.
            model.ended.insert(connection, u64::MAX);
        }
        state.connections[slot] = state.next_connection;
        state.next_connection += 1;
        let monotonic = state.clocks().monotonic;
        let _has_work = self.engine.connection_ended(connection, monotonic);
    }

    /// The connection of a waiter ends, or its wait is interrupted.
    pub(super) fn leaves(&self, client: Client) {
        let mut state = self.state.borrow_mut();
        let (id, _) = state.parked.remove(&client).expect("it waits");
        state.model.leave(client).expect("it waits");
        drop(state);
        assert_eq!(self.engine.leave(self, id), Some(client));
    }

    pub(super) fn dies_unheard(&self, at: usize) {
        let mut state = self.state.borrow_mut();
        let (_, grant) = state.in_flight.remove(at);
        state.model.unheard(grant.fence.number());
        drop(state);
        self.engine.mark_undeliverable(self, grant);
    }

    pub(super) fn deliver(&self) {
        let in_flight = std::mem::take(&mut self.state.borrow_mut().in_flight);
        for (_, grant) in in_flight {
            self.state.borrow_mut().model.hear(grant.fence.number());
            self.engine.mark_delivered(grant.fence.number());
        }
    }

    /// Opening a key makes the server remove it if it has expired.
    pub(super) fn remove_if_expired(&self, key: Key) {
        let state = self.state.borrow();
        let has_expired = state.keys.has_expired((0, key), state.wall / MICROS_PER_MILLI);
        let is_replica = state.role == Role::Replica;
        drop(state);
        if has_expired && !is_replica {
            self.delete(key);
        }
    }

    pub(super) fn remove_expired(&self) {
        KEYS.into_iter().for_each(|key| self.remove_if_expired(key));
    }

    pub(super) fn delete(&self, key: Key) {
        let state = &mut *self.state.borrow_mut();
        if state.keys.copy((0, key)).is_some() {
            state.keys.remove((0, key));
            // Nobody tells the engine what was written over an evicted lock and then deleted: the lock comes back.
            match self.evicted(key) {
                Some(kept) => {
                    let holds = live_in(Some(&kept), 0);
                    state.model.keys.insert(key, Content::Holds(holds));
                }
                None => drop(state.model.keys.remove(key)),
            }
            self.touched(state, key, Suspicion::Freed);
        }
    }

    /// `SET`, of a foreign lock or of a value as the module writes it, or a write of another type.
    pub(super) fn put(&self, key: Key, content: &Content) {
        self.remove_if_expired(key);
        let state = &mut *self.state.borrow_mut();
        let was_free = state.keys.copy((0, key)).is_none() && self.evicted(key).is_none();
        state.model.keys.insert(key, content.clone());
        match content {
            Content::OtherType => {
                state.keys.kept.insert((0, key), Kept::OtherType);
                state.excuse(key, RECHECK_MICROS);
            }
            Content::Holds(holds) => {
                let [Held { owner, fence, end, .. }] = &holds[..] else { panic!("one hold") };
                let value =
                    if *fence == 0 { owner.clone() } else { format!("{fence:016}:{owner}") };
                state.keys.put((0, key), value.as_bytes(), *end);
                match end {
                    // Like `SET … NX PX`, which frees no lock, so nobody looks for it.
                    Some(_) if was_free => {}
                    Some(_) => self.touched(state, key, Suspicion::Freed),
                    None => self.touched(state, key, Suspicion::Rewritten),
                }
            }
        }
    }

    pub(super) fn flush(&self) {
        let state = &mut *self.state.borrow_mut();
        state.keys.kept.clear();
        state.model.keys.clear();
        self.engine.flushed(Some(0));
    }

    pub(super) fn evict(&self, key: Key) {
        let state = &mut *self.state.borrow_mut();
        let Some(kept) = state.keys.copy((0, key)) else { return };
        state.keys.remove((0, key));
        let (name, now) = (lock(key), state.now());
        let live = state.model.live(key, now.micros()).unwrap_or_default();
        let is_waited_for = self.engine.is_contended(name);
        if state.tells_what_it_evicts {
            let _has_work = self.engine.evicted(name, kept.stored(), now);
        } else {
            let seen = self.engine.seen(name).flatten();
            let seen = seen.as_ref().map_or(Stored::Nothing, |seen| seen.as_stored());
            let _has_work = self.engine.evicted(name, seen, now);
        }
        let evicted = self.evicted(key);
        let is_kept = evicted.is_some();
        let must_be_kept = live.iter().any(|held| held.fence > 0);
        // If the module hears of the eviction too late, it keeps what it last saw.
        let is_known = state.tells_what_it_evicts || (is_waited_for && !state.is_excused(key));
        assert!(is_kept || !must_be_kept || !is_known, "{key} is forgotten: {live:?}");
        if !is_kept {
            state.model.keys.remove(key);
        } else if !state.tells_what_it_evicts {
            // The module knows only what it saw last, including holds that have run out.
            let holds = live_in(evicted.as_ref(), 0);
            state.model.keys.insert(key, Content::Holds(holds));
        }
    }

    /// What the engine keeps of an evicted key.
    pub(super) fn evicted(&self, key: Key) -> Option<Kept> {
        let evicted = self.engine.peek(|_, _, evicted| evicted.get(lock(key)).cloned());
        let seen = evicted.expect("nothing is lent out")?;
        let deadline = seen.deadline.map(Deadline::millis);
        Some(Kept::Text { value: seen.value, deadline })
    }

    pub(super) fn touches(&self, key: Key) {
        self.touched(&mut self.state.borrow_mut(), key, Suspicion::Freed);
    }

    /// A client's command names the key.
    fn touched(&self, state: &mut State, key: Key, suspicion: Suspicion) {
        let wall = state.now();
        self.engine.suspect([key.as_bytes()].into_iter(), || Some(suspicion), || wall);
        if !self.engine.with_queues(|queues| queues.is_marked(lock(key))) {
            // The lock was just looked at, and is not looked at again for a moment.
            state.excuse(key, suspicion.gap_millis() * MICROS_PER_MILLI);
        }
    }

    /// A hold that has run out and was removed does not come into force again if the clock is set back.
    pub(super) fn forgets_what_is_gone(&self) {
        let state = &mut *self.state.borrow_mut();
        let (keys, now) = (&state.keys, state.wall);
        for key in KEYS {
            let is_gone = keys.copy((0, key)).is_none() && self.evicted(key).is_none();
            if is_gone && state.model.live(key, now).is_some_and(|live| live.is_empty()) {
                state.model.keys.remove(key);
            }
        }
    }

    /// Removes the holds whose connections have ended, once the engine has nothing more to do about them.
    pub(super) fn connections_have_ended(&self) {
        let state = &mut *self.state.borrow_mut();
        let (now, is_at_rest) = (state.wall, self.is_at_rest_at(state.clocks()));
        let may_be_left = state.is_paused() || !is_at_rest;
        let model = &mut state.model;
        let mut all = std::mem::take(&mut model.bound);
        // After a clock is set back, a hold may be in force again that the engine has forgotten.
        let is_live = |bound: &Bound| {
            let own = model.own(bound.key, bound.owner, now);
            own.is_some_and(|own| own.fence == bound.fence)
        };
        all.retain(|bound| is_live(bound) || self.is_bound(bound));
        let has_ended =
            |bound: &Bound| model.ended.get(&bound.connection).is_some_and(|&at| at != u64::MAX);
        let (over, bound): (Vec<_>, Vec<_>) = all.into_iter().partition(has_ended);
        model.bound = bound;
        for bound in over {
            if self.is_bound(&bound) {
                assert!(may_be_left, "{bound:?} has no connection any more");
                model.bound.push(bound);
                continue;
            }
            let Bound { key, owner, fence, connection, grace } = bound;
            let own = model.own(key, owner, now).filter(|own| own.fence == fence);
            let Some(own) = own else { continue };
            let latest = now / MICROS_PER_MILLI + grace;
            let is_short = grace > 0 && own.end.is_some_and(|end| end <= latest);
            // A command at the same moment may have found the hold short, and extended it.
            let is_new = model.ended.get(&connection) == Some(&model.elapsed);
            assert!(is_short || is_new, "{key}: {own:?} outlives its connection");
        }
    }

    fn is_bound(&self, bound: &Bound) -> bool {
        self.engine.with_bindings(|bindings| {
            let mut is_there = false;
            for (name, owner, fence, _) in bindings {
                let is_it = (key_of(name), fence) == (bound.key, bound.fence);
                is_there |= is_it && owner.as_bytes() == bound.owner.as_bytes();
            }
            is_there
        })
    }
}

/// The name as the module knows it.
pub(super) fn lock(key: Key) -> Name<'static> {
    Name::new(0, key.as_bytes())
}

pub(super) fn key_of(name: Name<'_>) -> Key {
    KEYS.into_iter().find(|key| key.as_bytes() == name.key).expect("a key that there is")
}
