//! What the module remembers between two calls: the engine, and what it knows of the server.
//!
//! The keyspace is the only state of a lock; nothing here is needed to know who holds one.

use super::alarm::Alarm;
use super::blocked_client::{BlockedClient, Handles};
use super::command_filter::CommandFilter;
use super::delivery::Writers;
use super::replicate::CachedExpiryArgs;
use super::room::MaxClients;
use super::slots::Movements;
use super::subscription::{ServerSubscription, Subscription};
use super::throttle::Throttle;
use super::{clock, eviction, fence_observer};
use leasehold_core::engine::Engine;
use leasehold_core::lock::{FenceClock, Moment};
use std::cell::{Cell, LazyCell, RefCell};
use std::collections::HashMap;

/// The one instance.
pub(super) static STATE: State = State {
    locks: Engine::new(),
    panics_caught: Cell::new(0),
    learning: Cell::new(false),
    commands_heard: fence_observer::of_commands(),
    keys_heard: fence_observer::of_keys(),
    evictions_heard: eviction::of_evictions(),
    unlinks_heard: eviction::of_unlinks(),
    may_evict: Cell::new(false),
    max_clients: MaxClients::new(),
    command_filter: CommandFilter::new(),
    in_cluster: Cell::new(false),
    movements: Movements::new(),
    rounds: Throttle::new(),
    fence_broadcast: Throttle::new(),
    has_replicas: Cell::new(false),
    blocked: LazyCell::new(RefCell::default),
    writers: Writers::new(),
    alarm: Cell::new(None),
    loaded_by: Cell::new(None),
    going_down: Cell::new(false),
    cached_expiry_args: CachedExpiryArgs::new(),
};

pub(super) struct State {
    pub(super) locks: Engine<BlockedClient>,
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
    pub(super) command_filter: CommandFilter,
    pub(super) in_cluster: Cell<bool>,
    pub(super) movements: Movements,
    /// Looks at locks to which nothing is known to have happened.
    pub(super) rounds: Throttle,
    /// Tells replicas and the append-only file how far the fence clock is.
    pub(super) fence_broadcast: Throttle,
    /// Whether there may be replicas.
    pub(super) has_replicas: Cell<bool>,
    blocked: LazyCell<RefCell<Handles>>,
    pub(super) writers: Writers,
    pub(super) alarm: Cell<Option<Alarm>>,
    /// When the command began that loaded this module.
    pub(super) loaded_by: Cell<Option<Moment>>,
    /// Whether this process is about to end, and nothing that it remembers matters any more.
    pub(super) going_down: Cell<bool>,
    pub(super) cached_expiry_args: CachedExpiryArgs,
}

// SAFETY: the server calls every entry of a module on its main thread (with io-threads too: those
// read and write sockets, they do not execute commands), and the module starts no thread. A forked child
// has its own copy.
unsafe impl Sync for State {}

impl State {
    /// Forgets everything: a module that is loaded again begins anew, also where the C library kept the old
    /// one in memory.
    pub(super) fn reset(&self) {
        self.locks.reset();
        self.panics_caught.set(0);
        self.learning.set(false);
        self.commands_heard.reset();
        self.keys_heard.reset();
        self.evictions_heard.reset();
        self.unlinks_heard.reset();
        self.may_evict.set(false);
        self.max_clients.reset();
        self.command_filter.reset();
        self.movements.reset();
        self.rounds.reset();
        self.fence_broadcast.reset();
        self.has_replicas.set(false);
        self.with_blocked(HashMap::clear);
        self.writers.reset();
        self.alarm.set(None);
        self.loaded_by.set(None);
        self.going_down.set(false);
    }

    /// Lends the handles of blocked clients out. `body` must not call the server, which could call back for them.
    pub(super) fn with_blocked<T>(&self, body: impl FnOnce(&mut Handles) -> T) -> T {
        body(&mut self.blocked.borrow_mut())
    }

    /// The fence clock, to look at.
    pub(super) fn fences(&self) -> FenceClock {
        self.locks.fences(clock::monotonic)
    }

    /// Lends the fence clock out.
    pub(super) fn with_fences<T>(&self, body: impl FnOnce(&mut FenceClock) -> T) -> T {
        self.locks.with_fences(clock::monotonic, body)
    }
}
