//! Clients that begin to wait, and clients that leave.

use super::{Answer, Authority, Done, Engine, Host, Lock};
use crate::command::{Decide, Error};
use crate::lock::{
    Decision, Departed, Joined, KeptOwner, KeptTicket, Monotonic, Name, Names, Owner, Queues,
    Renewed, TicketRequest, Told, Wait, WaitKind, Waiter, WaiterId, Wanted,
};
use crate::observe::WaitEnd;
use std::slice;

impl<C> Engine<C> {
    /// Queues an owner whose request cannot be granted now, or keeps the places that it has by its tickets.
    ///
    /// The decision is [`Decision::Busy`] where the client cannot be blocked: in a transaction the client gets nil, as
    /// if its patience had ended at once. If the client could expect to wait and cannot, the result is an error: after
    /// nil the client would ask again at once, forever.
    #[inline(never)]
    pub(super) fn begin_to_wait<'r, H: Host<Client = C>>(
        &self,
        host: &H,
        locks: &[H::Lock<'_>],
        request: &'r impl Decide,
        wait: Wait<'r>,
    ) -> Result<Done<'r>, Error> {
        let done = |decision| Ok(Done { decision, released: 0 });
        let ([first, also @ ..], Some(Wanted { owner, ttl, share })) = (locks, request.wanted())
        else {
            return done(Decision::Wait(wait));
        };
        let ephemeral = self.ephemeral(host, request)?;
        let also: Vec<_> = also.iter().map(|lock| lock.name().key).collect();
        let names = Names { first: first.name(), also: &also };
        let now = host.monotonic();
        match wait {
            Wait::Block(_) if !host.may_block() => {
                self.cannot_wait(names.first);
                return done(Decision::Busy { at: 0, owner });
            }
            Wait::Block(_) => {}
            Wait::Ticket(ticket) => {
                let request = TicketRequest { ticket, client: host.client_id(), ephemeral };
                let wanted = Wanted { owner, ttl, share };
                match self.with_queues(|queues| queues.renew(names, &wanted, &request, now)) {
                    Renewed::Yes => return done(Decision::Wait(wait)),
                    Renewed::Sooner => {
                        self.changes_due();
                        return done(Decision::Wait(wait));
                    }
                    Renewed::No => {}
                }
            }
        }
        if host.authority() == Authority::Replica {
            self.cannot_wait(names.first);
            return Err(Error::NobodyWaitsOnReplicas);
        }
        self.check_room(host, names, owner, wait.kind())?;
        let told = match wait {
            Wait::Ticket(ticket) => Told::Ticket(KeptTicket::new(ticket, host.client_id())),
            Wait::Block(_) => {
                let client = host.block(request.is_minted());
                Told::Blocked(client.inspect_err(|_| self.cannot_wait(names.first))?)
            }
        };
        let (owner, gives_up) = (KeptOwner::from(owner), wait.gives_up(now));
        let waiter = Waiter { owner, ttl, share, since: now, gives_up, ephemeral, told };
        let id = self.join(host, names, waiter);
        host.waits(id);
        // The locks may not have been looked at for their waiters yet.
        for lock in locks {
            self.settle_if_suspect(host, slice::from_ref(lock), None);
        }
        let is_queued = self.with_queues(|queues| queues.has(id));
        match wait {
            // The turn of the ticket has come already. The lease lasts as long as the ticket would have; the owner is
            // here, so it gets the lease that it asked for.
            Wait::Ticket(_) if !is_queued => self.change_at_once(host, locks, request),
            Wait::Ticket(_) | Wait::Block(_) => done(Decision::Wait(wait)),
        }
    }

    /// Whether this owner may wait for the locks in this way, without exceeding a limit.
    fn check_room<H: Host<Client = C>>(
        &self,
        host: &H,
        names: Names<'_>,
        owner: Owner<'_>,
        kind: WaitKind,
    ) -> Result<(), Error> {
        let room = host.room(kind);
        let is_full = |queues: &Queues<C>, name| queues.waiting_for(name, kind) >= room.per_lock;
        let refused = self.with_queues(|queues| {
            if queues.has_room(names, owner, kind, room) {
                return None;
            }
            let full = names.iter().find(|name| is_full(queues, *name));
            let error = match kind {
                WaitKind::Ticket => Error::TicketsFull,
                WaitKind::Blocked if full.is_some() => Error::LockQueueFull,
                WaitKind::Blocked
                    if room.is_share_of_all && queues.blocked() >= room.connections =>
                {
                    Error::ShareFull
                }
                WaitKind::Blocked => Error::QueueFull,
            };
            Some((full.unwrap_or(names.first), error))
        });
        let Some((name, error)) = refused else { return Ok(()) };
        let now = host.now();
        self.with_observer(|observer| observer.queue_full(name, owner.as_bytes(), now));
        Err(error)
    }

    /// Queues a waiter. The queue of a lock that nobody waited for is marked, until somebody looks at the lock.
    fn join<H: Host<Client = C>>(&self, host: &H, names: Names<'_>, waiter: Waiter<C>) -> WaiterId {
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
    fn cannot_wait(&self, name: Name<'_>) {
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
