//! Every error that a client can get, worded once: what was wrong, and what is allowed.

use crate::lock::{Fence, Grace, NotALock, Owner, Patience, Share, Ttl};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The server words this error, and names the command.
    WrongArity,
    OwnerLength,
    TtlNotPositive,
    TtlAboveLimit {
        limit: Ttl,
    },
    FenceNotANumber,
    FenceTooFarAhead,
    UnknownOption,
    ShareOutOfRange,
    BlockWithTicket,
    NotifyWithoutTicket,
    /// Clients cannot wait for a lock with such a name.
    KeyTooLongToWait,
    PatienceOutOfRange,
    TicketOutOfRange {
        limit: Ttl,
    },
    ChannelLength,
    ChannelReserved,
    /// The user may not publish on the channel.
    ChannelDenied,
    /// Redis before 7.0.6 does not tell a module the user's permissions, or not safely.
    NotifyNotPossible,
    GraceOutOfRange,
    KeyNumberOutOfRange,
    FewerKeys,
    KeyTwice,
    /// In a cluster all locks of a request must be in one slot.
    CrossSlot,
    /// Some of the locks may be on another node already.
    SlotIsMoving,
    CountNotPositive,
    NeitherCountNorReset,
    QueueFull,
    ShareFull,
    LockQueueFull,
    TicketsFull,
    /// There is no connection to bind a hold to.
    NoConnection,
    /// A replica hands no lock on.
    NobodyWaitsOnReplicas,
    /// Some servers do not block a client with subscriptions.
    SubscribersCannotBeBlocked,
    /// The server did not block the client, and gave no reason.
    CannotBeBlocked,
    /// A newer request of the same owner has taken this request's place.
    Replaced,
    /// The wait ended because this cluster node may no longer grant the lock.
    GrantedElsewhere,
    /// The wait ended because this server became a replica.
    Demoted,
    WrongType,
    /// The sender of a guarded command does not hold the lock by this fence.
    NotHolder,
    GuardedItself,
    GuardedUnknown,
    /// The guarded command has the wrong number of words.
    GuardedArity,
    GuardedTransaction,
    GuardedScript,
    GuardedConnection,
    GuardedAdministration,
    GuardedModule,
    /// The user may not run the guarded command, or not on these keys and channels.
    GuardedDenied,
    /// Redis 6.2 does not tell a module the user's permissions.
    GuardNeedsAllCommands,
    /// No user's permissions apply to the command.
    GuardedForNobody,
    /// The server does not describe its commands.
    CommandRenamed,
    GuardedOutOfMemory,
    /// The server did not run the guarded command, and gave no reason.
    GuardedRefused,
    /// The guarded command was executed, but nobody learns its reply.
    GuardedHeldBack,
    /// Replicas would repeat the script, and each would issue fences of its own.
    ScriptRepeated,
    NoFenceLeft,
    /// The server would not replicate the change.
    NotReplicated,
    /// A panic was caught.
    Internal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongArity => "ERR wrong number of arguments",
            Self::OwnerLength => {
                return write!(f, "ERR owner must be 1 to {} bytes long", Owner::LONGEST);
            }
            Self::TtlNotPositive => "ERR ttl must be a positive integer (milliseconds)",
            Self::TtlAboveLimit { limit } => {
                return write!(f, "ERR ttl must be at most {} milliseconds (config leasehold.max-ttl)", limit.millis());
            }
            Self::FenceNotANumber => {
                return write!(f, "ERR fence must be an integer from 0 to {}", Fence::LAST.number());
            }
            Self::FenceTooFarAhead => "ERR fence must be at most a day ahead of the server's clock",
            Self::UnknownOption => "ERR unknown option, expected SHARE holders, BLOCK milliseconds, TICKET milliseconds, NOTIFY channel, EPHEMERAL grace or ALSO numkeys key [key ...], each at most once",
            Self::BlockWithTicket => "ERR BLOCK and TICKET cannot be combined",
            Self::NotifyWithoutTicket => "ERR NOTIFY needs TICKET",
            Self::KeyTooLongToWait => {
                return write!(f, "ERR key must be at most {} bytes long with BLOCK or TICKET", super::args::LONGEST_KEY_TO_WAIT_FOR);
            }
            Self::TicketOutOfRange { limit } => {
                return write!(f, "ERR TICKET must be an integer from 1 to {} (milliseconds, config leasehold.max-ttl)", limit.millis());
            }
            Self::ChannelReserved => "ERR channel must not be called ALSO",
            Self::KeyNumberOutOfRange => {
                return write!(f, "ERR numkeys must be an integer from 1 to {}", super::Also::MOST_KEYS);
            }
            Self::FewerKeys => "ERR numkeys is larger than the number of keys",
            Self::KeyTwice => "ERR a key is named twice",
            Self::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot",
            Self::SlotIsMoving => "TRYAGAIN Multiple keys request during rehashing of slot",
            Self::ChannelLength => {
                return write!(f, "ERR channel must be 1 to {} bytes long", super::args::LONGEST_CHANNEL);
            }
            Self::ChannelDenied => "NOPERM this user has no permissions to access the channel given to NOTIFY",
            Self::NotifyNotPossible => "ERR NOTIFY is not possible on this server, which does not tell modules what a user may do",
            Self::ShareOutOfRange => {
                return write!(f, "ERR SHARE must be an integer from 0 to {} (holders at a time)", Share::LARGEST);
            }
            Self::PatienceOutOfRange => {
                return write!(f, "ERR BLOCK must be an integer from 0 to {} (milliseconds)", Patience::LONGEST_MILLIS);
            }
            Self::GraceOutOfRange => {
                return write!(f, "ERR EPHEMERAL must be an integer from 0 to {} (milliseconds)", Grace::LONGEST_MILLIS);
            }
            Self::CountNotPositive => "ERR unknown option, expected COUNT and a positive integer or -1",
            Self::NeitherCountNorReset => "ERR unknown option, expected a positive integer, -1 or RESET",
            Self::QueueFull => "QUEUEFULL too many waiters (config leasehold.max-waiters)",
            Self::ShareFull => "QUEUEFULL too many waiters for maxclients (config leasehold.max-waiters-percent)",
            Self::LockQueueFull => "QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)",
            Self::TicketsFull => "QUEUEFULL too many tickets (config leasehold.max-tickets)",
            Self::NoConnection => "ERR EPHEMERAL is not possible in a script or a call of another module, which have no connection",
            Self::NobodyWaitsOnReplicas => "ERR BLOCK and TICKET are not possible on a replica, wait at its primary",
            Self::SubscribersCannotBeBlocked => "ERR BLOCK is not possible on a connection with a subscription on this server",
            Self::CannotBeBlocked => "ERR BLOCK is not possible, the server does not block this client",
            Self::Replaced => "REPLACED a newer request of the same owner took this place in the queue",
            Self::GrantedElsewhere => "TRYAGAIN this node does not grant the lock any more, ask again",
            Self::Demoted => "UNBLOCKED this server became a replica, ask the new primary",
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NotHolder => "NOTHOLDER this owner does not hold the lock by this fence, nothing was run",
            Self::GuardedItself => "ERR LOCK.GUARD cannot guard itself",
            Self::GuardedUnknown => "ERR unknown command to guard",
            Self::GuardedArity => "ERR wrong number of arguments for the command to guard",
            Self::GuardedTransaction => "ERR LOCK.GUARD does not run commands of transactions, use it inside MULTI",
            Self::GuardedScript => "ERR LOCK.GUARD does not run scripts or functions, call LOCK.GUARD or LOCK.CHECK in the script",
            Self::GuardedConnection => "ERR LOCK.GUARD does not run commands that act on a connection or a subscription",
            Self::GuardedAdministration => "ERR LOCK.GUARD does not run commands for administrators",
            Self::GuardedModule => "ERR LOCK.GUARD does not run commands of other modules, call LOCK.CHECK and the command in a script",
            Self::GuardedDenied => "NOPERM this user has no permissions to run the command to guard, or to access its keys or channels",
            Self::GuardNeedsAllCommands => "NOPERM LOCK.GUARD needs a user with +@all on this server, which does not tell modules what a user may do",
            Self::GuardedForNobody => "NOPERM LOCK.GUARD needs a user, and a call of another module may have none",
            Self::CommandRenamed => "ERR LOCK.GUARD is not possible, the command COMMAND is renamed or disabled (rename-command)",
            Self::GuardedOutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::GuardedHeldBack => "ERR the command to guard was run, but another module holds back its reply",
            Self::GuardedRefused => "ERR the server refused the command to guard",
            Self::ScriptRepeated => "ERR no lock changes in a script that replicas repeat (config lua-replicate-commands)",
            Self::NoFenceLeft => "ERR no fence left: the server's clock is past the year 2255",
            Self::NotReplicated => "ERR the server cannot replicate the change, nothing was changed",
            Self::Internal => "ERR internal error, see the server's log",
        })
    }
}

impl From<NotALock> for Error {
    fn from(_: NotALock) -> Self {
        Self::WrongType
    }
}
