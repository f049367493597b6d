//! What the module remembers between two calls: the fence clock, who waits, the counters.
//!
//! The keyspace is the only state of a lock; nothing here is needed to know who holds one.

use super::alarm::Alarm;
use super::delivery::Deliveries;
use super::handoff::GiveBack;
use super::lookout::Lookout;
use super::park::{Handles, Parked};
use super::replicate::Ending;
use super::slots::Movements;
use super::soon::Soon;
use super::subscription::Subscription;
use super::{events, learn};
use crate::lock::{Fence, FenceClock, Moment, Queues};
use crate::observe::Observer;
use std::cell::{Cell, LazyCell, RefCell};
use std::collections::{BTreeSet, HashMap};

const MILLIS_BETWEEN_COMPLAINTS: u64 = 60_000;

/// The one instance.
pub(super) static STATE: State = State {
    fences: Cell::new(FenceClock::new()),
    panics_caught: Cell::new(0),
    learning: Cell::new(false),
    commands_heard: learn::of_commands(),
    keys_heard: learn::of_keys(),
    evictions_heard: events::of_evictions(),
    lookout: Lookout::new(),
    in_cluster: Cell::new(false),
    movements: Movements::new(),
    rounds: Soon::new(),
    telling: Soon::new(),
    has_replicas: Cell::new(false),
    complained: Cell::new(None),
    queues: LazyCell::new(|| RefCell::new(Queues::new())),
    parked: LazyCell::new(RefCell::default),
    given_back: RefCell::new(Vec::new()),
    unheard: RefCell::new(BTreeSet::new()),
    deliveries: Deliveries::new(),
    observer: RefCell::new(Observer::new()),
    alarm: Cell::new(None),
    going_down: Cell::new(false),
    ending: Ending::new(),
};

pub(super) struct State {
    fences: Cell<FenceClock>,
    pub(super) panics_caught: Cell<u64>,
    /// Whether grants are being applied here that others made.
    pub(super) learning: Cell<bool>,
    pub(super) commands_heard: Subscription,
    pub(super) keys_heard: Subscription,
    pub(super) evictions_heard: Subscription,
    pub(super) lookout: Lookout,
    pub(super) in_cluster: Cell<bool>,
    pub(super) movements: Movements,
    /// Looks at locks to which nothing is known to have happened.
    pub(super) rounds: Soon,
    /// That the fence clock was lifted, to replicas.
    pub(super) telling: Soon,
    /// Whether there may be replicas to be told.
    pub(super) has_replicas: Cell<bool>,
    /// When the log last heard of a fence that was refused.
    complained: Cell<Option<Moment>>,
    queues: LazyCell<RefCell<Queues<Parked>>>,
    parked: LazyCell<RefCell<Handles>>,
    given_back: RefCell<Vec<GiveBack>>,
    /// Fences of grants to waiters that nobody has heard of yet. No two grants have the same.
    unheard: RefCell<BTreeSet<u64>>,
    /// Grants to waiters that are being sent the fence.
    pub(super) deliveries: Deliveries,
    observer: RefCell<Observer>,
    pub(super) alarm: Cell<Option<Alarm>>,
    /// Whether this process is about to end, and nothing that it remembers matters any more.
    pub(super) going_down: Cell<bool>,
    pub(super) ending: Ending,
}

// SAFETY: the server calls every entry of a module on its main thread (with io-threads too: those
// read and write sockets, they do not execute commands), and the module starts no thread. A forked child
// has its own copy.
unsafe impl Sync for State {}

impl State {
    /// Forgets everything: a module that is loaded again begins anew, also where the C library kept the old
    /// one in memory.
    pub(super) fn reset(&self) {
        self.fences.set(FenceClock::new());
        self.panics_caught.set(0);
        self.learning.set(false);
        self.commands_heard.reset();
        self.keys_heard.reset();
        self.evictions_heard.reset();
        self.lookout.reset();
        self.movements.reset();
        self.rounds.reset();
        self.telling.reset();
        self.has_replicas.set(false);
        self.complained.set(None);
        self.with_queues(|queues| *queues = Queues::new());
        self.with_parked(HashMap::clear);
        self.given_back.borrow_mut().clear();
        self.unheard.borrow_mut().clear();
        self.deliveries.reset();
        self.with_observer(|observer| *observer = Observer::new());
        self.alarm.set(None);
        self.going_down.set(false);
    }

    /// Lends the fence clock out. The clock is copied and put back, so that even a nested call, should a
    /// server ever make one, could not borrow it twice.
    pub(super) fn with_fences<T>(&self, body: impl FnOnce(&mut FenceClock) -> T) -> T {
        let mut fences = self.fences.get();
        let outcome = body(&mut fences);
        self.fences.set(fences);
        outcome
    }

    /// Lends the queues out. `body` must not call the server, which could call back for them.
    pub(super) fn with_queues<T>(&self, body: impl FnOnce(&mut Queues<Parked>) -> T) -> T {
        body(&mut self.queues.borrow_mut())
    }

    /// Lends the handles of those who wait out, on the same condition.
    pub(super) fn with_parked<T>(&self, body: impl FnOnce(&mut Handles) -> T) -> T {
        body(&mut self.parked.borrow_mut())
    }

    /// Lends the observer out, on the same condition.
    pub(super) fn with_observer<T>(&self, body: impl FnOnce(&mut Observer) -> T) -> T {
        body(&mut self.observer.borrow_mut())
    }

    /// Both, to look at; `None` if either is lent out, as it may be when the server asks in the middle of a crash.
    pub(super) fn peek<T>(&self, body: impl FnOnce(&Queues<Parked>, &Observer) -> T) -> Option<T> {
        let (queues, observer) = (self.queues.try_borrow().ok()?, self.observer.try_borrow().ok()?);
        Some(body(&queues, &observer))
    }

    /// A waiter was granted the lock, and is about to be told.
    pub(super) fn not_heard_yet(&self, fence: Fence) {
        self.unheard.borrow_mut().insert(fence.number());
    }

    /// Somebody was told of the grant with this fence. False if somebody had been before.
    pub(super) fn heard(&self, fence_number: u64) -> bool {
        self.unheard.borrow_mut().remove(&fence_number)
    }

    /// Whether every waiter that was granted the lock has heard of it, or never will.
    pub(super) fn all_heard(&self) -> bool {
        self.unheard.borrow().is_empty()
    }

    pub(super) fn give_back(&self, grant: GiveBack) {
        self.given_back.borrow_mut().push(grant);
    }

    pub(super) fn take_given_back(&self, which: impl Fn(&GiveBack) -> bool) -> Vec<GiveBack> {
        self.given_back.borrow_mut().extract_if(.., |grant| which(grant)).collect()
    }

    /// Whether this grant is about to be taken back.
    pub(super) fn is_given_back(&self, db: i32, key: &[u8], fence: Option<Fence>) -> bool {
        let given_back = self.given_back.borrow();
        given_back.iter().any(|grant| grant.is_of(db, key) && Some(grant.fence) == fence)
    }

    pub(super) fn next_given_back(&self) -> Option<Moment> {
        self.given_back.borrow().iter().map(|grant| grant.due).min()
    }

    /// Whether a minute has passed since this last said yes: clients must not be able to fill the log.
    pub(super) fn may_complain(&self, now: Moment) -> bool {
        let due = self
            .complained
            .get()
            .is_none_or(|last| now.millis().abs_diff(last.millis()) >= MILLIS_BETWEEN_COMPLAINTS);
        if due {
            self.complained.set(Some(now));
        }
        due
    }

    pub(super) fn fences(&self) -> FenceClock {
        self.fences.get()
    }
}
