//! What the engine asks of the server.
//!
//! The module implements these traits with the functions of the real server, the simulation with a virtual server. All
//! methods take `&self`: the server may call the module back in any of them, and so the engine.

use crate::command::Error;
use crate::lock::{
    Deadline, Fence, KeptNames, KeptOwner, KeptTicket, Limits, Moment, Monotonic, Name, Now, Owner,
    Room, Stored, WaitKind, WaiterId, Write,
};
use crate::observe::Event;

/// A server, during one call of the module.
pub trait Host {
    type Client;
    /// One lock, in the selected database.
    type Lock<'n>: Lock
    where
        Self: 'n;

    fn now(&self) -> Moment;

    /// A clock that nobody can set.
    fn monotonic(&self) -> Monotonic;

    fn clocks(&self) -> Now {
        Now { wall: self.now(), monotonic: self.monotonic() }
    }

    /// What the server as a whole allows now, whatever the key. Asking costs next to nothing.
    fn authority(&self) -> Authority;

    fn limits(&self) -> Limits;

    /// How many waiters are answered, and how many locks are settled for each cause, before other clients have their
    /// turn again.
    fn batch(&self) -> usize {
        500
    }

    /// How many waiters of one lock are answered before other locks have their turn again.
    fn slice(&self) -> usize {
        50
    }

    /// How long a grant is kept for its owner if it was published and no subscriber received it.
    fn window_millis(&self) -> u64 {
        1_000
    }

    fn room(&self, kind: WaitKind) -> Room;

    /// Whether the command being executed may block its client. In a transaction and in a script it may not.
    fn may_block(&self) -> bool;

    /// Blocks the client of the command being executed. A client that asked for a minted owner does not know its owner
    /// yet.
    fn block(&self, is_minted: bool) -> Result<Self::Client, Error>;

    /// This waiter is queued, and its turn has not come at once.
    fn waits(&self, id: WaiterId);

    /// The client whose command is being executed, to show. In a script it is of no connection.
    fn client_id(&self) -> u64;

    /// The connection whose command is being executed. `None` where there is none, as in a script.
    fn connection(&self) -> Option<u64>;

    fn is_connected(&self, connection: u64) -> bool;

    /// Holds are bound to connections from now on: the host must tell the engine when a connection ends.
    fn hear_of_connections(&self);

    /// Selects the database of this lock, in a timer rather than in a client's command. `None` if there is no such
    /// database.
    fn lock<'n>(&'n self, name: Name<'n>) -> Option<Self::Lock<'n>>;

    /// Another lock in the selected database.
    fn beside<'n>(&'n self, name: Name<'n>) -> Self::Lock<'n>;

    /// Tells a client that waits on its connection how its wait ended. It does not wait any more. No key is open.
    fn answer(&self, name: Name<'_>, client: Self::Client, owner: KeptOwner, answer: Answer);

    /// Announces how the wait of an owner with a ticket ended; the owner asks again. Its grant is published if it asked
    /// for that. No key is open.
    fn announce(
        &self,
        name: Name<'_>,
        ticket: &KeptTicket,
        owner: Owner<'_>,
        answer: &Answer,
    ) -> Announced;

    /// The error for a waiter on a server that has become a replica.
    fn demoted(&self) -> Error;

    /// The slot of a lock turned out to be on another node, and no server event had announced the move.
    fn slot_has_gone(&self);

    fn warn(&self, warning: Warning);
}

/// One lock, in the selected database.
pub trait Lock {
    type Key<'s>: Key
    where
        Self: 's;

    fn name(&self) -> Name<'_>;

    /// Whether this server would let a client read the key.
    fn may_read(&self) -> Authority;

    fn may_write(&self, initiator: Initiator) -> Authority;

    /// Fails with [`Error::NotNow`] if the key exists and the server uses it itself at this moment. Opening it to be
    /// read never fails.
    fn open(&self, mode: Mode) -> Result<Self::Key<'_>, Error>;

    /// Publishes a keyspace event. No key is open.
    fn publish(&self, event: Event);
}

/// An open key. Dropping it closes it.
pub trait Key {
    fn stored(&self) -> Stored<'_>;

    /// Writes, and tells replicas and the append-only file. If the write is refused, nothing has changed.
    fn write(&mut self, write: &Write<'_>) -> Result<(), Error>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    /// To see whether the module has anything to write. The server counts neither a use of the key nor a hit or a miss.
    Look,
    /// Like `Look`, but only to see whether one owner's hold is still there, whatever others hold.
    Peek,
    /// The lock may be granted.
    Write,
}

/// Whether the module may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Authority {
    Yes,
    /// Writes are paused: ask again in a moment.
    NotNow,
    /// The server refuses writes: too few replicas are in sync (`min-replicas-to-write`), or the disk fails.
    Refused,
    /// This server is a replica: its primary decides.
    Replica,
    /// The key's slot is on another node, or on its way there.
    NotOurs,
    /// The cluster is down: no node may write anything.
    ClusterDown,
}

/// Who causes a write of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// A client, whose command the server accepted.
    Client,
    Module,
}

/// Who hears how the wait by a ticket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Announced {
    /// Nobody is told.
    Silently,
    /// A grant was published, and this many subscribers of this server received it.
    To { receivers: usize },
}

/// How a wait ended.
#[derive(Debug)]
pub enum Answer {
    /// The locks are the client's, by a new grant.
    Granted { names: KeptNames, fence: Fence, deadline: Deadline },
    /// The locks were the client's already.
    Again {
        names: KeptNames,
        fence_number: u64,
        /// The leases last until this deadline at least.
        deadline: Deadline,
    },
    /// The waiter's patience ended.
    GaveUp,
    /// The waiter is told why it waits no longer.
    Refused(Error),
}

impl Answer {
    /// The fence of the waiter's hold, if it has one now.
    pub const fn fence_number(&self) -> Option<u64> {
        match self {
            Self::Granted { fence, .. } => Some(fence.number()),
            Self::Again { fence_number, .. } => Some(*fence_number),
            Self::GaveUp | Self::Refused(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The value of a lock has a fence that is not credible. The fence clock does not learn it.
    FenceNotCredible,
    /// The server evicts locks faster than the module puts them back. The keys of this many held locks are missing.
    EvictedTooFast { missing: usize },
}
