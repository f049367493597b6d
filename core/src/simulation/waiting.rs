//! The model, continued: the waiters, their order, and how they leave.

use super::model::{Asked, Client, Model, Reply, Waiting};
use super::names::LockName;
use crate::lock::{Room, WaitKind};

impl Model {
    /// An owner waits once for a lock: in its former place for the same locks, or anew for others.
    pub(super) fn wait(&mut self, new: Waiting) {
        let formers = self.formers(&new.asked);
        let former = formers.first().filter(|former| new.asked.names.are(&former.asked.names));
        let former = former.filter(|_| formers.len() == 1).copied();
        if former.is_none_or(|former| former.kind != new.kind) && !self.has_room(&new) {
            return self.answer(new.client, Reply::QueueFull);
        }
        for former in formers.iter().filter(|former| former.kind == WaitKind::Blocked) {
            self.answer(former.client, Reply::Replaced);
        }
        if let Some(Waiting { client, since, .. }) = former {
            let at = self.waiters.iter().position(|waiting| waiting.client == client);
            self.waiters[at.expect("it waits")] = Waiting { since, ..new };
            return;
        }
        for former in formers {
            self.leave(former.client);
        }
        if !new.asked.names.is_one() {
            self.seen_by_several.extend(new.asked.names.iter());
        }
        self.waiters.push(new);
    }

    fn formers(&self, asked: &Asked) -> Vec<Waiting> {
        let is_former = |other: &&Waiting| {
            other.asked.owner == asked.owner && other.asked.names.meet(&asked.names)
        };
        self.waiters.iter().filter(is_former).copied().collect()
    }

    /// Waiters on connections and waiters with tickets have separate limits. Each lock that one waits for counts.
    fn has_room(&self, new: &Waiting) -> bool {
        let all = || self.waiters.iter().filter(|other| other.kind == new.kind);
        let places: usize = all().map(|other| other.asked.names.len()).sum();
        let of_lock = |name| all().filter(|other| other.asked.names.contains(name)).count();
        let Room { for_all, per_lock, .. } = self.room(new.kind);
        places + new.asked.names.len() <= for_all
            && new.asked.names.iter().all(|name| of_lock(name) < per_lock)
    }

    pub(super) fn room(&self, kind: WaitKind) -> Room {
        let (for_all, per_lock) = match kind {
            WaitKind::Ticket => (self.most_tickets, self.most_tickets),
            WaitKind::Blocked => (self.most_waiters, self.most_waiters_per_lock),
        };
        Room { for_all, per_lock, ..Room::UNLIMITED }
    }

    /// A release without a fence gives up its owner's ticket.
    pub(super) fn gives_up_ticket(&mut self, name: LockName, owner: &str) {
        let ticket = self.waits(name, owner).filter(|waiting| waiting.kind == WaitKind::Ticket);
        ticket.map(|ticket| self.leave(ticket.client));
    }

    /// A client leaves its queue. Another function says what the client is told, if anything.
    pub(super) fn leave(&mut self, client: Client) -> Option<Waiting> {
        let at = self.waiters.iter().position(|waiting| waiting.client == client)?;
        let gone = self.waiters.remove(at);
        for name in gone.asked.names.iter() {
            if !self.anyone_waits_for(*name) {
                self.seen.remove(name);
                self.seen_by_several.remove(name);
            }
        }
        Some(gone)
    }

    pub(super) fn waiter_of(&self, client: Client) -> Option<Waiting> {
        self.waiters.iter().find(|waiting| waiting.client == client).copied()
    }

    /// Whether this waiter for one lock, which has left, came after another waiter for the same lock.
    pub(super) fn waits_behind(&self, gone: &Waiting) -> bool {
        gone.asked.names.is_one()
            && self.waiters_for(gone.asked.names[0]).any(|waiting| waiting.since < gone.since)
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
        self.waiters.iter().filter(move |waiting| waiting.asked.names.contains(&name))
    }

    pub(super) fn first_for(&self, name: LockName) -> Option<Waiting> {
        self.waiters_for(name).next().copied()
    }

    pub(super) fn waits(&self, name: LockName, owner: &str) -> Option<Waiting> {
        self.waiters_for(name).find(|waiting| waiting.asked.owner == owner).copied()
    }

    pub(super) fn anyone_waits_for(&self, name: LockName) -> bool {
        self.waiters_for(name).next().is_some()
    }
}
