//! What the module remembers between two calls: the fence clock, who waits, the counters.
//!
//! The keyspace is the only state of a lock; nothing here is needed to know who holds one.

use super::alarm::Alarm;
use super::delivery::Writers;
use super::handoff::GiveBack;
use super::lookout::Lookout;
use super::park::{Handles, Parked};
use super::replicate::Ending;
use super::room::MaxClients;
use super::slots::Movements;
use super::soon::Soon;
use super::subscription::{ServerSubscription, Subscription};
use super::{clock, eviction, learn};
use leasehold_core::lock::{Evicted, Fence, FenceClock, Moment, Monotonic, Queues};
use leasehold_core::observe::Observer;
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
    evictions_heard: eviction::of_evictions(),
    unlinks_heard: eviction::of_unlinks(),
    may_evict: Cell::new(false),
    max_clients: MaxClients::new(),
    lookout: Lookout::new(),
    in_cluster: Cell::new(false),
    movements: Movements::new(),
    rounds: Soon::new(),
    fence_broadcast: Soon::new(),
    has_replicas: Cell::new(false),
    complained: Cell::new(None),
    queues: LazyCell::new(|| RefCell::new(Queues::new())),
    parked: LazyCell::new(RefCell::default),
    evicted: RefCell::new(Evicted::new()),
    given_back: RefCell::new(Vec::new()),
    unheard: RefCell::new(BTreeSet::new()),
    writers: Writers::new(),
    observer: RefCell::new(Observer::new()),
    alarm: Cell::new(None),
    loaded_by: Cell::new(None),
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
    pub(super) unlinks_heard: ServerSubscription,
    /// Whether the server is set to evict keys when memory is short.
    pub(super) may_evict: Cell<bool>,
    pub(super) max_clients: MaxClients,
    pub(super) lookout: Lookout,
    pub(super) in_cluster: Cell<bool>,
    pub(super) movements: Movements,
    /// Looks at locks to which nothing is known to have happened.
    pub(super) rounds: Soon,
    /// Tells replicas and the append-only file how far the fence clock is.
    pub(super) fence_broadcast: Soon,
    /// Whether there may be replicas.
    pub(super) has_replicas: Cell<bool>,
    /// When the log last heard of a fence that was refused.
    complained: Cell<Option<Monotonic>>,
    queues: LazyCell<RefCell<Queues<Parked>>>,
    parked: LazyCell<RefCell<Handles>>,
    evicted: RefCell<Evicted>,
    given_back: RefCell<Vec<GiveBack>>,
    /// Fences of grants to waiters that nobody has heard of yet. No two grants have the same.
    unheard: RefCell<BTreeSet<u64>>,
    pub(super) writers: Writers,
    observer: RefCell<Observer>,
    pub(super) alarm: Cell<Option<Alarm>>,
    /// When the command began that loaded this module.
    pub(super) loaded_by: Cell<Option<Moment>>,
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
        self.unlinks_heard.reset();
        self.may_evict.set(false);
        self.max_clients.reset();
        self.lookout.reset();
        self.movements.reset();
        self.rounds.reset();
        self.fence_broadcast.reset();
        self.has_replicas.set(false);
        self.complained.set(None);
        self.with_queues(|queues| *queues = Queues::new());
        self.with_parked(HashMap::clear);
        self.with_evicted(|evicted| *evicted = Evicted::new());
        self.given_back.borrow_mut().clear();
        self.unheard.borrow_mut().clear();
        self.writers.reset();
        self.with_observer(|observer| *observer = Observer::new());
        self.alarm.set(None);
        self.loaded_by.set(None);
        self.going_down.set(false);
    }

    /// Lends the fence clock out. The clock is copied and put back, so that even a nested call, should a
    /// server ever make one, could not borrow it twice.
    pub(super) fn with_fences<T>(&self, body: impl FnOnce(&mut FenceClock) -> T) -> T {
        let mut fences = self.fences();
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

    /// Lends the evicted locks out, on the same condition.
    pub(super) fn with_evicted<T>(&self, body: impl FnOnce(&mut Evicted) -> T) -> T {
        body(&mut self.evicted.borrow_mut())
    }

    /// How many evicted locks are to be put back; 0 if they are lent out, as they may be in the middle of a crash.
    pub(super) fn evictions_pending(&self) -> u64 {
        let pending = self.evicted.try_borrow().map_or(0, |evicted| evicted.len());
        pending.try_into().unwrap_or(u64::MAX)
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

    pub(super) fn next_given_back(&self) -> Option<Monotonic> {
        self.given_back.borrow().iter().map(|grant| grant.due).min()
    }

    /// Whether a minute has passed since this last said yes: clients must not be able to fill the log.
    pub(super) fn may_complain(&self) -> bool {
        let now = clock::monotonic();
        let due = self
            .complained
            .get()
            .is_none_or(|last| now.millis_since(last) >= MILLIS_BETWEEN_COMPLAINTS);
        if due {
            self.complained.set(Some(now));
        }
        due
    }

    /// The fence clock to look at.
    pub(super) fn fences(&self) -> FenceClock {
        let mut fences = self.fences.get();
        if fences.is_quarantined() {
            fences.pass(clock::monotonic());
        }
        fences
    }
}
