//! The locks of one server, the slow and obvious way: a map, a list and ifs.
//!
//! Written to be read, not to be fast. Nothing is indexed, nothing is stored that could be searched for, and the model
//! uses none of the code that it is compared with: numbers are plain numbers, and a lock is what a reader would write
//! on paper.
//!
//! A request is decided here at the moment when the engine decides it. The engine says which waiter it serves next, and
//! the model whether it is that waiter's turn; [`super`] checks that no turn is left over.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::binding::{Bound, Wanted};
use super::content::{
    Content, Held, LATEST, Lock, admit, has_run_out, live_in, others, own, tolerated,
};
use super::names::{LockName, Names};
use super::requests::Claim;
use super::tickets::Unheard;
use super::world::MICROS_PER_MILLI;
use crate::lock::WaitKind;
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Client = u32;

const LAST_FENCE: u64 = 9_007_199_254_740_991;
const HORIZON_MICROS: u64 = 24 * 60 * 60 * 1_000 * MICROS_PER_MILLI;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Fence(u64),
    /// The fence of a grant, on the channel of its ticket.
    Published(u64),
    Nil,
    /// How many locks were released, or whether all were extended.
    Count(usize),
    Replaced,
    Dropped,
    QueueFull,
    NotReplicated,
    NotNow,
    NoFenceLeft,
    WrongType,
    TooFarAhead,
    SentAway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) client: Client,
    pub(super) asked: Asked,
    pub(super) kind: WaitKind,
    /// In microseconds, like the following times.
    pub(super) since: u64,
    pub(super) gives_up: Option<u64>,
    pub(super) asked_at: u64,
    pub(super) channel: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// On its connection, for this many milliseconds. 0 means forever.
    Block(u64),
    /// By a ticket that lasts this long, whose grant is published on this channel.
    Ticket(u64, Option<&'static str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) names: Names,
    pub(super) owner: &'static str,
    pub(super) ttl: u64,
    pub(super) share: u32,
    pub(super) bind: Option<Wanted>,
    pub(super) waits: Option<Waits>,
}

/// The outcome of a request for locks, or of a waiter's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The owner has all of them by this fence.
    Again(u64),
    Granted,
    /// The owner keeps what it has, and cannot wait for more.
    Kept,
    Busy,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<LockName, Content>,
    pub(super) waiters: Vec<Waiting>,
    /// What each client was sent.
    pub(super) answers: Vec<(Client, Reply)>,
    pub(super) most_waiters: usize,
    pub(super) most_waiters_per_lock: usize,
    pub(super) most_tickets: usize,
    /// The time that has passed, whatever the wall clock says. Patience is measured by this.
    pub(super) elapsed: u64,
    pub(super) quarantine_ends: u64,
    pub(super) last_fence: u64,
    /// Locks with waiters, as they were when last settled and found held.
    pub(super) seen: BTreeMap<LockName, Content>,
    /// Locks whose waiters include one for several, which may have been looked at on its behalf.
    pub(super) seen_by_several: BTreeSet<LockName>,
    /// Locks that were evicted while held, until they are written again.
    pub(super) evicted: BTreeMap<LockName, Content>,
    pub(super) bound: Vec<Bound>,
    /// Bindings that a command of another owner found short: the engine may have looked at them, or not.
    pub(super) may_be_forgotten: Vec<Bound>,
    pub(super) ended: BTreeMap<u64, u64>,
    /// The channels without subscribers, and since when the engine knows.
    pub(super) deaf: BTreeSet<&'static str>,
    pub(super) found_deaf: BTreeMap<&'static str, u64>,
    pub(super) unheard: Vec<Unheard>,
    pub(super) window_millis: u64,
}

impl Model {
    pub(super) fn new() -> Self {
        let (window_millis, most) = (1_000, usize::MAX);
        Self {
            most_waiters: most,
            most_waiters_per_lock: most,
            most_tickets: most,
            window_millis,
            ..Self::default()
        }
    }

    /// A client with a ticket is told so when the ticket is found to have kept its place.
    pub(super) fn acquire(&mut self, client: Client, asked: Asked, now: u64) {
        let Some(live) = self.look_at_all(&asked.names, now) else {
            return self.answer(client, Reply::WrongType);
        };
        let is_free_for_all = |name: &LockName| !self.anyone_waits_for(*name);
        let verdict = self.verdict(&asked, &live, is_free_for_all);
        let (Verdict::Busy, Some(waits)) = (verdict, asked.waits) else {
            return self.serve(client, asked, verdict, now);
        };
        let since = self.elapsed;
        let patience = |millis| Some(since + millis * MICROS_PER_MILLI);
        let (kind, ttl, gives_up, channel) = match waits {
            Waits::Block(0) => (WaitKind::Blocked, asked.ttl, None, None),
            Waits::Block(millis) => (WaitKind::Blocked, asked.ttl, patience(millis), None),
            // Nobody may come for the lock, so it is held no longer than the ticket would have lasted.
            Waits::Ticket(lasts, channel) => {
                (WaitKind::Ticket, asked.ttl.min(lasts), patience(lasts), channel)
            }
        };
        let asked = Asked { ttl, ..asked };
        self.wait(Waiting { client, asked, kind, since, gives_up, asked_at: since, channel });
    }

    /// The holds of each of these locks that are in force. `None` if one of them is no lock.
    pub(super) fn look_at_all(&mut self, names: &Names, now: u64) -> Option<Vec<Vec<Held>>> {
        names.iter().map(|name| self.look(*name, now)).collect()
    }

    /// All of the locks are granted, or none. `is_free_for_all` says whether nobody comes first.
    pub(super) fn verdict(
        &self,
        asked: &Asked,
        live: &[Vec<Held>],
        is_free_for_all: impl Fn(&LockName) -> bool,
    ) -> Verdict {
        let Asked { owner, share, .. } = *asked;
        let owns: Vec<_> = live.iter().map(|live| own(live, owner)).collect();
        let is_foreign = |own: &Option<Held>| own.is_some_and(|own| own.fence == 0);
        if let [Some(first), ..] = owns[..] {
            let is_enough = |own: &Option<Held>| {
                own.is_some_and(|own| {
                    own.fence == first.fence && tolerated(own.share) <= tolerated(share)
                })
            };
            let is_one_grant = owns.iter().all(is_enough) && first.fence > 0;
            if is_one_grant || (owns.len() == 1 && first.fence == 0) {
                return Verdict::Again(first.fence);
            }
        }
        let can_be_had = asked.names.iter().zip(live).zip(&owns).all(|((name, live), own)| {
            (own.is_some() || is_free_for_all(name))
                && !is_foreign(own)
                && admit(&others(live, owner), share)
        });
        if can_be_had && !self.is_quarantined() {
            Verdict::Granted
        } else if owns.iter().any(Option::is_some) {
            Verdict::Kept
        } else {
            Verdict::Busy
        }
    }

    /// The request has been decided, or the waiter's turn has come.
    pub(super) fn serve(&mut self, client: Client, asked: Asked, verdict: Verdict, now: u64) {
        match verdict {
            Verdict::Granted => self.grant(client, asked, now),
            Verdict::Kept | Verdict::Busy => self.answer(client, Reply::Nil),
            Verdict::Again(fence) => {
                self.claim(fence);
                for &name in asked.names.iter() {
                    if let Some(own) = self.own_live(name, asked.owner, now) {
                        self.renew(name, own, asked, now);
                    }
                    self.bind((name, asked.owner, fence), asked.bind);
                }
                self.answer(client, Reply::Fence(fence));
            }
        }
    }

    pub(super) fn own_live(&mut self, name: LockName, owner: &str, now: u64) -> Option<Held> {
        own(&self.look(name, now)?, owner)
    }

    pub(super) fn release(&mut self, client: Client, claim: Claim, now: u64) {
        let Claim { names, owner, fence: proof } = claim;
        let Some(live) = self.look_at_all(&names, now) else {
            return self.answer(client, Reply::WrongType);
        };
        let mut released = 0;
        for (&name, live) in names.iter().zip(live) {
            if proof.is_none() {
                self.gives_up_ticket(name, owner);
            }
            if let Some(own) = own(&live, owner).filter(|own| fits(proof, own.fence)) {
                self.claim(own.fence);
                self.end(name, own, now);
                released += 1;
            }
        }
        self.answer(client, Reply::Count(released));
    }

    pub(super) fn end(&mut self, name: LockName, own: Held, now: u64) {
        self.seen.remove(&name);
        self.unbind((name, own.holder, own.fence));
        let lock = self.lock(name);
        lock.holds.retain(|held| *held != own);
        if lock.live(now).is_empty() {
            self.keys.remove(&name);
        } else {
            lock.expires_with_the_last(None, now);
        }
    }

    fn lock(&mut self, name: LockName) -> &mut Lock {
        match self.keys.get_mut(&name) {
            Some(Content::Lock(lock)) => lock,
            other => panic!("{name:?} is no lock: {other:?}"),
        }
    }

    pub(super) fn lease(
        &mut self,
        name: LockName,
        own: Held,
        end: Option<u64>,
        share: u32,
        now: u64,
    ) {
        if own.share == 1 && share == 1 {
            self.lock(name).expiry = end;
            return;
        }
        self.seen.remove(&name);
        let lock = self.lock(name);
        let end = end.unwrap_or(LATEST);
        let held = lock.changeable(own.identity());
        (held.own_end, held.share) = (Some(end), share);
        if own.own_end.is_none() {
            lock.expiry = Some(end);
        } else {
            lock.expires_with_the_last(Some(own.identity()), now);
        }
    }

    /// Lengthens the lease to at least `ttl` from now, and widens the share to at least the requested one.
    fn renew(&mut self, name: LockName, own: Held, asked: Asked, now: u64) {
        let end = self.lock(name).end(&own);
        let at_least = now / MICROS_PER_MILLI + asked.ttl;
        let longer = end.map(|end| end.max(at_least));
        if own.fence > 0 && own.share != asked.share {
            self.lease(name, own, longer, asked.share, now);
        } else if longer != end {
            self.lease(name, own, longer, own.share, now);
        }
    }

    pub(super) fn extend(&mut self, client: Client, claim: Claim, ttl: u64, now: u64) {
        let Claim { names, owner, fence: proof } = claim;
        let Some(live) = self.look_at_all(&names, now) else {
            return self.answer(client, Reply::WrongType);
        };
        let owns = live.iter().map(|live| own(live, owner).filter(|own| fits(proof, own.fence)));
        let Some(owns) = owns.collect::<Option<Vec<_>>>() else {
            return self.answer(client, Reply::Count(0));
        };
        for (&name, own) in names.iter().zip(owns) {
            self.claim(own.fence);
            self.lease(name, own, Some(now / MICROS_PER_MILLI + ttl), own.share, now);
        }
        self.answer(client, Reply::Count(1));
    }

    pub(super) fn raise_hold(&mut self, client: Client, claim: Claim, asked: u64, now: u64) {
        let Claim { names, owner, .. } = claim;
        let name = names[0];
        let Some(live) = self.look(name, now) else {
            return self.answer(client, Reply::WrongType);
        };
        if asked > now + HORIZON_MICROS {
            return self.answer(client, Reply::TooFarAhead);
        }
        let Some(own) = own(&live, owner) else { return self.answer(client, Reply::Nil) };
        self.claim(own.fence);
        // A foreign lock stays foreign.
        let fence = if own.fence == 0 { 0 } else { own.fence.max(asked) };
        self.observe(fence, now);
        if fence != own.fence {
            let lock = self.lock(name);
            let end = lock.end(&own);
            let held = lock.changeable(own.identity());
            held.fence = fence;
            if held.own_end.is_some() {
                lock.expires_with(Some((owner, fence)), end.unwrap_or(0), now);
            }
            self.seen.remove(&name);
            self.raise_bound((name, owner, own.fence), fence);
        }
        self.answer(client, Reply::Fence(fence));
    }

    /// `is_undone` says that nobody has heard of the grant, and that it is about to be undone.
    pub(super) fn check(&mut self, client: Client, claim: Claim, is_undone: bool, now: u64) {
        let Claim { names, owner, fence: proof } = claim;
        let name = names[0];
        self.learn(self.content(name), now);
        let Some(live) = self.live(name, now) else {
            return self.answer(client, Reply::WrongType);
        };
        match own(&live, owner).filter(|own| fits(proof, own.fence) && !is_undone) {
            Some(own) => {
                self.claim(own.fence);
                self.answer(client, Reply::Fence(own.fence));
            }
            None => self.answer(client, Reply::Nil),
        }
    }

    fn grant(&mut self, client: Client, asked: Asked, now: u64) {
        let fence = self.next_fence(now);
        if fence > LAST_FENCE {
            return self.answer(client, Reply::NoFenceLeft);
        }
        self.last_fence = fence;
        let Asked { names, owner, bind, .. } = asked;
        for &name in names.iter() {
            if let Some(former) = self.own_live(name, owner, now) {
                self.claim(former.fence);
                self.unbind((name, owner, former.fence));
            }
            self.bind((name, owner, fence), bind);
            self.hold(name, &asked, fence, now);
        }
        self.answer(client, Reply::Fence(fence));
    }

    pub(super) fn next_fence(&self, now: u64) -> u64 {
        now.max(self.last_fence + 1)
    }

    pub(super) fn hold(&mut self, name: LockName, asked: &Asked, fence: u64, now: u64) {
        self.seen.remove(&name);
        let Asked { owner: holder, ttl, share, .. } = *asked;
        let deadline = now / MICROS_PER_MILLI + ttl;
        let own_end = (share != 1).then_some(deadline);
        let held = Held { holder, fence, own_end, share };
        match self.keys.get_mut(&name) {
            Some(Content::Lock(lock)) if !others(&lock.live(now), holder).is_empty() => {
                if let Some(former) = own(&lock.live(now), holder) {
                    lock.holds.retain(|held| *held != former);
                }
                lock.holds.push(held);
                lock.expires_with_the_last(Some(held.identity()), now);
            }
            _ => {
                let lock = Lock { holds: vec![held], expiry: Some(deadline) };
                self.keys.insert(name, Content::Lock(lock));
            }
        }
    }

    /// Every later fence is larger than this.
    pub(super) fn raise(&mut self, floor: u64) {
        if floor < LAST_FENCE {
            self.last_fence = self.last_fence.max(floor);
        }
    }

    /// Learns a fence, unless it lies too far in the future.
    pub(super) fn observe(&mut self, fence: u64, now: u64) {
        if fence <= now + HORIZON_MICROS {
            self.last_fence = self.last_fence.max(fence);
        }
    }

    pub(super) fn is_free(&self, name: LockName, now: u64) -> bool {
        self.content(name).is_none_or(|content| has_run_out(&content, now))
    }

    pub(super) fn holders(&self, name: LockName, now: u64) -> Vec<(&'static str, u64)> {
        self.live(name, now).unwrap_or_default().iter().map(Held::identity).collect()
    }

    /// Also the content of an evicted lock that is not written again yet.
    pub(super) fn content(&self, name: LockName) -> Option<Content> {
        self.keys.get(&name).or_else(|| self.evicted.get(&name)).cloned()
    }

    /// The holds in force of a lock that may be changed: an evicted lock is written again first. `None` if the key is
    /// no lock.
    pub(super) fn look(&mut self, name: LockName, now: u64) -> Option<Vec<Held>> {
        self.put_back(name, now);
        self.learn(self.keys.get(&name).cloned(), now);
        live_in(self.keys.get(&name), now)
    }

    /// A key is looked at.
    pub(super) fn learn(&mut self, content: Option<Content>, now: u64) {
        if let Some(Content::Lock(lock)) = content {
            lock.holds.iter().for_each(|held| self.observe(held.fence, now));
        }
    }

    pub(super) fn answer(&mut self, client: Client, reply: Reply) {
        self.answers.push((client, reply));
    }
}

/// A request that shows a fence wants exactly that grant.
fn fits(shown: Option<u64>, fence: u64) -> bool {
    shown.is_none() || shown == Some(fence)
}
