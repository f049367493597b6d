//! One attempt to get a lock, by one owner.
//!
//! If the caller gives up, also by dropping the future, the attempt releases whatever the server granted or may still grant.
//! It leaves no place in a queue and no lock behind.

use crate::asked::{Asked, Granted, Wanted, Won};
use crate::home::Home;
use crate::ledger::Entry;
use crate::question::Claim;
use crate::remote::{Remote, Trail};
use std::sync::Arc;

pub(crate) struct Attempt {
    pub(crate) home: Arc<Home>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) name: Arc<str>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) wanted: Wanted,
    pub(crate) trail: Arc<Trail>,
    /// The server may hold the lock for this owner, or a place in its queue.
    pub(crate) may_hold: bool,
    /// A connection was closed while a `BLOCK` request waited on it.
    pub(crate) was_cut: bool,
    entry: Option<Entry>,
}

impl Attempt {
    pub(crate) fn new(home: &Arc<Home>, remote: &Arc<Remote>, asked: &Asked) -> Self {
        Self {
            home: Arc::clone(home),
            remote: Arc::clone(remote),
            name: Arc::clone(&asked.name),
            claim: Arc::clone(&asked.claim),
            wanted: asked.wanted,
            trail: Arc::default(),
            may_hold: false,
            was_cut: false,
            entry: Some(home.ledger.begin(&asked.name)),
        }
    }

    /// From here on, the caller releases the grant.
    pub(crate) fn succeeded(mut self, granted: Granted) -> Won {
        self.may_hold = false;
        ((granted, Arc::clone(&self.claim), Arc::clone(&self.trail)), self.entry.take())
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let (true, Some(entry)) = (self.may_hold, self.entry.take()) else { return };
        self.trail.end();
        let (home, remote) = (Arc::clone(&self.home), Arc::clone(&self.remote));
        let (claim, trail, was_cut) =
            (Arc::clone(&self.claim), Arc::clone(&self.trail), self.was_cut);
        let giving_back = self.wanted.confirm.then(|| home.gives_back(&claim));
        self.home.spawn(async move {
            remote.take_back(&home, &claim, &trail, was_cut, entry).await;
            drop(giving_back);
        });
    }
}
