//! The locks of one server, the slow and obvious way: a map, a list and ifs.
//!
//! To be read, not to be fast. Nothing is indexed, nothing is remembered that could be looked for, and
//! none of the code that it is compared with is used: numbers are plain numbers, and a lock is what the
//! reader would write on paper. *When* a lock is settled is the server's business and told from
//! outside (that it happens in time is for [`super`] to see to); *what* comes of it is said
//! here.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use std::collections::BTreeMap;

/// The number of a connection.
pub(super) type Client = u32;

/// A database and a key in it.
pub(super) type LockName = (i32, &'static str);

const MICROS_PER_MILLI: u64 = 1_000;
const LAST_FENCE: u64 = 9_007_199_254_740_991;
const HORIZON_MICROS: u64 = 24 * 60 * 60 * 1_000 * MICROS_PER_MILLI;

/// What a key holds. A foreign lock has fence 0; a deadline is in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Lock { holder: &'static str, fence: u64, deadline: Option<u64> },
    OtherType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Fence(u64),
    Nil,
    Done,
    NotHolder,
    Replaced,
    QueueFull,
    NoFenceLeft,
    WrongType,
    TooFarAhead,
    SentAway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) client: Client,
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) ttl: u64,
    /// In microseconds, as is what follows.
    pub(super) since: u64,
    pub(super) gives_up: Option<u64>,
}

/// A lock as it is at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Held { holder: &'static str, fence: u64, deadline: Option<u64> },
    NotALock,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<LockName, Content>,
    /// In the order in which they came.
    pub(super) waiters: Vec<Waiting>,
    /// What was sent to whom.
    pub(super) answers: Vec<(Client, Reply)>,
    pub(super) most_waiters: usize,
    pub(super) most_waiters_per_lock: usize,
    /// How much time has passed, whatever the wall clock says: patience goes by it.
    pub(super) elapsed: u64,
    /// Until so much time has passed nothing is granted.
    pub(super) quarantine_ends: u64,
    last_fence: u64,
    /// Locks that somebody waits for, as they were when last settled and found held.
    seen: BTreeMap<LockName, Content>,
    /// Locks that the server evicted while they were held, until they are put back.
    evicted: BTreeMap<LockName, Content>,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            waiters: Vec::new(),
            answers: Vec::new(),
            most_waiters: usize::MAX,
            most_waiters_per_lock: usize::MAX,
            elapsed: 0,
            quarantine_ends: 0,
            last_fence: 0,
            seen: BTreeMap::new(),
            evicted: BTreeMap::new(),
        }
    }

    /// `block` is how many milliseconds the client is ready to wait, if it is; 0 stands for ever.
    pub(super) fn acquire(
        &mut self,
        client: Client,
        name: LockName,
        owner: &'static str,
        ttl: u64,
        block: Option<u64>,
        now: u64,
    ) {
        match self.look(name, now) {
            State::NotALock => self.answer(client, Reply::WrongType),
            State::Held { holder, fence, .. } if holder == owner => {
                self.lengthen(name, ttl, now);
                self.answer(client, Reply::Fence(fence));
            }
            State::Free if !self.anyone_waits_for(name) && !self.is_quarantined() => {
                self.grant(client, name, owner, ttl, now);
            }
            State::Free | State::Held { .. } => match block {
                None => self.answer(client, Reply::Nil),
                Some(millis) => {
                    let since = self.elapsed;
                    let gives_up = if millis == 0 { None } else { Some(in_millis(since, millis)) };
                    self.wait(Waiting { client, name, owner, ttl, since, gives_up });
                }
            },
        }
    }

    fn wait(&mut self, new: Waiting) {
        for old in &mut self.waiters {
            if old.name == new.name && old.owner == new.owner {
                self.answers.push((old.client, Reply::Replaced));
                *old = Waiting { since: old.since, ..new };
                return;
            }
        }
        if self.waiters.len() >= self.most_waiters
            || self.waiters_for(new.name).count() >= self.most_waiters_per_lock
        {
            self.answer(new.client, Reply::QueueFull);
        } else {
            self.waiters.push(new);
        }
    }

    pub(super) fn release(
        &mut self,
        client: Client,
        name: LockName,
        owner: &'static str,
        proof: Option<u64>,
        now: u64,
    ) {
        match self.look(name, now) {
            State::NotALock => self.answer(client, Reply::WrongType),
            State::Held { holder, fence, .. } if holder == owner && fits(proof, fence) => {
                self.keys.remove(&name);
                self.seen.remove(&name);
                self.answer(client, Reply::Done);
            }
            _ => self.answer(client, Reply::NotHolder),
        }
    }

    pub(super) fn extend(
        &mut self,
        client: Client,
        name: LockName,
        owner: &'static str,
        proof: Option<u64>,
        ttl: u64,
        now: u64,
    ) {
        match self.look(name, now) {
            State::NotALock => self.answer(client, Reply::WrongType),
            State::Held { holder, fence, .. } if holder == owner && fits(proof, fence) => {
                let deadline = Some(now / MICROS_PER_MILLI + ttl);
                self.keys.insert(name, Content::Lock { holder, fence, deadline });
                self.answer(client, Reply::Done);
            }
            _ => self.answer(client, Reply::NotHolder),
        }
    }

    pub(super) fn raise_hold(
        &mut self,
        client: Client,
        name: LockName,
        owner: &'static str,
        asked: u64,
        now: u64,
    ) {
        match self.look(name, now) {
            State::NotALock => self.answer(client, Reply::WrongType),
            _ if asked > now + HORIZON_MICROS => self.answer(client, Reply::TooFarAhead),
            State::Held { holder, fence, deadline } if holder == owner => {
                // A foreign lock stays one.
                let fence = if fence == 0 { 0 } else { fence.max(asked) };
                self.observe(fence, now);
                self.keys.insert(name, Content::Lock { holder, fence, deadline });
                self.answer(client, Reply::Fence(fence));
            }
            _ => self.answer(client, Reply::Nil),
        }
    }

    /// `is_undone` says that nobody has heard of the grant, and that it is about to be undone.
    pub(super) fn check(
        &mut self,
        client: Client,
        name: LockName,
        owner: &'static str,
        proof: Option<u64>,
        is_undone: bool,
        now: u64,
    ) {
        match self.state(self.content(name), now) {
            State::NotALock => self.answer(client, Reply::WrongType),
            State::Held { holder, fence, .. }
                if holder == owner && fits(proof, fence) && !is_undone =>
            {
                self.answer(client, Reply::Fence(fence));
            }
            _ => self.answer(client, Reply::Nil),
        }
    }

    /// A grant that nobody heard of is undone, if it is still in force.
    pub(super) fn take_back(&mut self, name: LockName, fence: u64, now: u64) {
        match self.look(name, now) {
            State::Held { fence: held_by, .. } if held_by == fence => {
                self.keys.remove(&name);
            }
            _ => {}
        }
    }

    /// Whether anything is to be written, if this lock is settled now.
    pub(super) fn has_work(&self, name: LockName, now: u64) -> bool {
        let itself = self.holder(name, now).and_then(|(holder, _)| self.waits(name, holder));
        self.anyone_waits_for(name)
            && (self.evicted.contains_key(&name) || self.is_free(name, now) || itself.is_some())
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.elapsed < self.quarantine_ends
    }

    /// Whether the key, whatever was evicted, holds no lock, and none is granted for a while.
    pub(super) fn rests(&self, name: LockName, now: u64) -> bool {
        self.is_quarantined() && self.keys.get(&name).is_none_or(|&key| has_run_out(key, now))
    }

    /// The key is looked at, and found to hold no lock.
    pub(super) fn sees_nothing(&mut self, name: LockName, now: u64) {
        self.sees(name, now);
        self.seen.remove(&name);
    }

    /// The key is looked at, and nothing is done.
    pub(super) fn sees(&mut self, name: LockName, now: u64) {
        let _state = self.state(self.keys.get(&name).copied(), now);
    }

    /// Gives the lock to whoever is next, until it is held or nobody waits.
    pub(super) fn settle(&mut self, name: LockName, now: u64) {
        while self.anyone_waits_for(name) {
            match self.look(name, now) {
                State::NotALock => {
                    self.seen.remove(&name);
                    return;
                }
                State::Held { holder, fence, deadline } => match self.waits(name, holder) {
                    Some(itself) => {
                        self.leave(itself.client);
                        self.lengthen(name, itself.ttl, now);
                        self.answer(itself.client, Reply::Fence(fence));
                    }
                    None => {
                        self.seen.insert(name, Content::Lock { holder, fence, deadline });
                        return;
                    }
                },
                State::Free if self.is_quarantined() => {
                    self.seen.remove(&name);
                    return;
                }
                State::Free => self.hand_on(name, now),
            }
        }
    }

    /// The lock is free: it is the first waiter's.
    fn hand_on(&mut self, name: LockName, now: u64) {
        self.seen.remove(&name);
        if let Some(first) = self.first_for(name) {
            self.leave(first.client);
            if first.gives_up.is_some_and(|end| end <= self.elapsed) {
                self.answer(first.client, Reply::Nil);
            } else {
                self.grant(first.client, name, first.owner, first.ttl, now);
            }
        }
    }

    fn grant(&mut self, client: Client, name: LockName, owner: &'static str, ttl: u64, now: u64) {
        let fence = now.max(self.last_fence + 1);
        if fence > LAST_FENCE {
            return self.answer(client, Reply::NoFenceLeft);
        }
        self.last_fence = fence;
        let deadline = Some(now / MICROS_PER_MILLI + ttl);
        self.keys.insert(name, Content::Lock { holder: owner, fence, deadline });
        self.answer(client, Reply::Fence(fence));
    }

    /// A client is gone from its queue. What it was told, if anything, is told elsewhere.
    pub(super) fn leave(&mut self, client: Client) -> Option<Waiting> {
        let at = self.waiters.iter().position(|waiting| waiting.client == client)?;
        let gone = self.waiters.remove(at);
        if !self.anyone_waits_for(gone.name) {
            self.seen.remove(&gone.name);
        }
        Some(gone)
    }

    pub(super) fn is_waiting(&self, client: Client) -> bool {
        self.waiters.iter().any(|waiting| waiting.client == client)
    }

    /// Whether this one, who is gone, came after another who waits for the same lock.
    pub(super) fn waits_behind(&self, gone: &Waiting) -> bool {
        self.waiters_for(gone.name).any(|waiting| waiting.since < gone.since)
    }

    /// Whether this one may give up now: its patience has ended, and nobody's ended before.
    pub(super) fn is_first_to_give_up(&self, client: Client) -> bool {
        let ends = |waiting: &Waiting| waiting.gives_up.unwrap_or(u64::MAX);
        let first = self.waiters.iter().map(ends).min();
        let own = self.waiters.iter().find(|waiting| waiting.client == client).map(ends);
        own.is_some_and(|own| own <= self.elapsed) && own == first
    }

    /// The server evicts a key. What it held is put back, if it was this lock, and its lease lasts.
    pub(super) fn evict(&mut self, name: LockName, lock: Option<Content>, now: u64) {
        self.keys.remove(&name);
        self.evicted.remove(&name);
        if let Some(lock @ Content::Lock { .. }) = lock
            && !has_run_out(lock, now)
        {
            self.evicted.insert(name, lock);
        }
    }

    /// An evicted lock is put back, unless its key holds something else now, or its lease is over.
    pub(super) fn put_back(&mut self, name: LockName, now: u64) {
        if let Some(lock) = self.evicted.remove(&name)
            && !self.keys.contains_key(&name)
            && !has_run_out(lock, now)
        {
            self.keys.insert(name, lock);
        }
    }

    /// What a lock that somebody waits for was when last looked at.
    pub(super) fn seen(&self, name: LockName) -> Option<Content> {
        self.seen.get(&name).copied()
    }

    pub(super) fn evicted(&self, name: LockName) -> Option<Content> {
        self.evicted.get(&name).copied()
    }

    pub(super) fn evictions(&self) -> usize {
        self.evicted.len()
    }

    /// What was evicted is not coming back: all of it, or a database's, or one lock.
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

    /// Every later fence is larger than this.
    pub(super) fn raise(&mut self, floor: u64) {
        if floor < LAST_FENCE {
            self.last_fence = self.last_fence.max(floor);
        }
    }

    /// A fence was met: it is learned, unless it lies too far in the future.
    pub(super) fn observe(&mut self, fence: u64, now: u64) {
        if fence <= now + HORIZON_MICROS {
            self.last_fence = self.last_fence.max(fence);
        }
    }

    pub(super) fn is_free(&self, name: LockName, now: u64) -> bool {
        self.content(name).is_none_or(|content| has_run_out(content, now))
    }

    pub(super) fn holder(&self, name: LockName, now: u64) -> Option<(&'static str, u64)> {
        match self.content(name) {
            Some(Content::Lock { holder, fence, .. }) if !self.is_free(name, now) => {
                Some((holder, fence))
            }
            _ => None,
        }
    }

    pub(super) fn waiters_for(&self, name: LockName) -> impl Iterator<Item = &Waiting> {
        self.waiters.iter().filter(move |waiting| waiting.name == name)
    }

    pub(super) fn first_for(&self, name: LockName) -> Option<Waiting> {
        self.waiters_for(name).next().copied()
    }

    fn waits(&self, name: LockName, owner: &str) -> Option<Waiting> {
        self.waiters_for(name).find(|waiting| waiting.owner == owner).copied()
    }

    pub(super) fn anyone_waits_for(&self, name: LockName) -> bool {
        self.waiters_for(name).next().is_some()
    }

    /// Also of an evicted lock that is to be put back.
    fn content(&self, name: LockName) -> Option<Content> {
        self.keys.get(&name).or_else(|| self.evicted.get(&name)).copied()
    }

    /// Of a lock that may be changed: it is put back first.
    fn look(&mut self, name: LockName, now: u64) -> State {
        self.put_back(name, now);
        self.state(self.keys.get(&name).copied(), now)
    }

    fn state(&mut self, content: Option<Content>, now: u64) -> State {
        match content {
            None => State::Free,
            Some(Content::OtherType) => State::NotALock,
            Some(content @ Content::Lock { holder, fence, deadline }) => {
                self.observe(fence, now);
                if has_run_out(content, now) {
                    State::Free
                } else {
                    State::Held { holder, fence, deadline }
                }
            }
        }
    }

    /// The lease ends no earlier than `ttl` from now.
    fn lengthen(&mut self, name: LockName, ttl: u64, now: u64) {
        if let Some(Content::Lock { deadline: Some(deadline), .. }) = self.keys.get_mut(&name) {
            *deadline = (*deadline).max(now / MICROS_PER_MILLI + ttl);
        }
    }

    fn answer(&mut self, client: Client, reply: Reply) {
        self.answers.push((client, reply));
    }
}

fn has_run_out(content: Content, now: u64) -> bool {
    match content {
        Content::Lock { deadline: Some(deadline), .. } => now / MICROS_PER_MILLI > deadline,
        Content::Lock { deadline: None, .. } | Content::OtherType => false,
    }
}

fn in_millis(now: u64, millis: u64) -> u64 {
    now + millis * MICROS_PER_MILLI
}

/// A request that shows a fence wants exactly that grant.
fn fits(shown: Option<u64>, fence: u64) -> bool {
    shown.is_none() || shown == Some(fence)
}
