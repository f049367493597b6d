//! One try to get a lock, which has an owner of its own.
//!
//! Whoever gives up half-way, also by dropping the future, gives back what the server may have granted or may still grant:
//! no place in the queue and no lock stays behind.

use crate::clock::Moment;
use crate::core::Core;
use crate::ledger::Entry;
use crate::question::Claim;
use crate::remote::Trail;
use std::sync::Arc;
use std::time::Duration;

/// What is asked for, apart from who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) ttl: Duration,
    /// None is without limit, and zero not at all.
    pub(crate) wait: Option<Duration>,
    /// Whether a grant is claimed before the work begins.
    pub(crate) confirm: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    /// Before the server was asked.
    pub(crate) asked: Moment,
    /// For how long from then.
    pub(crate) lasts: Duration,
    /// A message has told it, and the server does not know that somebody has heard it.
    pub(crate) is_unclaimed: bool,
}

pub(crate) struct Attempt {
    pub(crate) core: Arc<Core>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) wanted: Wanted,
    pub(crate) trail: Arc<Trail>,
    /// The server may have granted the lock, or may keep a place in its queue.
    pub(crate) may_hold: bool,
    /// A connection was closed while a request waited on it.
    pub(crate) was_cut: bool,
    pub(crate) name: Arc<str>,
    entry: Option<Entry>,
}

impl Attempt {
    pub(crate) fn new(core: &Arc<Core>, claim: Arc<Claim>, wanted: Wanted, name: &Arc<str>) -> Self {
        let entry = Some(core.ledger.begin(name));
        Self { core: Arc::clone(core), claim, wanted, trail: Arc::default(), may_hold: false, was_cut: false, name: Arc::clone(name), entry }
    }

    /// It was granted, and is given back by whoever has it now.
    pub(crate) fn succeeded(mut self) -> (Arc<Claim>, Arc<Trail>) {
        self.may_hold = false;
        (Arc::clone(&self.claim), Arc::clone(&self.trail))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let (true, Some(entry)) = (self.may_hold, self.entry.take()) else { return };
        let (core, claim) = (Arc::clone(&self.core), Arc::clone(&self.claim));
        let (trail, was_cut) = (Arc::clone(&self.trail), self.was_cut);
        self.core.spawn(async move { core.give_back(&claim, &trail, was_cut, entry).await });
    }
}
