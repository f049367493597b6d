//! Holders and waiters, the slow and obvious way: a map, a list and ifs.
//!
//! The engine says which waiter is granted which locks, and the model whether this is allowed: at that moment the
//! waiter must be first in all of its queues, and admitted to all of its locks. [`super`] checks that no such waiter
//! is left over.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::plan::Plan;
use crate::lock::WaitKind;
use crate::simulation::alike::MICROS_PER_MILLI;
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Client = u32;
pub(super) type Key = &'static str;

/// How many owners may hold a lock, whatever their shares.
pub(super) const MOST_HOLDERS: usize = 4;

/// A foreign hold has fence 0. The end is in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    pub(super) owner: String,
    pub(super) fence: u64,
    pub(super) end: Option<u64>,
    pub(super) share: u32,
}

/// What a key holds: holds, including those that have run out, or something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Holds(Vec<Held>),
    OtherType,
}

/// A request for locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) keys: Vec<Key>,
    pub(super) owner: &'static str,
    pub(super) ttl: u64,
    pub(super) share: u32,
    /// The connection that the hold is bound to, and the grace.
    pub(super) bind: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) client: Client,
    pub(super) asked: Asked,
    pub(super) kind: WaitKind,
    /// In microseconds.
    pub(super) gives_up: Option<u64>,
}

/// A hold that ends with a connection.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) key: Key,
    pub(super) owner: &'static str,
    pub(super) fence: u64,
    pub(super) connection: u64,
    pub(super) grace: u64,
}

/// A hold that must be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Undone {
    pub(super) key: Key,
    pub(super) fence: u64,
    /// If another server decides, the hold may stay until its lease ends. The engine looks for it once.
    pub(super) is_certain: bool,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    Again(u64),
    /// Cannot be granted now.
    Busy,
    /// Cannot be granted, and the owner cannot wait, because it holds some of the locks.
    Kept,
    Released(Vec<Key>),
    Extended,
    NotExtended,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<Key, Content>,
    /// In order of arrival.
    pub(super) waiters: Vec<Waiting>,
    pub(super) bound: Vec<Bound>,
    /// The connections that have ended, and when.
    pub(super) ended: BTreeMap<u64, u64>,
    pub(super) undone: Vec<Undone>,
    /// The fences that somebody relies on.
    pub(super) heard: BTreeSet<u64>,
    /// The owner and the locks of every grant, by fence.
    pub(super) grants: BTreeMap<u64, (&'static str, Vec<Key>)>,
    /// Clients whose wait was ended by a newer request of the same owner, until they are told.
    pub(super) replaced: Vec<Client>,
    pub(super) plan: Option<Plan>,
    pub(super) last_fence: u64,
    pub(super) elapsed: u64,
    pub(super) quarantine_ends: u64,
    /// Whether the engine can write nothing on its own account.
    pub(super) is_held_up: bool,
}

impl Held {
    pub(super) fn lasts(&self, now: u64) -> bool {
        self.end.is_none_or(|end| now / MICROS_PER_MILLI <= end)
    }
}

impl Model {
    /// The holds in force. `None` if the key is no lock.
    pub(super) fn live(&self, key: Key, now: u64) -> Option<Vec<Held>> {
        match self.keys.get(key) {
            None => Some(Vec::new()),
            Some(Content::OtherType) => None,
            Some(Content::Holds(holds)) => {
                Some(holds.iter().filter(|held| held.lasts(now)).cloned().collect())
            }
        }
    }

    pub(super) fn own(&self, key: Key, owner: &str, now: u64) -> Option<Held> {
        self.live(key, now)?.into_iter().find(|held| held.owner == owner)
    }

    /// Whether this owner may hold the lock beside its holders.
    fn admits(&self, key: Key, owner: &str, share: u32, now: u64) -> bool {
        let Some(live) = self.live(key, now) else { return false };
        let others: Vec<_> = live.iter().filter(|held| held.owner != owner).collect();
        let most = |share: u32| {
            if share == 0 { usize::MAX } else { usize::try_from(share).expect("a small number") }
        };
        let least = others.iter().map(|held| most(held.share)).min().unwrap_or(usize::MAX);
        others.len() < least.min(most(share)).min(MOST_HOLDERS)
    }

    pub(super) fn waiters_for(&self, key: Key) -> impl Iterator<Item = &Waiting> {
        self.waiters.iter().filter(move |waiting| waiting.asked.keys.contains(&key))
    }

    fn is_quarantined(&self) -> bool {
        self.elapsed < self.quarantine_ends
    }

    /// Whether the waiter at this place can have all its locks.
    pub(super) fn has_turn(&self, at: usize, now: u64) -> bool {
        let Asked { keys, owner, share, .. } = &self.waiters[at].asked;
        let is_ahead = |other: &Waiting| other.asked.keys.iter().any(|key| keys.contains(key));
        !self.is_quarantined()
            && !self.waiters[..at].iter().any(is_ahead)
            && keys.iter().all(|key| self.admits(key, owner, *share, now))
    }

    /// The fence by which the owner holds all of these, if it is a single fence.
    pub(super) fn common_fence(&self, keys: &[Key], owner: &str, now: u64) -> Option<u64> {
        let fence_of = |key: &Key| self.own(key, owner, now).map(|own| own.fence);
        let fence = fence_of(&keys[0])?;
        keys.iter().all(|key| fence_of(key) == Some(fence)).then_some(fence)
    }

    /// The outcome of a request to acquire. None of the keys is of another type.
    pub(super) fn acquire(&self, asked: &Asked, now: u64) -> Verdict {
        let Asked { keys, owner, share, .. } = asked;
        let tolerance = |share: u32| if share == 0 { u32::MAX } else { share };
        let is_no_looser = |own: &Held| tolerance(own.share) <= tolerance(*share);
        let owns: Vec<_> = keys.iter().map(|key| self.own(key, owner, now)).collect();
        let is_one = keys.len() == 1;
        let is_enough = |own: &Held| is_no_looser(own) && (own.fence > 0 || is_one);
        if let Some(fence) = self.common_fence(keys, owner, now)
            && owns.iter().flatten().all(|own| is_enough(own) || (is_one && own.fence == 0))
        {
            return Verdict::Again(fence);
        }
        let can_be_had = keys.iter().zip(&owns).all(|(key, own)| {
            let is_its_turn = own.is_some() || self.waiters_for(key).next().is_none();
            let is_foreign = own.as_ref().is_some_and(|own| own.fence == 0);
            is_its_turn && !is_foreign && self.admits(key, owner, *share, now)
        });
        if can_be_had && !self.is_quarantined() {
            Verdict::Granted
        } else if owns.iter().any(Option::is_some) {
            Verdict::Kept
        } else {
            Verdict::Busy
        }
    }

    fn is_shown(&self, key: Key, owner: &str, fence: Option<u64>, now: u64) -> bool {
        let own = self.own(key, owner, now);
        own.is_some_and(|own| fence.is_none_or(|fence| fence == own.fence))
    }

    pub(super) fn release(
        &self,
        keys: &[Key],
        owner: &str,
        fence: Option<u64>,
        now: u64,
    ) -> Verdict {
        let is_shown = |key: &&Key| self.is_shown(key, owner, fence, now);
        Verdict::Released(keys.iter().filter(is_shown).copied().collect())
    }

    pub(super) fn extend(
        &self,
        keys: &[Key],
        owner: &str,
        fence: Option<u64>,
        now: u64,
    ) -> Verdict {
        let all = keys.iter().all(|key| self.is_shown(key, owner, fence, now));
        if all { Verdict::Extended } else { Verdict::NotExtended }
    }

    /// Somebody relies on this grant.
    pub(super) fn hear(&mut self, fence: u64) {
        self.heard.insert(fence);
        self.undone.retain(|undone| undone.fence != fence);
    }

    /// Nobody will ever hear of this grant.
    pub(super) fn unheard(&mut self, fence: u64) {
        if !self.heard.contains(&fence) {
            let keys = self.grants[&fence].1.clone();
            self.undo(&keys, fence);
        }
    }

    pub(super) fn undo(&mut self, keys: &[Key], fence: u64) {
        let undone = |&key: &Key| Undone { key, fence, is_certain: true };
        self.undone.extend(keys.iter().map(undone));
    }

    /// Replaces the hold's former binding. Foreign locks are never bound.
    pub(super) fn bind(
        &mut self,
        key: Key,
        owner: &'static str,
        fence: u64,
        bind: Option<(u64, u64)>,
    ) {
        let Some((connection, grace)) = bind.filter(|_| fence > 0) else { return };
        self.unbind(key, owner, fence);
        self.bound.push(Bound { key, owner, fence, connection, grace });
    }

    pub(super) fn unbind(&mut self, key: Key, owner: &str, fence: u64) {
        self.bound.retain(|bound| (bound.key, bound.owner, bound.fence) != (key, owner, fence));
    }

    fn formers(&self, asked: &Asked) -> Vec<usize> {
        let is_former = |other: &Asked| {
            other.owner == asked.owner && other.keys.iter().any(|key| asked.keys.contains(key))
        };
        let all = self.waiters.iter().enumerate();
        all.filter(|(_, waiting)| is_former(&waiting.asked)).map(|(at, _)| at).collect()
    }

    /// Waiters on connections and waiters with tickets have separate limits.
    pub(super) fn has_room(
        &self,
        asked: &Asked,
        kind: WaitKind,
        for_all: usize,
        per_lock: usize,
    ) -> bool {
        let is_kept = self.formers(asked).iter().any(|&at| {
            let former = &self.waiters[at];
            former.kind == kind && is_same_set(&former.asked.keys, &asked.keys)
        });
        let same_kind = |waiting: &&Waiting| waiting.kind == kind;
        let count = |waiting: &Waiting| waiting.asked.keys.len();
        let waiting: usize = self.waiters.iter().filter(same_kind).map(count).sum();
        let more = asked.keys.len();
        let has_lock_room = |key: &Key| self.waiters_for(key).filter(same_kind).count() < per_lock;
        is_kept || (waiting + more <= for_all && asked.keys.iter().all(has_lock_room))
    }

    /// An owner waits once for a lock.
    pub(super) fn join(&mut self, new: Waiting) {
        let formers = self.formers(&new.asked);
        let blocked = formers.iter().filter(|&&at| self.waiters[at].kind == WaitKind::Blocked);
        self.replaced.extend(blocked.map(|&at| self.waiters[at].client));
        if let [at] = formers[..]
            && is_same_set(&self.waiters[at].asked.keys, &new.asked.keys)
        {
            self.waiters[at] = new;
            return;
        }
        for at in formers.into_iter().rev() {
            self.waiters.remove(at);
        }
        self.waiters.push(new);
    }

    pub(super) fn leave(&mut self, client: Client) -> Option<Waiting> {
        let at = self.waiters.iter().position(|waiting| waiting.client == client)?;
        Some(self.waiters.remove(at))
    }

    pub(super) fn gives_up_tickets(&mut self, keys: &[Key], owner: &str) {
        self.waiters.retain(|Waiting { asked, kind, .. }| {
            let is_it = asked.owner == owner && asked.keys.iter().any(|key| keys.contains(key));
            *kind == WaitKind::Blocked || !is_it
        });
    }
}

pub(super) fn is_same_set(some: &[Key], others: &[Key]) -> bool {
    some.len() == others.len() && some.iter().all(|key| others.contains(key))
}
