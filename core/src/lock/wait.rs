//! The two ways to wait: on a blocked connection, or by a ticket.

use super::lease::{Monotonic, Patience, Ttl};
use std::rc::Rc;

/// How a client is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'r> {
    /// Its connection waits for the reply, this long.
    Block(Patience),
    /// It gets a reply at once, and asks again later.
    Ticket(Ticket<'r>),
}

impl Wait<'_> {
    pub const fn kind(&self) -> WaitKind {
        match self {
            Self::Block(_) => WaitKind::Blocked,
            Self::Ticket(_) => WaitKind::Ticket,
        }
    }

    /// When the owner gives up its place, if it asks now. `None` if it waits without limit.
    pub fn gives_up(&self, now: Monotonic) -> Option<Monotonic> {
        match self {
            Self::Block(patience) => patience.ends(now),
            Self::Ticket(ticket) => Some(ticket.ends(now)),
        }
    }
}

/// A place in a queue that no connection is parked for. The owner alone identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket<'r> {
    /// How long the place is kept for an owner that does not ask again. After the grant, the lock is kept for as long.
    pub lasts: Ttl,
    /// The channel that its grant is published on.
    pub channel: Option<&'r [u8]>,
}

impl Ticket<'_> {
    /// When the place is given up, if the owner asks now.
    pub const fn ends(&self, now: Monotonic) -> Monotonic {
        now.plus_millis(self.lasts.millis())
    }
}

/// A [`Ticket`] as a copy that outlives the request.
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
}

/// How a waiter learns that its turn has come.
#[derive(Debug, PartialEq, Eq)]
pub enum KeptWait<C> {
    /// On its connection, as the caller knows it.
    Blocked(C),
    /// When it asks again.
    Ticket(KeptTicket),
}

/// Each kind of waiter has its own limits. When patience ends, blocked waiters come first, because they get a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    Blocked,
    Ticket,
}

impl<C> KeptWait<C> {
    pub const fn kind(&self) -> WaitKind {
        match self {
            Self::Blocked(_) => WaitKind::Blocked,
            Self::Ticket(_) => WaitKind::Ticket,
        }
    }

    /// The channel that the grant will be published on.
    pub(super) const fn channel(&self) -> Option<&Rc<[u8]>> {
        match self {
            Self::Blocked(_) => None,
            Self::Ticket(ticket) => ticket.channel.as_ref(),
        }
    }

    pub(super) const fn channel_mut(&mut self) -> Option<&mut Rc<[u8]>> {
        match self {
            Self::Blocked(_) => None,
            Self::Ticket(ticket) => ticket.channel.as_mut(),
        }
    }

    /// The lease of a grant to a waiter that asked for this ttl. For a ticket it is no longer than the ticket lasts:
    /// nobody may come to claim the grant.
    pub fn lease(&self, ttl: Ttl) -> Ttl {
        match self {
            Self::Blocked(_) => ttl,
            Self::Ticket(ticket) => ttl.min(ticket.lasts),
        }
    }
}
