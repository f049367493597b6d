//! A tiny server: keys that expire, strangers who change them, databases that are flushed and swapped,
//! eviction, pauses, a role, and a clock that is stepped.
//!
//! Whatever happens to a key happens to the model's too, and is told to the module (see
//! [`super::module`]) in the way of the real server's events.

use super::super::evicted::Evicted;
use super::super::fence::{Fence, FenceClock};
use super::super::hold::{Stored, Value};
use super::super::lease::{Deadline, Moment, Monotonic, Now};
use super::super::model::{Client, Content, LockName, Model, Reply};
use super::super::queue::{Queues, Room, Seen, Suspicion, WaiterId};
use super::history::History;
use super::module::owner;
use std::collections::BTreeMap;
use std::fmt;

pub(super) const MICROS_PER_MILLI: u64 = 1_000;

/// How much later than the event itself a lock may be settled if nobody told the module of it.
const RECHECK_MICROS: u64 = 1_000 * MICROS_PER_MILLI;
const PAUSE_MICROS: u64 = 10 * MICROS_PER_MILLI;

/// What a primary whose place this server takes may have been ahead of it.
const FENCE_MARGIN_MILLIS: u64 = 5_000;

/// Every key there is.
pub(super) const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];

enum Kept {
    Text { value: Box<[u8]>, deadline: Option<u64> },
    OtherType,
}

impl Kept {
    fn stored(&self) -> Stored<'_> {
        match self {
            Self::OtherType => Stored::OtherType,
            Self::Text { value, deadline } => {
                Stored::Text { value, deadline: deadline.map(Deadline::from_millis) }
            }
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { value, deadline: None } => write!(f, "{}", value.escape_ascii()),
            Self::Text { value, deadline: Some(deadline) } => {
                write!(f, "{} until {deadline}", value.escape_ascii())
            }
            Self::OtherType => write!(f, "another type"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Keyspace {
    kept: BTreeMap<LockName, Kept>,
}

impl Keyspace {
    pub(super) fn stored(&self, name: LockName) -> Stored<'_> {
        self.kept.get(&name).map_or(Stored::Nothing, Kept::stored)
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn names(&self) -> Vec<LockName> {
        self.kept.keys().copied().collect()
    }

    fn has_expired(&self, name: LockName, at_millis: u64) -> bool {
        let kept = self.kept.get(&name);
        matches!(kept, Some(Kept::Text { deadline: Some(deadline), .. }) if at_millis > *deadline)
    }

    fn swap(&mut self, one: LockName, other: LockName) {
        swap_entries(&mut self.kept, one, other);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    /// A primary on which `CLIENT PAUSE` is in force.
    Paused,
    Replica,
}

/// A grant on its way to a client that has not heard of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) fence: u64,
    /// Another connection of the same owner was told that it holds the lock.
    pub(super) is_counted_on: bool,
}

pub(super) struct Server {
    pub(super) queues: Queues<Client>,
    pub(super) evicted: Evicted,
    /// Whether the server tells of an eviction while the value is still there.
    tells_what_it_evicts: bool,
    pub(super) fences: FenceClock,
    pub(super) model: Model,
    pub(super) history: History,
    pub(super) answers: Vec<(Client, Reply)>,
    /// Where to find those who wait.
    pub(super) parked: BTreeMap<Client, WaiterId>,
    pub(super) in_flight: Vec<InFlight>,
    pub(super) given_back: Vec<InFlight>,
    pub(super) role: Role,
    pub(super) room: Room,
    /// How much is done before other clients have their turn.
    pub(super) at_once: usize,
    /// By how much the clock by which keys expire is behind: in a transaction it stands still.
    pub(super) lag_millis: u64,
    /// The locks that the module has settled in this step.
    pub(super) settled: Vec<LockName>,
    /// Whether the module hears of what happens to keys.
    pub(super) is_heard: bool,
    pub(super) keys: Keyspace,
    /// Time that has passed, in microseconds; the wall clock may tell another.
    elapsed: u64,
    wall: u64,
    /// Until when, in elapsed time, a lock may be found not to be settled.
    excused: BTreeMap<LockName, u64>,
    writable_since: u64,
    /// What the wall clock said when the module last worked.
    pub(super) worked_at: u64,
}

impl Server {
    pub(super) fn new(wall: u64, at_once: usize, tells_what_it_evicts: bool) -> Self {
        Self {
            queues: Queues::new(),
            evicted: Evicted::new(),
            tells_what_it_evicts,
            fences: FenceClock::new(),
            model: Model::new(),
            history: History::default(),
            answers: Vec::new(),
            parked: BTreeMap::new(),
            in_flight: Vec::new(),
            given_back: Vec::new(),
            role: Role::Primary,
            room: Room { for_all: usize::MAX, per_lock: usize::MAX },
            at_once,
            lag_millis: 0,
            settled: Vec::new(),
            is_heard: true,
            keys: Keyspace::default(),
            elapsed: 0,
            wall,
            excused: BTreeMap::new(),
            writable_since: 0,
            worked_at: wall,
        }
    }

    pub(super) fn now(&self) -> Moment {
        Moment::from_micros(self.wall)
    }

    pub(super) fn both_clocks(&self) -> Now {
        Now { wall: self.now(), monotonic: self.monotonic() }
    }

    pub(super) fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(self.elapsed)
    }

    pub(super) fn wall_millis(&self) -> u64 {
        self.wall / MICROS_PER_MILLI
    }

    pub(super) fn may_write(&self) -> bool {
        self.role == Role::Primary
    }

    pub(super) fn passes(&mut self, micros: u64) {
        self.elapsed += micros;
        self.model.elapsed = self.elapsed;
        self.wall += micros;
    }

    /// Somebody sets the wall clock.
    pub(super) fn steps(&mut self, micros: i64) {
        self.wall = self.wall.saturating_add_signed(micros);
        // Set back, but not to before the module last looked: it cannot know, and is late by as much.
        if micros < 0 && self.wall >= self.worked_at {
            let late = micros.unsigned_abs();
            self.writable_since += late;
            self.excused.values_mut().for_each(|until| *until += late);
        }
    }

    /// Whoever opens a key makes the server remove it if it has expired.
    pub(super) fn open(&mut self, name: LockName) {
        let at_millis = self.wall_millis() - self.lag_millis;
        if self.may_write() && self.keys.has_expired(name, at_millis) {
            self.delete(name);
        }
    }

    // What the module does to a key. The model does the same of its own accord.

    /// A real server dies of a module that writes while it may not.
    fn lets_write(&self) {
        assert!(self.may_write(), "L6: the module wrote to a server that is {:?}", self.role);
    }

    pub(super) fn write(&mut self, name: LockName, value: &[u8], deadline: Option<u64>) {
        self.lets_write();
        self.keys.kept.insert(name, Kept::Text { value: value.into(), deadline });
    }

    /// Puts an evicted lock back.
    pub(super) fn restore(&mut self, name: LockName, value: &[u8], deadline: Option<Deadline>) {
        let has_run_out = deadline.is_some_and(|deadline| deadline.has_passed(self.now()));
        assert!(!has_run_out, "{name:?} was put back, but its lease has run out");
        self.write(name, value, deadline.map(Deadline::millis));
        match self.model.evicted(name) {
            Some(Content::Lock { holder, fence, deadline }) => {
                self.history.restored(name, holder, fence, deadline);
            }
            other => panic!("{name:?} was put back, but was {other:?}"),
        }
    }

    pub(super) fn lengthen(&mut self, name: LockName, until: Option<Deadline>) {
        if let Some(until) = until.map(Deadline::millis)
            && let Some(Kept::Text { deadline, .. }) = self.keys.kept.get_mut(&name)
        {
            *deadline = Some(until);
            self.history.moved(name, Some(until));
            self.lets_write();
        }
    }

    pub(super) fn free(&mut self, name: LockName) {
        self.lets_write();
        self.keys.kept.remove(&name);
    }

    // What others do to it.

    /// `SET`, with an expiry or without, of a foreign lock (fence 0) or of a value as the module writes it; or
    /// a write of another type. The module is not told of these, unless there is an expiry.
    pub(super) fn put(&mut self, name: LockName, content: Content) {
        self.open(name);
        if self.role == Role::Replica {
            self.follow(content);
        }
        match content {
            Content::OtherType => {
                self.keys.kept.insert(name, Kept::OtherType);
                self.history.over(name);
                self.unheard(name);
            }
            Content::Lock { holder, fence, deadline } => {
                let value = match Fence::new(fence) {
                    Some(fence) => Value::new(fence, owner(holder)).as_bytes().into(),
                    None => holder.as_bytes().into(),
                };
                self.keys.kept.insert(name, Kept::Text { value, deadline });
                self.history.wrote(name, holder, fence, deadline);
                self.touched(
                    name,
                    match deadline {
                        Some(_) => Suspicion::Freed,
                        None => Suspicion::Rewritten,
                    },
                );
            }
        }
        self.model.keys.insert(name, content);
    }

    /// A replica reads the grants it is sent, and must be above them when it becomes primary.
    fn follow(&mut self, content: Content) {
        if let Content::Lock { fence, .. } = content
            && let Some(fence) = Fence::new(fence)
        {
            self.fences.observe(fence, self.now());
            self.model.observe(fence.number(), self.wall);
        }
    }

    pub(super) fn delete(&mut self, name: LockName) {
        if self.keys.kept.remove(&name).is_some() {
            self.model.keys.remove(&name);
            self.history.over(name);
            self.touched(name, Suspicion::Freed);
        }
    }

    /// `PEXPIREAT`; in the past it deletes. `PERSIST` without a deadline.
    pub(super) fn expire_at(&mut self, name: LockName, until: Option<u64>) {
        self.open(name);
        if until.is_some_and(|until| until < self.wall_millis()) {
            return self.delete(name);
        }
        if let Some(Kept::Text { deadline, .. }) = self.keys.kept.get_mut(&name) {
            *deadline = until;
            if let Some(Content::Lock { deadline, .. }) = self.model.keys.get_mut(&name) {
                *deadline = until;
            }
            self.history.moved(name, until);
            self.touched(name, Suspicion::Freed);
        }
    }

    /// `RENAME`, or `COPY` with `REPLACE`.
    pub(super) fn duplicate(&mut self, from: LockName, to: LockName, keeps_the_source: bool) {
        self.open(from);
        self.open(to);
        if from == to || !self.keys.kept.contains_key(&from) {
            return;
        }
        let content = self.model.keys.get(&from).copied().expect("the model has it too");
        if !keeps_the_source {
            self.delete(from);
        }
        self.put(to, content);
        self.touched(to, Suspicion::Freed);
    }

    pub(super) fn flush(&mut self, db: Option<i32>) {
        self.keys.kept.retain(|name, _| db.is_some_and(|db| db != name.0));
        self.model.keys.retain(|name, _| db.is_some_and(|db| db != name.0));
        self.history.flushed(db);
        self.evicted.forget(db);
        self.model.forget_evictions(|name| db.is_none_or(|db| db == name.0));
        self.queues.mark_all(db);
    }

    pub(super) fn swap(&mut self, one: i32, other: i32) {
        if one == other {
            return;
        }
        for key in KEYS {
            let (one, other) = ((one, key), (other, key));
            self.keys.swap(one, other);
            swap_entries(&mut self.model.keys, one, other);
            self.history.swapped(one, other);
        }
        self.evicted.swap(one, other);
        self.model.swap_evictions(one, other);
        self.queues.mark_all(Some(one));
        self.queues.mark_all(Some(other));
    }

    pub(super) fn evict(&mut self, name: LockName) {
        let (db, key, now) = (name.0, name.1.as_bytes(), self.now());
        let Some(kept) = self.keys.kept.remove(&name) else { return };
        let is_contended = self.model.anyone_waits_for(name);
        let held = self.model.keys.get(&name).copied();
        let (is_kept, lock) = if self.tells_what_it_evicts {
            let is_a_lock = |content: &Content| match content {
                Content::Lock { fence, .. } => *fence > 0 || is_contended,
                Content::OtherType => false,
            };
            (self.evicted.keep(db, key, kept.stored(), is_contended, now), held.filter(is_a_lock))
        } else {
            let seen = self.queues.seen(db, key).map_or(Stored::Nothing, Seen::as_stored);
            (self.evicted.keep(db, key, seen, is_contended, now), self.model.seen(name))
        };
        self.history.evicted(name, is_kept && lock == held);
        self.model.evict(name, lock, now.micros());
        assert_eq!(is_kept, self.model.evicted(name).is_some(), "{name:?}: {lock:?}");
        if !is_kept {
            assert_eq!(self.queues.mark(db, key), is_contended);
        }
    }

    /// The server's own search for keys that have expired.
    pub(super) fn remove_expired(&mut self) {
        for name in self.keys.names() {
            if self.keys.has_expired(name, self.wall_millis()) {
                self.delete(name);
            }
        }
    }

    pub(super) fn becomes(&mut self, role: Role) {
        if (role == Role::Replica) != (self.role == Role::Replica) {
            self.evicted.forget(None);
            self.model.forget_evictions(|_| true);
            self.history.evictions_forgotten(|_| true);
        }
        match role {
            Role::Replica => self.send_all_away(),
            Role::Primary if self.role == Role::Replica => {
                let floor = self.now().plus_millis(FENCE_MARGIN_MILLIS);
                self.fences.raise(floor);
                self.model.raise(floor.micros());
            }
            Role::Primary | Role::Paused => {}
        }
        self.role = role;
    }

    pub(super) fn makes_room(&mut self, for_all: usize, per_lock: usize) {
        self.room = Room { for_all, per_lock };
        self.model.most_waiters = for_all;
        self.model.most_waiters_per_lock = per_lock;
    }

    // Events.

    /// The module is told that something happened to the key, unless that got lost.
    pub(super) fn touched(&mut self, name: LockName, suspicion: Suspicion) {
        if self.is_heard {
            // A command names a key, and the database is not known.
            let key = name.1.as_bytes();
            let now = self.now();
            let _ = self.queues.touch([key].into_iter(), || Some(suspicion), || now);
            if self.model.anyone_waits_for(name) && !self.queues.is_marked(name.0, key) {
                // It was just looked at, and is not looked at again for a moment.
                let next = self.queues.next_due(self.both_clocks());
                let gap_millis = suspicion.gap_millis();
                let latest = self.now().plus_millis(gap_millis);
                assert!(next.is_some_and(|next| next <= latest), "touched, and not looked at");
                let until = self.elapsed + gap_millis * MICROS_PER_MILLI;
                let excused = self.excused.entry(name).or_insert(until);
                *excused = until.max(*excused);
            }
        } else {
            self.unheard(name);
        }
    }

    fn unheard(&mut self, name: LockName) {
        self.excused.insert(name, self.elapsed + RECHECK_MICROS);
    }

    // What the simulation wants to know.

    /// Called after every step: from when on nobody may be found waiting for a free lock again.
    pub(super) fn notes_pause(&mut self) {
        if !self.may_write() {
            self.writable_since = self.elapsed;
        }
    }

    pub(super) fn is_excused(&self, name: LockName) -> bool {
        self.elapsed <= self.writable_since + PAUSE_MICROS
            || self.excused.get(&name).is_some_and(|&until| self.elapsed <= until)
    }
}

fn swap_entries<T>(map: &mut BTreeMap<LockName, T>, one: LockName, other: LockName) {
    let (from_one, from_other) = (map.remove(&one), map.remove(&other));
    map.extend(from_one.map(|entry| (other, entry)));
    map.extend(from_other.map(|entry| (one, entry)));
}
