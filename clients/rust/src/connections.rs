//! The connections to one server that are open, for each runtime its own.
//!
//! A connection is driven by a task on the runtime that opened it. A request of another runtime
//! would wait for as long as nobody drives that one.

use crate::home::Home;
use crate::link::Link;
use crate::poison::locked;
use crate::subscription::Subscription;
use futures_util::future::{BoxFuture, Shared};
use redis::RedisError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// How many connections are kept for the next ones who wait.
const MOST_IDLE: usize = 32;

/// How many connections to wait on are opened at a time. A server that has little room left is
/// found out before many of them are there.
const MOST_DIALING: usize = 8;

#[derive(Default)]
pub(crate) struct Connections {
    of: Mutex<HashMap<Home, OfOne>>,
}

/// Those of one runtime.
pub(crate) struct OfOne {
    /// For all requests.
    pub(crate) requests: Common<Link>,
    /// For being told of grants.
    pub(crate) grants: Common<Arc<Subscription>>,
    /// To wait on.
    idle: Vec<Link>,
    dialing: Arc<Semaphore>,
}

/// A connection that all share.
pub(crate) struct Common<T> {
    pub(crate) open: Option<T>,
    pub(crate) opening: Option<Opening<T>>,
    /// There was one before.
    pub(crate) was_open: bool,
}

/// The task that opens a connection that all share: whoever began that may be gone, or busy with
/// something else.
pub(crate) struct Opening<T> {
    pub(crate) opened: Shared<BoxFuture<'static, Result<T, RedisError>>>,
    pub(crate) task: AbortHandle,
}

impl<T> Default for Common<T> {
    fn default() -> Self {
        Self { open: None, opening: None, was_open: false }
    }
}

impl<T> Common<T> {
    fn is_opening(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| !opening.task.is_finished())
    }
}

impl Default for OfOne {
    fn default() -> Self {
        Self {
            requests: Common::default(),
            grants: Common::default(),
            idle: Vec::new(),
            dialing: Arc::new(Semaphore::new(MOST_DIALING)),
        }
    }
}

impl Connections {
    /// Looks at those of this runtime, or changes them.
    pub(crate) fn with<T>(&self, home: Home, look: impl FnOnce(&mut OfOne) -> T) -> T {
        let mut of = locked(&self.of);
        if !of.contains_key(&home) {
            // Runtimes that have ended have left nothing that works.
            of.retain(|_, theirs| theirs.is_alive());
        }
        look(of.entry(home).or_default())
    }

    /// One to wait on.
    pub(crate) fn take_idle(&self, home: Home) -> Option<Link> {
        self.with(home, |ours| ours.idle.pop())
    }

    pub(crate) fn keep_idle(&self, link: Link) {
        self.with(link.home, |ours| {
            if ours.idle.len() < MOST_IDLE {
                ours.idle.push(link);
            }
        });
    }

    /// Held by whoever opens a connection to wait on.
    pub(crate) fn dialing(&self, home: Home) -> Arc<Semaphore> {
        self.with(home, |ours| Arc::clone(&ours.dialing))
    }

    /// This connection has failed: the next one who asks opens another.
    pub(crate) fn forget(&self, link: &Link) {
        link.give_up();
        self.with(link.home, |ours| {
            ours.requests.open.take_if(|known| known.id == link.id);
            // Those that were opened before it are no better.
            ours.idle.clear();
        });
    }

    /// Ends all of them.
    pub(crate) fn hang_up(&self) {
        locked(&self.of).clear();
    }

    /// The same of a subscription.
    pub(crate) fn forget_subscription(&self, subscription: &Arc<Subscription>) {
        self.with(subscription.home, |ours| {
            ours.grants.open.take_if(|known| Arc::ptr_eq(known, subscription))
        });
    }
}

impl OfOne {
    fn is_alive(&self) -> bool {
        let opens = self.requests.is_opening() || self.grants.is_opening();
        opens || self.requests.open.iter().chain(&self.idle).any(Link::is_driven)
    }
}
