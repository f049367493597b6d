//! The model, continued: the waiters, their order, and how they leave.

use super::model::{Client, LockName, Model, Reply, Waiting};
use crate::lock::WaitKind;

impl Model {
    pub(super) fn wait(&mut self, new: Waiting) {
        let is_same = |old: &Waiting| old.name == new.name && old.owner == new.owner;
        let at = self.waiters.iter().position(is_same);
        let old = at.map(|at| self.waiters[at]);
        if old.is_none_or(|old| old.kind != new.kind) && !self.has_room(&new) {
            return self.answer(new.client, Reply::QueueFull);
        }
        let (Some(at), Some(old)) = (at, old) else { return self.waiters.push(new) };
        if old.kind == WaitKind::Blocked {
            self.answer(old.client, Reply::Replaced);
        }
        self.waiters[at] = Waiting { since: old.since, ..new };
    }

    /// Waiters on connections and waiters with tickets have separate limits.
    fn has_room(&self, new: &Waiting) -> bool {
        let all = self.waiters.iter().filter(|other| other.kind == new.kind);
        let of_lock = all.clone().filter(|other| other.name == new.name);
        match new.kind {
            WaitKind::Ticket => all.count() < self.most_tickets,
            WaitKind::Blocked => {
                all.count() < self.most_waiters && of_lock.count() < self.most_waiters_per_lock
            }
        }
    }

    /// A release without a fence gives up its owner's ticket.
    pub(super) fn gives_up_ticket(&mut self, name: LockName, owner: &str) {
        let ticket = self.waits(name, owner).filter(|waiting| waiting.kind == WaitKind::Ticket);
        self.gave_up = ticket.and_then(|ticket| self.leave(ticket.client)).map(|left| left.client);
    }

    /// A client leaves its queue. Another function says what the client is told, if anything.
    pub(super) fn leave(&mut self, client: Client) -> Option<Waiting> {
        let at = self.waiters.iter().position(|waiting| waiting.client == client)?;
        let gone = self.waiters.remove(at);
        if !self.anyone_waits_for(gone.name) {
            self.seen.remove(&gone.name);
        }
        Some(gone)
    }

    pub(super) fn waiter_of(&self, client: Client) -> Option<Waiting> {
        self.waiters.iter().find(|waiting| waiting.client == client).copied()
    }

    pub(super) fn is_waiting(&self, client: Client) -> bool {
        self.waiters.iter().any(|waiting| waiting.client == client)
    }

    /// Whether this waiter, which has left, came after another waiter for the same lock.
    pub(super) fn waits_behind(&self, gone: &Waiting) -> bool {
        self.waiters_for(gone.name).any(|waiting| waiting.since < gone.since)
    }

    /// Whether this client may give up now: its patience has ended, and no patience of the same kind of wait ended
    /// earlier. Waiters on connections give up first.
    pub(super) fn is_first_to_give_up(&self, client: Client) -> bool {
        let ends = |waiting: &Waiting| Some((waiting.kind, waiting.gives_up?));
        let is_due = |&(_, end): &(_, u64)| end <= self.elapsed;
        let first = self.waiters.iter().filter_map(ends).filter(is_due).min();
        let own = self.waiters.iter().find(|waiting| waiting.client == client).and_then(ends);
        own.is_some() && own == first
    }

    pub(super) fn waiters_for(&self, name: LockName) -> impl Iterator<Item = &Waiting> {
        self.waiters.iter().filter(move |waiting| waiting.name == name)
    }

    pub(super) fn first_for(&self, name: LockName) -> Option<Waiting> {
        self.waiters_for(name).next().copied()
    }

    pub(super) fn waits(&self, name: LockName, owner: &str) -> Option<Waiting> {
        self.waiters_for(name).find(|waiting| waiting.owner == owner).copied()
    }

    pub(super) fn anyone_waits_for(&self, name: LockName) -> bool {
        self.waiters_for(name).next().is_some()
    }
}
