//! The engine: the order in which things happen to locks.
//!
//! ```text
//!   a client's command             a timer: work()
//!         │                              │
//!      change()                    waiters whose patience has ended
//!         │ take back grants       undelivered grants
//!         │   not delivered        holds whose connections have ended
//!         │ settle, if suspected   evicted locks
//!         │                        suspected locks
//!         │ decide                       │
//!         │ write                        ▼
//!         │ report            ┌── settle(): look; may the module write?; put back;
//!         └─ settle ──────────┘     hand on, until the lock is held or nobody waits
//! ```
//!
//! [`lock`](crate::lock) decides, in functions of what a key holds. The engine only keeps the order. It asks a [`Host`]
//! for keys, for the time and for permission to write, and asks the queues which waiter is next. The module on a real
//! server and the simulation are two hosts of the same engine.
//!
//! **A command settles the lock that it changes before it returns**, so that a release and the grant after it are one
//! transaction for replicas and the append-only file. Everything else (a deletion by another client, an expiry, a
//! flush) only marks the lock. [`Engine::work`] settles a marked lock right after, in a timer, before other clients
//! have their next turn. A write inside a notification would put the grant before the deletion that made it possible,
//! and replicas would lose the lock.
//!
//! No key is open while an event is published or a client is answered: another module may react to the event or the
//! answer, and change the key.
//!
//! The engine never keeps one of its parts borrowed while it calls the host: the host may call the engine back.

mod bindings;
mod change;
mod delivery;
mod effort;
mod events;
mod handoff;
mod host;
mod owner;
mod pending;
#[cfg(test)]
mod tests;
mod unheard;

pub use change::Done;
pub use host::{Announced, Answer, Authority, Host, Initiator, Key, Lock, Mode, Warning};
use owner::Steps;
pub use owner::{Cursor, Freed};

use crate::lock::{
    Evicted, Fence, FenceClock, KeptNames, KeptOwner, Moment, Monotonic, Name, Now, Queues,
};
use crate::observe::Observer;
use bindings::Bindings;
use pending::PendingReleases;
use std::cell::{Cell, LazyCell, RefCell};
use std::collections::BTreeSet;
use std::ops::Deref;
use unheard::UnheardGrants;

/// How long to wait before asking again whether the module may write, while writes are paused.
const PAUSE_MILLIS: u64 = 10;

/// The wait while the server refuses writes. It is longer, because a refusal may last.
const REFUSAL_MILLIS: u64 = 100;

const MILLIS_BETWEEN_COMPLAINTS: u64 = 60_000;

/// What the module remembers of locks between two calls. The keyspace alone says who holds a lock; nothing in here is
/// needed to tell. `C` is a client that waits.
pub struct Memory<C> {
    queues: LazyCell<RefCell<Queues<C>>>,
    fences: Cell<FenceClock>,
    evicted: RefCell<Evicted>,
    /// The fences of grants to waiters that have not been delivered yet. No two grants have the same fence.
    undelivered: RefCell<BTreeSet<u64>>,
    pending_releases: RefCell<PendingReleases>,
    unheard: RefCell<UnheardGrants>,
    bindings: LazyCell<RefCell<Bindings>>,
    observer: RefCell<Observer>,
    drop_steps: Cell<Steps>,
    /// When the log last named a fence that is not credible.
    complained: Cell<Option<Monotonic>>,
    /// Whether the next due time may have changed since the host last asked.
    due_changed: Cell<bool>,
}

impl<C> Memory<C> {
    pub const fn new() -> Self {
        Self {
            queues: LazyCell::new(|| RefCell::new(Queues::new())),
            fences: Cell::new(FenceClock::new()),
            evicted: RefCell::new(Evicted::new()),
            undelivered: RefCell::new(BTreeSet::new()),
            pending_releases: RefCell::new(PendingReleases::new()),
            unheard: RefCell::new(UnheardGrants::new()),
            bindings: LazyCell::new(RefCell::default),
            observer: RefCell::new(Observer::new()),
            drop_steps: Cell::new(Steps::NONE),
            complained: Cell::new(None),
            due_changed: Cell::new(false),
        }
    }

    pub const fn on<'e, H: Host<Client = C>>(&'e self, host: &'e H) -> Engine<'e, H> {
        Engine { memory: self, host }
    }

    /// Whether [`Memory::next_due`] may have changed since the last call, other than by the passing of time. A host
    /// asks at the end of each call into the engine, and sets its timer anew.
    pub fn take_due_changed(&self) -> bool {
        self.due_changed.take()
    }

    fn changes_due(&self) {
        self.due_changed.set(true);
    }

    /// When [`Engine::work`] next has something to do.
    pub fn next_due(&self, now: Now) -> Option<Moment> {
        let queued = {
            let queues = self.queues.borrow();
            if queues.has_marks() { Some(now.wall) } else { queues.next_due(now) }
        };
        let evicted = self.evicted.borrow().due(now.wall);
        let pending = self.pending_releases.borrow().next_due();
        let unheard = self.unheard.borrow().next_due();
        let given_up = [pending, unheard].into_iter().flatten().min().map(|due| now.wall_at(due));
        let bound = self.bindings.borrow().next_due(now);
        [queued, evicted, given_up, bound].into_iter().flatten().min()
    }

    /// A copy of the fence clock, to read.
    pub fn fences(&self, now: impl FnOnce() -> Monotonic) -> FenceClock {
        let mut fences = self.fences.get();
        if fences.is_quarantined() {
            fences.pass(now());
        }
        fences
    }

    /// Lends the fence clock to `body`. The clock is copied and put back, so that a nested call cannot borrow it twice.
    pub fn with_fences<T>(
        &self,
        now: impl FnOnce() -> Monotonic,
        body: impl FnOnce(&mut FenceClock) -> T,
    ) -> T {
        let mut fences = self.fences(now);
        let outcome = body(&mut fences);
        self.fences.set(fences);
        outcome
    }

    /// Lends the queues to `body`. `body` must not call the server, which could call back and borrow them again.
    pub fn with_queues<T>(&self, body: impl FnOnce(&mut Queues<C>) -> T) -> T {
        body(&mut self.queues.borrow_mut())
    }

    /// Lends the observer to `body`. `body` must not call the server.
    pub fn with_observer<T>(&self, body: impl FnOnce(&mut Observer) -> T) -> T {
        body(&mut self.observer.borrow_mut())
    }

    /// Lends `body` what an operator is shown. `None` if a part is borrowed already, as may happen while the server
    /// writes a crash report.
    pub fn peek<T>(&self, body: impl FnOnce(&Queues<C>, &Observer, &Evicted) -> T) -> Option<T> {
        let queues = self.queues.try_borrow().ok()?;
        let observer = self.observer.try_borrow().ok()?;
        let evicted = self.evicted.try_borrow().ok()?;
        Some(body(&queues, &observer, &evicted))
    }

    /// How many holds are bound to connections, to show. 0 if the bindings are borrowed already.
    pub fn bindings(&self) -> usize {
        self.bindings.try_borrow().map_or(0, |bindings| bindings.len())
    }

    fn waiters_for(&self, name: Name<'_>) -> usize {
        self.queues.borrow().waiters_for(name)
    }

    /// Whether to log something that a client can cause. The rate is limited, so that clients cannot fill the log.
    fn may_complain(&self, now: Monotonic) -> bool {
        let last = self.complained.get();
        let due = last.is_none_or(|last| now.millis_since(last) >= MILLIS_BETWEEN_COMPLAINTS);
        if due {
            self.complained.set(Some(now));
        }
        due
    }
}

/// The engine, during one call of a host.
pub struct Engine<'e, H: Host> {
    memory: &'e Memory<H::Client>,
    host: &'e H,
}

// Derived, both would ask the same of the host.
impl<H: Host> Clone for Engine<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Engine<'_, H> {}

impl<H: Host> Deref for Engine<'_, H> {
    type Target = Memory<H::Client>;

    fn deref(&self) -> &Self::Target {
        self.memory
    }
}

/// A grant to a waiter that may not know of it yet.
#[derive(Clone, Debug)]
pub struct WaiterGrant {
    pub names: KeptNames,
    pub owner: KeptOwner,
    pub fence: Fence,
}
