//! What really happened to the locks, and whether it was allowed: L1 to L4, each checked in the one place where it
//! could be broken.
//!
//! Neither the queues nor the model are asked: the history records what the server did to its keys and what clients
//! were told.

use super::content::{Content, tolerated};
use super::model::Client;
use super::names::{LockName, Names};
use crate::lock::{Fence, Lost, LostBy, Moment};
use crate::observe::Event;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
struct Hold {
    owner: &'static str,
    fence: u64,
    /// The hold's own end. The hold also ends with its key.
    deadline: Option<u64>,
    /// How many holders the hold tolerates.
    share: usize,
    /// The hold was released, deleted, overwritten, removed after it had run out, or given back.
    is_over: bool,
    /// The server evicted the key, but the lock is still held.
    was_evicted: bool,
    /// A client was told that it holds the lock.
    was_told: bool,
    was_released: bool,
    /// The hold's fence before it was raised.
    raised_from: Option<u64>,
}

impl Hold {
    fn new(owner: &'static str, fence: u64, deadline: Option<u64>, share: usize) -> Self {
        Self {
            owner,
            fence,
            deadline,
            share,
            is_over: false,
            was_evicted: false,
            was_told: false,
            was_released: false,
            raised_from: None,
        }
    }
}

/// A grant, as it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) fence: u64,
    pub(super) deadline: u64,
    pub(super) share: u32,
    /// Whether the grant replaced everything that the key held.
    pub(super) is_alone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    names: Names,
    owner: &'static str,
    /// A smaller ticket came earlier.
    ticket: u64,
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// The latest holds of each lock, whether or not they are over.
    holds: BTreeMap<LockName, Vec<Hold>>,
    expiries: BTreeMap<LockName, Option<u64>>,
    /// The largest fence that any client was told of, per lock.
    told: BTreeMap<LockName, u64>,
    turns: BTreeMap<Client, Turn>,
    tickets: u64,
    /// Grants whose clients have left before they heard of them.
    unheard: BTreeMap<LockName, BTreeSet<u64>>,
    /// All fences that a client was told of or has shown, for any lock.
    known: BTreeSet<u64>,
    /// The lock whose grant was published last, until a key is opened again.
    published: Option<LockName>,
}

impl History {
    /// A new grant: to a client that waited, or to a request that was answered at once.
    pub(super) fn granted(
        &mut self,
        name: LockName,
        owner: &'static str,
        grant: Granted,
        waiter: Option<Client>,
        now: Moment,
    ) {
        let Granted { fence, deadline, share, is_alone } = grant;
        let share = tolerated(share);
        // If the clock was set back, an older hold of the same owner may be in force again.
        let own = self.live(name, now).filter(|hold| hold.owner == owner).last().copied();
        let is_own = |hold: &Hold| own.is_some_and(|own| own.fence == hold.fence);
        let others = self.live(name, now).filter(|hold| !is_own(hold)).collect::<Vec<_>>();
        let least = others.iter().map(|hold| hold.share).min().unwrap_or(usize::MAX).min(share);
        assert!(
            others.len() < least && (others.is_empty() || !is_alone),
            "L1: {name:?} was granted to {owner}, who tolerates {share}, beside {others:?}"
        );
        let told = self.told.get(&name).copied().unwrap_or(0);
        assert!(fence > told, "L2: {name:?}: fence {fence} after {told}");
        let turn = waiter.map(|client| self.turns[&client]);
        let is_other = |client: Client, other: &Turn| {
            waiter != Some(client) && other.names.contains(&name)
        };
        for (client, _) in self.turns.iter().filter(|&(&client, other)| {
            is_other(client, other) && turn.is_none_or(|turn| other.ticket < turn.ticket)
        }) {
            // A holder may take a tighter share ahead of the waiters.
            assert!(
                own.is_some(),
                "L4: {name:?} was granted to {owner}; {client} came before"
            );
        }
        if let Some(turn) = turn {
            assert_eq!(turn.owner, owner, "L4: granted what it waits for");
        }
        // Whoever asks for more knows of its other locks by now.
        self.known.extend(own.filter(|_| turn.is_none()).map(|own| own.fence));
        let holds = self.holds.entry(name).or_default();
        if is_alone {
            holds.clear();
            self.unheard.remove(&name);
        }
        holds.retain(|hold| !is_own(hold));
        // An exclusive hold ends with its key.
        holds.push(Hold::new(owner, fence, (share > 1).then_some(deadline), share));
    }

    /// The key holds something else now, by whatever means.
    pub(super) fn wrote(&mut self, name: LockName, content: &Content) {
        let Content::Lock(lock) = content else { return self.over(name) };
        let holds = lock.holds.iter().map(|held| {
            let share = tolerated(held.share);
            Hold::new(held.holder, held.fence, held.own_end, share)
        });
        self.holds.insert(name, holds.collect());
        self.expiries.insert(name, lock.expiry);
        self.unheard.remove(&name);
    }

    /// The key has a new expiry.
    pub(super) fn moved(&mut self, name: LockName, expiry: Option<u64>) {
        self.expiries.insert(name, expiry);
    }

    /// The module has given this hold another end, or share.
    pub(super) fn renewed(&mut self, name: LockName, fence: u64, deadline: u64, share: u32) {
        let hold = self.hold(name, |hold| hold.fence == fence).expect("what is renewed is held");
        assert!(!hold.is_over, "L3: {name:?} was renewed: {hold:?}");
        hold.deadline = Some(deadline);
        hold.share = tolerated(share);
    }

    /// Ends the holds that have run out. They do not return if the clock is set back.
    pub(super) fn run_out_ended(&mut self, name: LockName, now: Moment) {
        for hold in self.holds.get_mut(&name).into_iter().flatten() {
            hold.is_over |= hold.deadline.is_some_and(|end| now.millis() > end);
        }
    }

    /// The value is written anew, without the holds that have run out. No hold outlasts the key's current expiry.
    pub(super) fn rewritten(&mut self, name: LockName, now: Moment) {
        self.run_out_ended(name, now);
        let limit = self.expiries.get(&name).copied().flatten();
        for hold in self.holds.get_mut(&name).into_iter().flatten() {
            hold.deadline = [hold.deadline, limit].into_iter().flatten().min();
        }
    }

    fn live(&self, name: LockName, now: Moment) -> impl Iterator<Item = &Hold> {
        let expiry = self.expiries.get(&name).copied().flatten();
        let lasts = move |end: Option<u64>| end.is_none_or(|end| now.millis() <= end);
        let holds = self.holds.get(&name).into_iter().flatten();
        holds.filter(move |hold| !hold.is_over && lasts(hold.deadline) && lasts(expiry))
    }

    /// The last hold of this owner that is in force.
    fn own(&mut self, name: LockName, owner: &str, now: Moment) -> Option<&mut Hold> {
        let own = self.live(name, now).filter(|hold| hold.owner == owner).last();
        let fence = own.map(|hold| hold.fence)?;
        self.hold(name, |hold| hold.owner == owner && hold.fence == fence)
    }

    fn hold(&mut self, name: LockName, fits: impl Fn(&Hold) -> bool) -> Option<&mut Hold> {
        self.holds.get_mut(&name)?.iter_mut().rev().find(|hold| fits(hold))
    }

    /// Released by a request with this proof.
    pub(super) fn released(
        &mut self,
        name: LockName,
        owner: &'static str,
        shown: Option<u64>,
        now: Moment,
    ) {
        let hold = self.own(name, owner, now);
        let hold = hold.unwrap_or_else(|| panic!("L3: {owner} released {name:?}"));
        let is_holder = shown.is_none_or(|shown| shown == hold.fence);
        assert!(is_holder, "L3: {owner} released {name:?}: {hold:?}");
        (hold.is_over, hold.was_released) = (true, true);
        let fence = hold.fence;
        self.known.insert(fence);
    }

    /// The module reports that this hold ended, but not by a release or a raised fence.
    pub(super) fn lost(&self, name: LockName, lost: &Lost, now: Moment) {
        let is_late = self.published == Some(name);
        assert!(!is_late, "{name:?}: {lost:?} is published after the grant that followed");
        let fence = lost.fence.map_or(0, Fence::number);
        for hold in self.holds.get(&name).into_iter().flatten() {
            // Foreign holds have no fence that would identify them.
            if fence > 0 && hold.fence == fence {
                assert!(!hold.was_released, "{name:?} was released, and not {lost:?}: {hold:?}");
            }
            if hold.raised_from == Some(fence) {
                assert!(hold.is_over, "{name:?} was raised, and not {lost:?}: {hold:?}");
            }
        }
        let has_run_out = lost.deadline.is_some_and(|deadline| deadline.has_passed(now));
        let by_itself = lost.by == LostBy::RunningOut;
        assert!(by_itself || !has_run_out, "{name:?} ran out, and was not {lost:?}");
    }

    /// Given back, because the grant's client never heard of it.
    pub(super) fn given_back(&mut self, name: LockName, fence: u64) {
        let hold = self.hold(name, |hold| hold.fence == fence && !hold.is_over);
        let hold = hold.unwrap_or_else(|| panic!("L1: another grant of {name:?} was given back"));
        assert!(!hold.was_told, "L1: {name:?} was given back, but somebody counts on it: {hold:?}");
        hold.is_over = true;
    }

    /// Over, because the connection that it was bound to has ended.
    pub(super) fn parted(&mut self, name: LockName, fence: u64) {
        let hold = self.hold(name, |hold| hold.fence == fence && !hold.is_over);
        let hold = hold.unwrap_or_else(|| panic!("L1: another grant of {name:?} was ended"));
        (hold.is_over, hold.was_released) = (true, true);
    }

    /// Extended at this owner's request. Returns the fence of its grant.
    pub(super) fn extended(&mut self, name: LockName, owner: &'static str, now: Moment) -> u64 {
        let hold = self.own(name, owner, now);
        let hold = hold.unwrap_or_else(|| panic!("L3: {owner} extended {name:?}"));
        hold.was_told = true;
        let fence = hold.fence;
        self.known.insert(fence);
        fence
    }

    /// Given a larger fence at this owner's request.
    pub(super) fn raised(
        &mut self,
        name: LockName,
        owner: &'static str,
        fence: Fence,
        now: Moment,
    ) {
        let hold = self.own(name, owner, now);
        let hold = hold.unwrap_or_else(|| panic!("L3: {owner} raised {name:?}"));
        assert!(fence.number() > hold.fence, "L2: {name:?} was raised to {fence:?}: {hold:?}");
        let former = hold.fence;
        (hold.raised_from, hold.fence) = (Some(former), fence.number());
        self.known.extend([former, fence.number()]);
    }

    /// The client of this grant left before it heard of the grant.
    pub(super) fn left_unheard(&mut self, name: LockName, fence: u64) {
        self.unheard.entry(name).or_default().insert(fence);
    }

    /// Unheard grants of these locks may stay until their leases end.
    pub(super) fn may_stay_unheard(&mut self, may_stay: impl Fn(LockName) -> bool) {
        self.unheard.retain(|name, _| !may_stay(*name));
    }

    /// No lock may stay with an owner that does not know of its grant.
    pub(super) fn assert_none_is_unheard(&self, now: Moment) {
        for (&name, fences) in &self.unheard {
            let is_it =
                |hold: &&Hold| fences.contains(&hold.fence) && !self.known.contains(&hold.fence);
            let hold = self.live(name, now).find(is_it);
            assert!(
                hold.is_none(),
                "L5: {name:?} stays with an owner that never heard of it: {hold:?}"
            );
        }
    }

    pub(super) fn published(&mut self, name: LockName, event: Event) {
        if let Event::Acquired | Event::HandedOff = event {
            self.published = Some(name);
        }
    }

    pub(super) fn opened(&mut self) {
        self.published = None;
    }

    /// Deleted, or found expired and removed.
    pub(super) fn over(&mut self, name: LockName) {
        self.holds.entry(name).or_default().iter_mut().for_each(|hold| hold.is_over = true);
    }

    pub(super) fn flushed(&mut self, db: Option<i32>) {
        let names: Vec<_> = self.holds.keys().copied().collect();
        names.into_iter().filter(|name| db.is_none_or(|db| db == name.0)).for_each(|name| {
            self.over(name);
        });
    }

    /// The server evicted the key. `is_kept` says whether the module could know its value.
    pub(super) fn evicted(&mut self, name: LockName, is_kept: bool) {
        for hold in self.holds.get_mut(&name).into_iter().flatten() {
            hold.was_evicted = true;
            hold.is_over |= !is_kept;
        }
    }

    /// Evicted locks of these names do not come back.
    pub(super) fn evictions_forgotten(&mut self, is_gone: impl Fn(LockName) -> bool) {
        let locks = self.holds.iter_mut().filter(|(name, _)| is_gone(**name));
        let holds = locks.flat_map(|(_, holds)| holds);
        holds.filter(|hold| hold.was_evicted).for_each(|hold| hold.is_over = true);
    }

    /// An evicted lock is back. It may differ from what was evicted: the module may have missed a change.
    pub(super) fn restored(&mut self, name: LockName, content: &Content) {
        let Content::Lock(lock) = content else { panic!("{name:?} was put back: {content:?}") };
        let known = self.holds.entry(name).or_default();
        let is_known = lock.holds.iter().all(|held| {
            known
                .iter()
                .any(|hold| hold.fence == held.fence && hold.owner == held.holder && !hold.is_over)
        });
        if is_known {
            known.iter_mut().for_each(|hold| hold.was_evicted = false);
            self.expiries.insert(name, lock.expiry);
        } else {
            self.wrote(name, content);
        }
    }

    /// The databases of two locks of the same key are swapped.
    pub(super) fn swapped(&mut self, one: LockName, other: LockName) {
        self.may_stay_unheard(|name| name == one || name == other);
        super::keyspace::swap_entries(&mut self.expiries, one, other);
        super::keyspace::swap_entries(&mut self.holds, one, other);
        // The other database may have a copy with the same fence that was not released.
        for name in [one, other] {
            for hold in self.holds.get_mut(&name).into_iter().flatten() {
                (hold.was_released, hold.raised_from) = (false, None);
            }
        }
    }

    /// A client was told that it holds the lock, by this fence.
    pub(super) fn told(&mut self, name: LockName, fence: u64, is_learned: bool) {
        if let Some(hold) = self.hold(name, |hold| hold.fence == fence) {
            hold.was_told = true;
        }
        self.known.insert(fence);
        if is_learned {
            let told = self.told.entry(name).or_default();
            *told = fence.max(*told);
        }
    }

    /// The client joins the queues, in the places of a former request of its owner if that was for the same locks.
    pub(super) fn joined(&mut self, client: Client, names: Names, owner: &'static str) {
        let is_former = |turn: &Turn| turn.owner == owner && turn.names.meet(&names);
        let formers: Vec<_> = self.turns.values().filter(|turn| is_former(turn)).copied().collect();
        self.turns.retain(|_, turn| !is_former(turn));
        let ticket = match formers[..] {
            [former] if former.names.are(&names) => former.ticket,
            _ => {
                self.tickets += 1;
                self.tickets
            }
        };
        self.turns.insert(client, Turn { names, owner, ticket });
    }

    /// The client that waits for the lock as this owner. An owner waits only once for a lock.
    pub(super) fn client_of(&self, name: LockName, owner: &[u8]) -> Client {
        let mut turns = self.turns.iter();
        let is_it = |turn: &Turn| turn.names.contains(&name) && turn.owner.as_bytes() == owner;
        *turns.find(|(_, turn)| is_it(turn)).expect("L4: who is granted the lock waits").0
    }

    pub(super) fn owner_of(&self, client: Client) -> &'static str {
        self.turns.get(&client).expect("it waits").owner
    }

    /// The client stops waiting without a grant.
    pub(super) fn left(&mut self, client: Client) {
        assert!(self.turns.remove(&client).is_some(), "{client} left, but did not wait");
    }
}
