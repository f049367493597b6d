//! The two ways to wait: on a connection that is parked, or by a ticket.

use super::ephemeral::Ephemeral;
use super::lease::{Monotonic, Patience, Ttl};
use std::rc::Rc;

/// How a client that asks is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'r> {
    /// Its connection waits for the reply, this long.
    Block(Patience),
    /// It has its answer at once, and asks again.
    Ticket(Ticket<'r>),
}

/// A place in a queue that no connection is parked for. The owner is all that one shows to claim it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket<'r> {
    /// How long the place is kept for an owner that does not ask again, and how long the lock is then.
    pub lasts: Ttl,
    /// Where its grant is published.
    pub channel: Option<&'r [u8]>,
}

impl Ticket<'_> {
    /// When the place is given up, if it is asked for now.
    pub const fn ends(&self, now: Monotonic) -> Monotonic {
        now.plus_millis(self.lasts.millis())
    }
}

/// A request for a ticket.
#[derive(Clone, Copy, Debug)]
pub struct TicketRequest<'r> {
    pub ticket: Ticket<'r>,
    /// The connection that asks.
    pub client: u64,
    /// To what the hold is to be bound.
    pub ephemeral: Option<Ephemeral>,
}

/// The same as a ticket, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTicket {
    pub lasts: Ttl,
    pub channel: Option<Rc<[u8]>>,
    /// The connection that asked last.
    pub client: u64,
}

impl KeptTicket {
    pub fn new(ticket: Ticket<'_>, client: u64) -> Self {
        let Ticket { lasts, channel } = ticket;
        Self { lasts, channel: channel.map(Rc::from), client }
    }

    /// It was asked for again.
    pub(super) fn renew(&mut self, ticket: Ticket<'_>, client: u64) {
        let Ticket { lasts, channel } = ticket;
        (self.lasts, self.client) = (lasts, client);
        if self.channel.as_deref() != channel {
            self.channel = channel.map(Rc::from);
        }
    }
}

/// How a waiter is told that its turn has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Told<C> {
    /// On its connection, as the caller knows it.
    Blocked(C),
    /// When it asks again.
    Ticket(KeptTicket),
}

/// Those who wait either way have limits of their own. Whoever waits on a connection comes first when patience ends: it is
/// told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    Blocked,
    Ticket,
}

impl<C> Told<C> {
    pub const fn kind(&self) -> WaitKind {
        match self {
            Self::Blocked(_) => WaitKind::Blocked,
            Self::Ticket(_) => WaitKind::Ticket,
        }
    }

    /// The lease of a grant to one who asked for this ttl: nobody may come to claim that of a ticket.
    pub fn lease(&self, ttl: Ttl) -> Ttl {
        match self {
            Self::Blocked(_) => ttl,
            Self::Ticket(ticket) => ttl.min(ticket.lasts),
        }
    }
}
