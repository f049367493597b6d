//! The model, continued: turns, how a lock is settled, and evictions.

use super::content::{Content, Held, admit, has_expired, has_run_out, own};
use super::model::{Asked, Client, LockName, Model, Reply, State, Waiting};
use crate::lock::WaitKind;

/// The client of a ticket is told only of a grant.
fn by_ticket((client, reply): (Client, Reply)) -> Option<(Client, Reply)> {
    match reply {
        Reply::Fence(fence) => Some((client, Reply::Published(fence))),
        _ => None,
    }
}

impl Model {
    /// Whether settling this lock now would write anything.
    pub(super) fn has_work(&self, name: LockName, now: u64) -> bool {
        self.anyone_waits_for(name)
            && (self.evicted.contains_key(&name)
                || self.is_free(name, now)
                || self.turn(name, now).is_some())
    }

    /// The waiter that is served next: the first waiter, if it is admitted or holds the lock itself, or, at any place,
    /// a waiter that holds the lock exclusively.
    pub(super) fn turn(&self, name: LockName, now: u64) -> Option<Waiting> {
        let live = match self.content(name) {
            Some(Content::OtherType) => return None,
            Some(Content::Lock(lock)) => lock.live(now),
            None => Vec::new(),
        };
        let first = self.first_for(name)?;
        if own(&live, first.owner).is_some() {
            return Some(first);
        }
        if let [held @ Held { own_end: None, .. }] = *live
            && let Some(itself) = self.waits(name, held.holder)
        {
            return Some(itself);
        }
        (admit(&live, first.share) && !self.is_quarantined()).then_some(first)
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.elapsed < self.quarantine_ends
    }

    /// Whether the key holds no lock, whatever was evicted, and nothing may be granted for a while.
    pub(super) fn rests(&self, name: LockName, now: u64) -> bool {
        self.is_quarantined() && self.keys.get(&name).is_none_or(|key| has_run_out(key, now))
    }

    /// The key is looked at, and found to hold no lock.
    pub(super) fn sees_nothing(&mut self, name: LockName, now: u64) {
        self.sees(name, now);
        self.seen.remove(&name);
    }

    /// The key is looked at, and nothing is done.
    pub(super) fn sees(&mut self, name: LockName, now: u64) {
        let _state = self.state(self.keys.get(&name).cloned(), now);
    }

    /// A lock that may have been evicted is looked at, and nothing is done.
    pub(super) fn peeks(&mut self, name: LockName, now: u64) {
        let _state = self.state(self.content(name), now);
    }

    /// Gives the lock to the next waiters, until nobody is served, nobody waits, or `at_most` waiters have left the
    /// queue.
    pub(super) fn settle(&mut self, name: LockName, at_most: usize, now: u64) {
        for _ in 0..at_most {
            if !self.anyone_waits_for(name) {
                return;
            }
            let State::Holds(live) = self.look(name, now) else {
                self.seen.remove(&name);
                return;
            };
            let Some(next) = self.turn(name, now) else {
                match self.keys.get(&name) {
                    Some(content) if !live.is_empty() => {
                        self.seen.insert(name, content.clone());
                    }
                    _ => {
                        self.seen.remove(&name);
                    }
                }
                return;
            };
            self.seen.remove(&name);
            self.leave(next.client);
            let Waiting { client, owner, ttl, share, kind, gives_up, bind, .. } = next;
            let (answered, last_fence) = (self.answers.len(), self.last_fence);
            if gives_up.is_some_and(|end| end <= self.elapsed) && own(&live, owner).is_none() {
                self.answer(client, Reply::Nil);
            } else {
                self.serve(client, name, Asked { owner, ttl, share, bind }, now);
            }
            if kind == WaitKind::Ticket {
                let is_granted = |told: &(_, Reply)| matches!(told.1, Reply::Fence(_));
                if let Some((connection, _)) = bind
                    && self.ended.contains_key(&connection)
                    && self.answers.last().is_some_and(is_granted)
                {
                    // The grace counts from the grant.
                    self.ended.insert(connection, self.elapsed);
                }
                if let Some(&(_, Reply::Fence(fence))) = self.answers.get(answered)
                    && fence == self.last_fence
                    && fence > last_fence
                {
                    self.announce(&next, fence, now);
                }
                let told = self.answers.split_off(answered);
                self.answers.extend(told.into_iter().filter_map(by_ticket));
            }
        }
        // More waiters may be admitted, after others have had their turn.
        if self.anyone_waits_for(name)
            && let Some(content @ Content::Lock(_)) = self.keys.get(&name)
        {
            self.seen.insert(name, content.clone());
        }
    }

    /// The server evicts a key. If the key held this lock, and the lease lasts, the lock is written again later.
    pub(super) fn evict(&mut self, name: LockName, lock: Option<Content>, now: u64) {
        self.keys.remove(&name);
        self.evicted.remove(&name);
        if let Some(lock @ Content::Lock(_)) = lock
            && !has_expired(&lock, now)
        {
            self.evicted.insert(name, lock);
        }
    }

    /// Writes an evicted lock again, unless its key holds something else now, or its lease is over.
    pub(super) fn put_back(&mut self, name: LockName, now: u64) {
        if let Some(lock) = self.evicted.remove(&name)
            && !self.keys.contains_key(&name)
            && !has_expired(&lock, now)
        {
            self.keys.insert(name, lock);
        }
    }

    /// The last known value of a lock with waiters.
    pub(super) fn seen(&self, name: LockName) -> Option<Content> {
        self.seen.get(&name).cloned()
    }

    pub(super) fn evicted(&self, name: LockName) -> Option<Content> {
        self.evicted.get(&name).cloned()
    }

    pub(super) fn evictions(&self) -> usize {
        self.evicted.len()
    }

    /// Forgets evictions that will not be undone: all, those of a database, or of one lock.
    pub(super) fn forget_evictions(&mut self, is_gone: impl Fn(LockName) -> bool) {
        self.evicted.retain(|&name, _| !is_gone(name));
    }

    pub(super) fn swap_evictions(&mut self, one: i32, other: i32) {
        let moved = std::mem::take(&mut self.evicted).into_iter().map(|((db, key), lock)| {
            let db = match db {
                db if db == one => other,
                db if db == other => one,
                db => db,
            };
            ((db, key), lock)
        });
        self.evicted = moved.collect();
    }
}
