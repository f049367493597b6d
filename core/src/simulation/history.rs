//! What really happened to the locks, and whether it was allowed to: L1 to L4, each in the one place
//! where it could be broken.
//!
//! Neither the queues nor the model are asked: this is written from what the server did to its keys and
//! from what clients were told.

use super::model::{Client, LockName};
use crate::lock::{self, Deadline, Fence, Lost, LostBy, Moment, Seen};
use crate::observe::Event;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
struct Hold {
    owner: &'static str,
    fence: u64,
    deadline: Option<u64>,
    /// It was released, deleted, overwritten, removed when it had run out, or given back.
    is_over: bool,
    /// The server took the key; the lock itself is still held.
    was_evicted: bool,
    /// Somebody was told that the lock is his.
    was_told: bool,
    was_released: bool,
    /// The fence that it had before it was given a larger one.
    raised_from: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    name: LockName,
    owner: &'static str,
    /// Smaller is earlier.
    ticket: u64,
}

#[derive(Debug, Default)]
pub(super) struct History {
    holds: BTreeMap<LockName, Hold>,
    /// The largest fence that anybody was told of, per lock.
    told: BTreeMap<LockName, u64>,
    turns: BTreeMap<Client, Turn>,
    tickets: u64,
    /// Grants whose clients have left, and that nobody has heard of.
    unheard: BTreeMap<LockName, u64>,
    /// The fences that somebody was told of or has shown, for whatever lock.
    known: BTreeSet<u64>,
    /// The lock whose grant was published last, until a key is opened again.
    published: Option<LockName>,
}

impl History {
    /// A new grant: to a client that waited, or to one whose request was answered at once.
    pub(super) fn granted(
        &mut self,
        name: LockName,
        owner: &'static str,
        fence: Fence,
        deadline: Deadline,
        waiter: Option<Client>,
        now: Moment,
    ) {
        let (fence, deadline) = (fence.number(), deadline.millis());
        if let Some(former) = self.holds.get(&name) {
            let has_run_out = former.deadline.is_some_and(|deadline| now.millis() > deadline);
            assert!(
                former.is_over || has_run_out,
                "L1: {name:?} was granted to {owner} while held: {former:?}"
            );
        }
        let told = self.told.get(&name).copied().unwrap_or(0);
        assert!(fence > told, "L2: {name:?}: fence {fence} after {told}");
        let turn = waiter.map(|client| self.turns.remove(&client).expect("L4: it waits"));
        for (client, other) in self.turns.iter().filter(|(_, other)| other.name == name) {
            let is_overtaken = turn.is_none_or(|turn| other.ticket < turn.ticket);
            assert!(!is_overtaken, "L4: {name:?} was granted to {owner}; {client} came before");
        }
        if let Some(turn) = turn {
            assert_eq!((turn.name, turn.owner), (name, owner), "L4: granted what it waits for");
        }
        self.wrote(name, owner, fence, Some(deadline));
    }

    /// The key holds something else now, by whatever means.
    pub(super) fn wrote(
        &mut self,
        name: LockName,
        owner: &'static str,
        fence: u64,
        deadline: Option<u64>,
    ) {
        let hold = Hold {
            owner,
            fence,
            deadline,
            is_over: false,
            was_evicted: false,
            was_told: false,
            was_released: false,
            raised_from: None,
        };
        self.holds.insert(name, hold);
        self.unheard.remove(&name);
    }

    /// The lease ends elsewhere.
    pub(super) fn moved(&mut self, name: LockName, deadline: Option<u64>) {
        if let Some(hold) = self.holds.get_mut(&name) {
            hold.deadline = deadline;
        }
    }

    /// Released by a request that showed this much.
    pub(super) fn released(&mut self, name: LockName, owner: &'static str, shown: Option<u64>) {
        let hold = self.holds.get(&name).expect("L3: what is released is held");
        let is_holder = hold.owner == owner && shown.is_none_or(|shown| shown == hold.fence);
        assert!(is_holder && !hold.is_over, "L3: {owner} released {name:?}: {hold:?}");
        self.over(name);
        self.holds.entry(name).and_modify(|hold| hold.was_released = true);
    }

    /// The module says that this hold ended otherwise than by a release, or by getting a larger fence.
    pub(super) fn lost(&self, name: LockName, lost: &Lost, now: Moment) {
        let is_late = self.published == Some(name);
        assert!(!is_late, "{name:?}: {lost:?} is published after the grant that followed");
        let Seen { value, deadline } = &lost.seen;
        let fence = lock::Hold::read(value, None).fence_number();
        // Foreign holds have no fence to tell them apart by.
        let is_it = |hold: &&Hold| fence > 0 && hold.fence == fence;
        if let Some(hold) = self.holds.get(&name).filter(is_it) {
            assert!(!hold.was_released, "{name:?} was released, and not {lost:?}: {hold:?}");
        }
        if let Some(hold) = self.holds.get(&name).filter(|hold| hold.raised_from == Some(fence)) {
            assert!(hold.is_over, "{name:?} was raised, and not {lost:?}: {hold:?}");
        }
        let has_run_out = deadline.is_some_and(|deadline| deadline.has_passed(now));
        let by_itself = lost.by == LostBy::RunningOut;
        assert!(by_itself || !has_run_out, "{name:?} ran out, and was not {lost:?}");
    }

    /// Given back, because the one it was granted to never heard of it.
    pub(super) fn given_back(&mut self, name: LockName, fence: u64) {
        let hold = self.holds.get(&name).expect("what is given back is held");
        assert_eq!(hold.fence, fence, "L1: another grant of {name:?} was given back: {hold:?}");
        assert!(!hold.was_told, "L1: {name:?} was given back, but somebody counts on it: {hold:?}");
        self.over(name);
    }

    /// Extended on the request of this owner: returns the fence of its grant.
    pub(super) fn extended(&mut self, name: LockName, owner: &'static str) -> u64 {
        let hold = self.holds.get_mut(&name).expect("L3: what is extended is held");
        assert!(hold.owner == owner && !hold.is_over, "L3: {owner} extended {name:?}: {hold:?}");
        hold.was_told = true;
        let fence = hold.fence;
        self.known.insert(fence);
        fence
    }

    /// Given a larger fence on the request of this owner.
    pub(super) fn raised(&mut self, name: LockName, owner: &'static str, fence: Fence) {
        let hold = self.holds.get_mut(&name).expect("L3: what is raised is held");
        assert!(hold.owner == owner && !hold.is_over, "L3: {owner} raised {name:?}: {hold:?}");
        assert!(fence.number() > hold.fence, "L2: {name:?} was raised to {fence:?}: {hold:?}");
        hold.raised_from = Some(hold.fence);
        self.known.extend([hold.fence, fence.number()]);
        hold.fence = fence.number();
    }

    /// The client of this grant has left before it heard of it.
    pub(super) fn left_unheard(&mut self, name: LockName, fence: u64) {
        self.unheard.insert(name, fence);
    }

    /// Grants of these locks may stay though nobody has heard of them, until their leases end.
    pub(super) fn may_stay_unheard(&mut self, may_stay: impl Fn(LockName) -> bool) {
        self.unheard.retain(|name, _| !may_stay(*name));
    }

    /// A lock does not stay with an owner that does not know that it has it.
    pub(super) fn assert_none_is_unheard(&self, now: Moment) {
        for (name, fence) in &self.unheard {
            let is_it = |hold: &&Hold| hold.fence == *fence && !self.known.contains(fence);
            let lasts = |hold: &&Hold| hold.deadline.is_none_or(|end| now.millis() <= end);
            let hold = self.holds.get(name).filter(is_it).filter(lasts);
            let stays = hold.is_some_and(|hold| !hold.is_over);
            assert!(!stays, "L5: {name:?} stays with an owner that never heard of it: {hold:?}");
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

    /// Deleted, or found to have run out and removed.
    pub(super) fn over(&mut self, name: LockName) {
        if let Some(hold) = self.holds.get_mut(&name) {
            hold.is_over = true;
        }
    }

    pub(super) fn flushed(&mut self, db: Option<i32>) {
        for (name, hold) in &mut self.holds {
            hold.is_over |= db.is_none_or(|db| db == name.0);
        }
    }

    /// The server took the key. `is_kept` says that the module could know what it held.
    pub(super) fn evicted(&mut self, name: LockName, is_kept: bool) {
        if let Some(hold) = self.holds.get_mut(&name) {
            hold.was_evicted = true;
            hold.is_over |= !is_kept;
        }
    }

    /// Evicted locks of these names do not come back.
    pub(super) fn evictions_forgotten(&mut self, is_gone: impl Fn(LockName) -> bool) {
        let evicted = self.holds.iter_mut().filter(|(_, hold)| hold.was_evicted);
        evicted.filter(|(name, _)| is_gone(**name)).for_each(|(_, hold)| hold.is_over = true);
    }

    /// An evicted lock is back. Not always what was evicted: the module may have missed a change.
    pub(super) fn restored(
        &mut self,
        name: LockName,
        owner: &'static str,
        fence: u64,
        deadline: Option<u64>,
    ) {
        match self.holds.get_mut(&name) {
            Some(hold) if hold.fence == fence && hold.owner == owner && !hold.is_over => {
                hold.was_evicted = false;
            }
            _ => self.wrote(name, owner, fence, deadline),
        }
    }

    /// The databases of two locks of the same key change places.
    pub(super) fn swapped(&mut self, one: LockName, other: LockName) {
        self.may_stay_unheard(|name| name == one || name == other);
        let mut take = |name| self.holds.remove(&name);
        // There may be a copy in the other database, of the same fence, that was not released.
        let moved = |hold: Hold| Hold { was_released: false, raised_from: None, ..hold };
        let (from_one, from_other) = (take(one).map(moved), take(other).map(moved));
        self.holds.extend(from_one.map(|hold| (other, hold)));
        self.holds.extend(from_other.map(|hold| (one, hold)));
    }

    /// Somebody was told that it holds the lock, by this fence.
    pub(super) fn told(&mut self, name: LockName, fence: u64, is_learned: bool) {
        if let Some(hold) = self.holds.get_mut(&name)
            && hold.fence == fence
        {
            hold.was_told = true;
        }
        self.known.insert(fence);
        if is_learned {
            let told = self.told.entry(name).or_default();
            *told = fence.max(*told);
        }
    }

    pub(super) fn joined(&mut self, client: Client, name: LockName, owner: &'static str) {
        self.tickets += 1;
        let turn = Turn { name, owner, ticket: self.tickets };
        self.turns.insert(client, turn);
    }

    pub(super) fn took_over(&mut self, client: Client, former: Client) {
        let turn = self.turns.remove(&former).expect("who is replaced waits");
        self.turns.insert(client, turn);
    }

    /// Who waits for the lock as this owner, who waits only once.
    pub(super) fn client_of(&self, name: LockName, owner: &[u8]) -> Client {
        let mut turns = self.turns.iter();
        let is_it = |turn: &Turn| turn.name == name && turn.owner.as_bytes() == owner;
        *turns.find(|(_, turn)| is_it(turn)).expect("L4: who is granted the lock waits").0
    }

    pub(super) fn waits(&self, name: LockName, owner: &str) -> bool {
        self.turns.values().any(|turn| turn.name == name && turn.owner == owner)
    }

    pub(super) fn owner_of(&self, client: Client) -> &'static str {
        self.turns.get(&client).expect("it waits").owner
    }

    /// It waits no longer, and was not granted the lock.
    pub(super) fn left(&mut self, client: Client) {
        assert!(self.turns.remove(&client).is_some(), "{client} left, but did not wait");
    }
}
