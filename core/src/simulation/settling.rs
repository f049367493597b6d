//! The model, continued: turns, what the engine sees of a lock, and evictions.

use super::content::{Content, Held, Lock, admit, has_expired, has_run_out, live_in, others, own};
use super::model::{Model, Reply, Verdict, Waiting};
use super::names::LockName;
use crate::lock::WaitKind;

impl Model {
    /// Whether settling this lock now would write anything.
    pub(super) fn has_work(&self, name: LockName, now: u64) -> bool {
        self.anyone_waits_for(name)
            && (self.evicted.contains_key(&name)
                || self.is_free(name, now)
                || self.turn(name, now).is_some())
    }

    /// The waiter that is served next: the first waiter, if it is admitted or holds the lock itself, or, at any place,
    /// a waiter that holds the lock exclusively. A waiter for several locks is first in all their queues and admitted
    /// to all of them; what it holds gives it no turn.
    pub(super) fn turn(&self, name: LockName, now: u64) -> Option<Waiting> {
        let live = self.live(name, now)?;
        let first = self.first_for(name)?;
        if first.asked.names.is_one() && own(&live, first.asked.owner).is_some() {
            return Some(first);
        }
        if let [held @ Held { own_end: None, .. }] = *live
            && let Some(itself) = self.waits(name, held.holder)
            && itself.asked.names.is_one()
        {
            return Some(itself);
        }
        (self.is_admitted_to_all(&first, now) && !self.is_quarantined()).then_some(first)
    }

    /// The holds in force, also of an evicted lock. `None` if the key is no lock.
    pub(super) fn live(&self, name: LockName, now: u64) -> Option<Vec<Held>> {
        live_in(self.content(name).as_ref(), now)
    }

    fn is_admitted_to_all(&self, waiting: &Waiting, now: u64) -> bool {
        let asked = &waiting.asked;
        let is_admitted = |name: &LockName| {
            let live = self.live(*name, now);
            let is_first =
                self.first_for(*name).is_some_and(|first| first.client == waiting.client);
            is_first && live.is_some_and(|live| admit(&others(&live, asked.owner), asked.share))
        };
        asked.names.iter().all(is_admitted)
    }

    pub(super) fn has_turn(&self, waiting: &Waiting, now: u64) -> bool {
        self.turn(waiting.asked.names[0], now).is_some_and(|next| next.client == waiting.client)
    }

    /// Whether the key holds no lock, whatever was evicted.
    pub(super) fn is_free_now(&self, name: LockName, now: u64) -> bool {
        self.keys.get(&name).is_none_or(|key| has_run_out(key, now))
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.elapsed < self.quarantine_ends
    }

    /// The lock has been settled as far as possible: the engine has seen what its key holds.
    pub(super) fn settled(&mut self, name: LockName, now: u64) {
        if !self.waiters_for(name).any(|waiting| !waiting.asked.names.is_one()) {
            self.seen_by_several.remove(&name);
        }
        let is_turn = self.turn(name, now).is_some();
        match self.keys.get(&name) {
            // More waiters may be admitted, after others have had their turn.
            Some(content @ Content::Lock(lock))
                if self.anyone_waits_for(name) && (is_turn || !lock.live(now).is_empty()) =>
            {
                self.seen.insert(name, content.clone());
            }
            _ => {
                self.seen.remove(&name);
            }
        }
    }

    /// It is this waiter's turn: what it is told.
    pub(super) fn serve_waiter(&mut self, waiting: &Waiting, now: u64) -> Verdict {
        assert!(self.has_turn(waiting, now), "L1 or L4: it is not the turn of {waiting:?}");
        let Waiting { client, asked, kind, gives_up, .. } = *waiting;
        let live = self.look_at_all(&asked.names, now).expect("it has its turn");
        let (answered, last_fence) = (self.answers.len(), self.last_fence);
        self.leave(client);
        let owns_any = live.iter().any(|live| own(live, asked.owner).is_some());
        let is_late = gives_up.is_some_and(|end| end <= self.elapsed) && !owns_any;
        let verdict = if is_late { Verdict::Busy } else { self.verdict(&asked, &live, |_| true) };
        for name in asked.names.iter() {
            self.seen.remove(name);
        }
        self.serve(client, asked, verdict, now);
        if kind == WaitKind::Ticket {
            let told = self.answers.split_off(answered);
            let granted = told.into_iter().filter_map(|(client, reply)| match reply {
                Reply::Fence(fence) => Some((client, fence)),
                _ => None,
            });
            // The client of a ticket is told only of a grant.
            for (client, fence) in granted {
                if let Some((connection, _)) = asked.bind
                    && self.ended.contains_key(&connection)
                {
                    // The grace counts from the grant.
                    self.ended.insert(connection, self.elapsed);
                }
                if fence > last_fence && fence == self.last_fence {
                    self.announce(waiting, fence, now);
                }
                self.answers.push((client, Reply::Published(fence)));
            }
        }
        verdict
    }

    /// The engine has written the value without some holds that had run out, or with the ends that the key's expiry
    /// gives the others.
    pub(super) fn forgets_run_out(
        &mut self,
        name: LockName,
        before: &Lock,
        after: &Lock,
        now: u64,
    ) {
        for content in [self.keys.get_mut(&name), self.seen.get_mut(&name)].into_iter().flatten() {
            let Content::Lock(lock) = content else { continue };
            for held in &before.holds {
                match after.known_as(held.identity()) {
                    None if !before.lasts(held, now) => lock.holds.retain(|other| other != held),
                    Some(kept) if held.own_end.is_some() && kept.own_end == before.end(held) => {
                        let same = lock.holds.iter_mut().filter(|other| *other == held);
                        same.for_each(|other| other.own_end = kept.own_end);
                    }
                    _ => {}
                }
            }
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

    /// The last known value of a lock with waiters. The outer `None` means that nobody can say what was seen last.
    pub(super) fn seen(&self, name: LockName) -> Option<Option<Content>> {
        let is_known = !self.seen_by_several.contains(&name);
        is_known.then(|| self.seen.get(&name).cloned())
    }
}
