//! Clients that begin to wait, and clients that leave.

use super::{Answer, Engine, Host};
use crate::command::Error;
use crate::lock::{
    Departed, Joined, KeptOwner, KeptTicket, Monotonic, Name, Names, Owner, Queues, Renewed, Room,
    TicketRequest, Told, WaitKind, Waiter, WaiterId, Wanted,
};
use crate::observe::WaitEnd;

/// The state of a ticket when the command that asked for it is about to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    Queued,
    /// The ticket's turn has come already, or this server no longer decides.
    Over,
}

/// Why there is no room for another waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NoRoom {
    OnTheServer,
    ForThisLock,
}

impl<C> Engine<C> {
    /// Whether this owner may wait for the locks.
    pub fn has_room<H: Host<Client = C>>(
        &self,
        host: &H,
        names: Names<'_>,
        owner: Owner<'_>,
        kind: WaitKind,
        room: Room,
    ) -> Result<(), NoRoom> {
        let is_full = |queues: &Queues<C>, name| queues.waiting_for(name, kind) >= room.per_lock;
        let (has_room, full) = self.with_queues(|queues| {
            let has_room = queues.has_room(names, owner, kind, room);
            (has_room, names.iter().find(|name| !has_room && is_full(queues, *name)))
        });
        if has_room {
            return Ok(());
        }
        let (name, now) = (full.unwrap_or(names.first), host.now());
        self.with_observer(|observer| observer.queue_full(name, owner.as_bytes(), now));
        Err(if full.is_some() { NoRoom::ForThisLock } else { NoRoom::OnTheServer })
    }

    /// Queues a blocked client, or an owner with a ticket. Call [`Engine::settle_joined`] next.
    pub fn join<H: Host<Client = C>>(
        &self,
        host: &H,
        names: Names<'_>,
        waiter: Waiter<C>,
    ) -> WaiterId {
        self.changes_due();
        if self.has_bindings() {
            for name in names.iter().filter(|name| !self.is_contended(*name)) {
                self.bindings.borrow_mut().demand(name);
            }
        }
        let (name, owner, since) = (names.first, waiter.owner.clone(), waiter.since);
        let (joined, waiters) =
            self.with_queues(|queues| (queues.join(names, waiter), queues.blocked()));
        let id = match joined {
            Joined::Queued(id) => id,
            Joined::Anew(id, given_up) => {
                for Departed { name, waiter } in given_up {
                    self.give_up_places(host, name.as_name(), waiter);
                }
                id
            }
            // The wait continues, perhaps on a connection now.
            Joined::InPlaceOf(id, Told::Ticket(_)) => {
                self.with_observer(|observer| observer.wait_on_connections(waiters));
                return id;
            }
            Joined::InPlaceOf(id, Told::Blocked(former)) => {
                self.wait_ended(host, name, &owner, since, WaitEnd::Refused);
                host.answer(name, former, owner.clone(), Answer::Refused(Error::Replaced));
                id
            }
        };
        let owner = owner.as_owner().as_bytes();
        self.with_observer(|observer| observer.wait_started(name, owner, waiters));
        id
    }

    /// Ends a former wait of an owner that waits for other locks now.
    fn give_up_places<H: Host<Client = C>>(&self, host: &H, name: Name<'_>, former: Waiter<C>) {
        let Waiter { owner, since, told, .. } = former;
        match told {
            Told::Ticket(_) => self.wait_ended(host, name, &owner, since, WaitEnd::Abandoned),
            Told::Blocked(client) => {
                self.wait_ended(host, name, &owner, since, WaitEnd::Refused);
                host.answer(name, client, owner, Answer::Refused(Error::Replaced));
            }
        }
    }

    /// Settles the lock that a client has begun to wait for: the lock may not have been looked at for its waiters yet.
    pub fn settle_joined<H: Host<Client = C>>(&self, host: &H, lock: &H::Lock<'_>) {
        self.settle_if_suspect(host, std::slice::from_ref(lock), None);
    }

    /// Keeps the place of an owner that has a ticket already. If the owner has none, call [`Engine::take_ticket`] next.
    pub fn renew_ticket<H: Host<Client = C>>(
        &self,
        host: &H,
        names: Names<'_>,
        wanted: &Wanted<'_>,
        request: &TicketRequest<'_>,
    ) -> Renewed {
        let now = host.monotonic();
        let renewed = self.with_queues(|queues| queues.renew(names, wanted, request, now));
        if renewed == Renewed::Sooner {
            self.changes_due();
        }
        renewed
    }

    /// Queues an owner with a ticket.
    pub fn take_ticket<H: Host<Client = C>>(
        &self,
        host: &H,
        locks: &[H::Lock<'_>],
        names: Names<'_>,
        wanted: &Wanted<'_>,
        request: &TicketRequest<'_>,
        room: Room,
    ) -> Result<Taken, NoRoom> {
        let now = host.monotonic();
        let Wanted { owner, ttl, share } = *wanted;
        let TicketRequest { ticket, client, ephemeral } = *request;
        self.has_room(host, names, owner, WaitKind::Ticket, room)?;
        let waiter = Waiter {
            owner: owner.into(),
            ttl,
            share,
            since: now,
            gives_up: Some(ticket.ends(now)),
            ephemeral,
            told: Told::Ticket(KeptTicket::new(ticket, client)),
        };
        let id = self.join(host, names, waiter);
        for lock in locks {
            self.settle_joined(host, lock);
        }
        let is_queued = self.with_queues(|queues| queues.has(id));
        Ok(if is_queued { Taken::Queued } else { Taken::Over })
    }

    /// Takes a client that waits out of its queue, without an answer. `None` if it does not wait.
    #[must_use]
    pub fn leave<H: Host<Client = C>>(&self, host: &H, id: WaiterId) -> Option<C> {
        let Departed { name, waiter } = self.with_queues(|queues| queues.leave(id))?;
        self.changes_due();
        let Waiter { owner, since, told, .. } = waiter;
        self.wait_ended(host, name.as_name(), &owner, since, WaitEnd::Abandoned);
        match told {
            Told::Blocked(client) => Some(client),
            Told::Ticket(_) => None,
        }
    }

    /// The owner of a ticket does not want the lock any more. Nothing changes if it has no ticket.
    pub(super) fn give_up_ticket<H: Host<Client = C>>(
        &self,
        host: &H,
        name: Name<'_>,
        owner: Owner<'_>,
    ) {
        let Some(left) = self.with_queues(|queues| queues.leave_by_ticket(name, owner)) else {
            return;
        };
        self.changes_due();
        let Waiter { owner, since, .. } = left.waiter;
        self.wait_ended(host, name, &owner, since, WaitEnd::Abandoned);
    }

    /// Notes that a request found the lock held and its client cannot wait.
    pub fn cannot_wait(&self, name: Name<'_>) {
        self.with_observer(|observer| observer.refused(name));
    }

    pub(super) fn wait_ended<H: Host<Client = C>>(
        &self,
        host: &H,
        name: Name<'_>,
        owner: &KeptOwner,
        since: Monotonic,
        end: WaitEnd,
    ) {
        let now = host.clocks();
        let waited_us = now.monotonic.micros_since(since);
        let owner = owner.as_owner().as_bytes();
        self.with_observer(|observer| observer.wait_ended(name, owner, waited_us, end, now.wall));
    }
}
