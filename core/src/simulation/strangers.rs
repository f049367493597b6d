//! What others do to the keys of the virtual server, and what the server does to them by itself.

use super::content::Content;
use super::keyspace::{Kept, swap_entries};
use super::names::{KEYS, LockName, lock};
use super::world::{Role, Server, State};
use crate::lock::{Holds, Seen, Stored, Suspicion, learn_from};

impl Server {
    /// `SET`, with or without an expiry, of a foreign lock (fence 0) or of a value as the module writes it, or a write
    /// of another type. Without an expiry, the module is not told.
    pub(super) fn put(&self, name: LockName, content: Content) {
        self.remove_if_expired(name);
        let mut state = self.state.borrow_mut();
        if state.role == Role::Replica {
            self.follow(&mut state, &content);
        }
        state.model.keys.insert(name, content.clone());
        state.history.wrote(name);
        match content {
            Content::OtherType => {
                state.keys.kept.insert(name, Kept::OtherType);
                state.unheard(name);
            }
            Content::Lock(lock) => {
                state.keys.put(name, &lock.value(), lock.expiry);
                drop(state);
                self.touched(
                    name,
                    match lock.expiry {
                        Some(_) => Suspicion::Freed,
                        None => Suspicion::Rewritten,
                    },
                );
            }
        }
    }

    /// A replica reads the grants that it is sent, and must be above them when it becomes a primary.
    fn follow(&self, state: &mut State, content: &Content) {
        if let Content::Lock(lock) = content {
            let (value, now, monotonic) = (lock.value(), state.now(), state.monotonic());
            self.engine.with_fences(|| monotonic, |fences| learn_from(&value, now, fences));
            for fence in Holds::all(&value).filter_map(|hold| hold.fence) {
                state.model.observe(fence.number(), state.wall);
            }
        }
    }

    pub(super) fn delete(&self, name: LockName) {
        let mut state = self.state.borrow_mut();
        if state.keys.kept.remove(&name).is_some() {
            state.model.keys.remove(&name);
            drop(state);
            self.touched(name, Suspicion::Freed);
        }
    }

    /// `PEXPIREAT`, which deletes if the time is past, or `PERSIST` if there is no deadline.
    pub(super) fn expire_at(&self, name: LockName, until: Option<u64>) {
        self.remove_if_expired(name);
        if until.is_some_and(|until| until < self.state.borrow().wall_millis()) {
            return self.delete(name);
        }
        let mut state = self.state.borrow_mut();
        if let Some(Kept::Text { deadline, .. }) = state.keys.kept.get_mut(&name) {
            *deadline = until;
            if let Some(Content::Lock(lock)) = state.model.keys.get_mut(&name) {
                lock.expiry = until;
            }
            drop(state);
            self.touched(name, Suspicion::Freed);
        }
    }

    /// `RENAME`, or `COPY` with `REPLACE`.
    pub(super) fn duplicate(&self, from: LockName, to: LockName, keeps_the_source: bool) {
        self.remove_if_expired(from);
        self.remove_if_expired(to);
        let content = self.state.borrow().model.keys.get(&from).cloned();
        let Some(content) = content.filter(|_| from != to) else { return };
        if !keeps_the_source {
            self.delete(from);
        }
        self.put(to, content);
        self.touched(to, Suspicion::Freed);
    }

    pub(super) fn flush(&self, db: Option<i32>) {
        let state = &mut *self.state.borrow_mut();
        state.keys.kept.retain(|name, _| db.is_some_and(|db| db != name.0));
        state.model.keys.retain(|name, _| db.is_some_and(|db| db != name.0));
        state.model.evicted.retain(|name, _| db.is_some_and(|db| db != name.0));
        self.engine.flushed(db);
    }

    pub(super) fn swap(&self, one: i32, other: i32) {
        if one == other {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        for key in KEYS {
            let (one, other) = ((one, key), (other, key));
            swap_entries(&mut state.keys.kept, one, other);
            swap_entries(&mut state.model.keys, one, other);
            swap_entries(&mut state.model.evicted, one, other);
            // The other database may have a copy with the same fence that was not released.
            state.history.wrote(one);
            state.history.wrote(other);
        }
        state.model.swap_bound(one, other);
        self.engine.swapped(one, other);
    }

    pub(super) fn evict(&self, name: LockName) {
        let state = &mut *self.state.borrow_mut();
        let (place, now) = (lock(name), state.now());
        let Some(kept) = state.keys.kept.remove(&name) else { return };
        let is_contended = state.model.anyone_waits_for(name);
        assert_eq!(self.engine.is_contended(place), is_contended);
        let is_marked = self.engine.with_queues(|queues| queues.is_marked(place));
        let held = state.model.keys.get(&name).cloned();
        let (is_due, lock) = if state.tells_what_it_evicts {
            let is_a_lock = |content: &Content| match content {
                Content::Lock(lock) => lock.holds.iter().any(|held| held.fence > 0) || is_contended,
                Content::OtherType => false,
            };
            (self.engine.evicted(place, kept.stored(), now), held.clone().filter(is_a_lock))
        } else {
            let seen = self.engine.seen(place).flatten();
            let seen = seen.as_ref().map_or(Stored::Nothing, Seen::as_stored);
            let is_due = self.engine.evicted(place, seen, now);
            (is_due, state.model.seen(name).unwrap_or_else(|| Content::of(seen)))
        };
        let is_kept = self.is_kept(name);
        assert_eq!(is_due, is_kept || is_contended);
        let is_known = is_contended && !is_marked && !state.is_excused(name);
        let is_held = !state.model.holders(name, now.micros()).is_empty();
        assert!(is_kept || !is_held || !is_known, "{name:?} is forgotten: {held:?}");
        state.model.evict(name, lock.clone(), now.micros());
        assert_eq!(is_kept, state.model.evicted.contains_key(&name), "{name:?}: {lock:?}");
    }

    /// Whether the engine keeps what this key held when it was evicted.
    pub(super) fn is_kept(&self, name: LockName) -> bool {
        let is_kept = self.engine.peek(|_, _, evicted| evicted.get(lock(name)).is_some());
        is_kept.expect("nothing is lent out")
    }

    pub(super) fn remove_expired(&self) {
        let names: Vec<_> = self.state.borrow().keys.kept.keys().copied().collect();
        names.into_iter().for_each(|name| self.remove_if_expired(name));
    }
}
