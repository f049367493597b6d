//! What really happened to the locks, and whether it was allowed: L2 and L5, each checked in the one place where it
//! could be broken. L1 and L3 need no history: [`host`](super::host) checks them by what the key holds.
//!
//! Neither the queues nor the model are asked: the history records what the engine did to the keys and what clients
//! were told.

use super::content::{Content, live_in};
use super::keyspace::Keyspace;
use super::names::LockName;
use crate::lock::{Fence, Lost, LostBy, Moment};
use crate::observe::Event;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct History {
    /// The largest fence that any client was told of, per lock.
    told: BTreeMap<LockName, u64>,
    /// Grants whose clients have left before they heard of them.
    unheard: BTreeMap<LockName, BTreeSet<u64>>,
    /// The fences of all such grants.
    undone: BTreeSet<u64>,
    /// All fences that a client was told of or has shown, for any lock.
    known: BTreeSet<u64>,
    /// The fences of each lock's holds that ended as they should, since the lock was last held by nobody.
    released: BTreeMap<LockName, BTreeSet<u64>>,
    /// The fences that were raised in that time, and what to.
    raised: BTreeMap<LockName, BTreeMap<u64, u64>>,
    /// The locks that have changed hands, and no event says so yet.
    unpublished: Vec<LockName>,
    /// The fences of holds that a grant at their owner's request has replaced, until that is published.
    replaced: Vec<u64>,
    /// The lock whose grant was published last, until a key is opened again.
    published: Option<LockName>,
}

impl History {
    /// A new grant. `former` is the owner's hold that it replaces, at the owner's own request.
    pub(super) fn granted(&mut self, name: LockName, fence: u64, former: Option<u64>) {
        let told = self.told.get(&name).copied().unwrap_or(0);
        assert!(fence > told, "L2: {name:?}: fence {fence} after {told}");
        self.unpublished.push(name);
        self.replaced.extend(former);
    }

    /// The key holds something else now, by whatever means.
    pub(super) fn wrote(&mut self, name: LockName) {
        self.unheard.remove(&name);
        self.released.remove(&name);
        self.raised.remove(&name);
    }

    /// Released by its owner, or ended with its connection.
    pub(super) fn released(&mut self, name: LockName, fence: u64) {
        self.released.entry(name).or_default().insert(fence);
    }

    /// Given a larger fence at its owner's request.
    pub(super) fn raised(&mut self, name: LockName, former: u64, fence: u64) {
        self.raised.entry(name).or_default().insert(former, fence);
        self.known.extend([former, fence]);
    }

    /// The module reports that this hold ended, but not by a release or a raised fence.
    pub(super) fn lost(&self, name: LockName, lost: &Lost, keys: &Keyspace, now: Moment) {
        let is_late = self.published == Some(name);
        assert!(!is_late, "{name:?}: {lost:?} is published after the grant that followed");
        // Foreign holds have no fence that would identify them.
        if let Some(fence) = lost.fence.map(Fence::number) {
            let was_released = self.released.get(&name).is_some_and(|all| all.contains(&fence));
            assert!(!was_released, "{name:?} was released, and not {lost:?}");
            let raised = self.raised.get(&name).and_then(|all| all.get(&fence));
            let is_there = raised.is_some_and(|raised| fences_in(keys, name).contains(raised));
            assert!(!is_there, "{name:?} was raised, and not {lost:?}");
        }
        let has_run_out = lost.deadline.is_some_and(|deadline| deadline.has_passed(now));
        let by_itself = lost.by == LostBy::RunningOut;
        assert!(by_itself || !has_run_out, "{name:?} ran out, and was not {lost:?}");
    }

    /// Given back, because the grant's client never heard of it.
    pub(super) fn given_back(&mut self, name: LockName, fence: u64) {
        assert!(
            !self.known.contains(&fence),
            "L1: {name:?} was given back, but somebody counts on {fence}"
        );
        assert!(self.undone.contains(&fence), "L1: {name:?}: {fence} was given back");
        if let Some(unheard) = self.unheard.get_mut(&name) {
            unheard.remove(&fence);
        }
    }

    /// The client of this grant left before it heard of the grant.
    pub(super) fn left_unheard(&mut self, name: LockName, fence: u64) {
        self.unheard.entry(name).or_default().insert(fence);
        self.may_be_given_back(fence);
    }

    /// Nobody has heard of this grant, and it need not be kept for its owner any more.
    pub(super) fn may_be_given_back(&mut self, fence: u64) {
        self.undone.insert(fence);
    }

    /// Unheard grants of these locks may stay until their leases end.
    pub(super) fn may_stay_unheard(&mut self, may_stay: impl Fn(LockName) -> bool) {
        self.unheard.retain(|name, _| !may_stay(*name));
    }

    /// No lock may stay with an owner that does not know of its grant.
    pub(super) fn assert_none_is_unheard(&mut self, keys: &Keyspace, now: Moment) {
        self.forget_run_out(keys, now);
        for (&name, fences) in &self.unheard {
            let stays = fences.iter().find(|fence| !self.known.contains(fence));
            assert!(
                stays.is_none(),
                "L5: {name:?} stays with an owner that never heard of it: {stays:?}"
            );
        }
    }

    /// A hold that has run out is in force again if the clock is set back, and then it stays.
    pub(super) fn forget_run_out(&mut self, keys: &Keyspace, now: Moment) {
        for (&name, fences) in &mut self.unheard {
            let live = live_in(Content::of(keys.stored(name)).as_ref(), now.micros());
            let live = live.unwrap_or_default();
            fences.retain(|fence| live.iter().any(|held| held.fence == *fence));
        }
    }

    pub(super) fn published(&mut self, name: LockName, event: Event) {
        if let Event::Acquired | Event::HandedOff = event {
            self.published = Some(name);
        }
        if event != Event::Lost {
            self.unpublished.retain(|other| *other != name);
            // Whoever is given more knows of its other locks by now.
            self.known.extend(self.replaced.drain(..));
        }
    }

    pub(super) fn changed_hands(&mut self, name: LockName) {
        self.unpublished.push(name);
    }

    /// The rest of the grant was refused, so nobody is told of these locks.
    pub(super) fn is_refused(&mut self) {
        self.unpublished.clear();
        self.replaced.clear();
    }

    /// A key is opened, of which something else may be told next. `half` has not been written yet.
    pub(super) fn opened(&mut self, half: &[LockName]) {
        let is_told = self.unpublished.is_empty() || !half.is_empty();
        assert!(is_told, "nothing was published about {:?}", self.unpublished);
        self.published = None;
    }

    pub(super) fn known(&mut self, fence: u64) {
        self.known.insert(fence);
    }

    /// A client was told that it holds the lock, by this fence.
    pub(super) fn told(&mut self, name: LockName, fence: u64, is_learned: bool) {
        self.known.insert(fence);
        if is_learned {
            let told = self.told.entry(name).or_default();
            *told = fence.max(*told);
        }
    }
}

pub(super) fn fences_in(keys: &Keyspace, name: LockName) -> Vec<u64> {
    match Content::of(keys.stored(name)) {
        Some(Content::Lock(lock)) => lock.holds.iter().map(|held| held.fence).collect(),
        _ => Vec::new(),
    }
}
