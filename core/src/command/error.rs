//! Every error that a client can get, worded once: what was wrong, and what is allowed.

use super::args::{Also, LONGEST_CHANNEL, LONGEST_KEY_TO_WAIT_FOR};
use crate::lock::{Fence, Grace, NotALock, Owner, Patience, Share, Ttl};
use std::fmt;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident $({ $field:ident: $type:ty })? => $text:literal $(, $value:expr)?;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Error {
            $($(#[$doc])* $name $({ $field: $type })?,)*
        }

        impl fmt::Display for Error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name $({ $field })? => write!(f, $text $(, $value)?),)*
                }
            }
        }
    };
}

errors! {
    /// The server words this error, and names the command.
    WrongArity => "ERR wrong number of arguments";
    OwnerLength => "ERR owner must be 1 to {} bytes long", Owner::LONGEST;
    TtlNotPositive => "ERR ttl must be a positive integer (milliseconds)";
    TtlAboveLimit { limit: Ttl } => "ERR ttl must be at most {} milliseconds (config leasehold.max-ttl)", limit.millis();
    FenceNotANumber => "ERR fence must be an integer from 0 to {}", Fence::LAST.number();
    FenceTooFarAhead => "ERR fence must be at most a day ahead of the server's clock";
    UnknownOption => "ERR unknown option, expected SHARE holders, BLOCK milliseconds, TICKET milliseconds, NOTIFY channel, EPHEMERAL grace or ALSO numkeys key [key ...], each at most once";
    ShareOutOfRange => "ERR SHARE must be an integer from 0 to {} (holders at a time)", Share::LARGEST;
    BlockWithTicket => "ERR BLOCK and TICKET cannot be combined";
    NotifyWithoutTicket => "ERR NOTIFY needs TICKET";
    KeyTooLongToWait => "ERR key must be at most {} bytes long with BLOCK or TICKET", LONGEST_KEY_TO_WAIT_FOR;
    PatienceOutOfRange => "ERR BLOCK must be an integer from 0 to {} (milliseconds)", Patience::LONGEST_MILLIS;
    TicketOutOfRange { limit: Ttl } => "ERR TICKET must be an integer from 1 to {} (milliseconds, config leasehold.max-ttl)", limit.millis();
    ChannelLength => "ERR channel must be 1 to {} bytes long", LONGEST_CHANNEL;
    ChannelReserved => "ERR channel must not be called ALSO";
    ChannelDenied => "NOPERM this user has no permissions to access the channel given to NOTIFY";
    /// Redis before 7.0.6 does not tell a module the user's permissions, or not safely.
    NotifyNotPossible => "ERR NOTIFY is not possible on this server, which does not tell modules what a user may do";
    GraceOutOfRange => "ERR EPHEMERAL must be an integer from 0 to {} (milliseconds)", Grace::LONGEST_MILLIS;
    KeyNumberOutOfRange => "ERR numkeys must be an integer from 1 to {}", Also::MOST_KEYS;
    FewerKeys => "ERR numkeys is larger than the number of keys";
    KeyTwice => "ERR a key is named twice";
    CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot";
    /// Some of the locks may be on another node already.
    SlotIsMoving => "TRYAGAIN Multiple keys request during rehashing of slot";
    CountNotPositive => "ERR unknown option, expected COUNT and a positive integer or -1";
    NeitherCountNorReset => "ERR unknown option, expected a positive integer, -1 or RESET";
    NeitherCursorNorCount => "ERR unknown option, expected CURSOR and an integer that the command returned, or COUNT and a positive integer or -1, each at most once";
    QueueFull => "QUEUEFULL too many waiters (config leasehold.max-waiters)";
    ShareFull => "QUEUEFULL too many waiters for maxclients (config leasehold.max-waiters-percent)";
    LockQueueFull => "QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)";
    TicketsFull => "QUEUEFULL too many tickets (config leasehold.max-tickets)";
    NoConnection => "ERR EPHEMERAL is not possible in a script or a call of another module, which have no connection";
    /// A replica hands no lock on.
    NobodyWaitsOnReplicas => "ERR BLOCK and TICKET are not possible on a replica, wait at its primary";
    /// Some servers do not block a client with subscriptions.
    SubscribersCannotBeBlocked => "ERR BLOCK is not possible on a connection with a subscription on this server";
    CannotBeBlocked => "ERR BLOCK is not possible, the server does not block this client";
    Replaced => "REPLACED a newer request of the same owner took this place in the queue";
    Dropped => "DROPPED somebody dropped this owner and its place in the queue (LOCK.DROP)";
    DropOnReplica => "READONLY LOCK.DROP is not possible on a replica, ask its primary";
    DropInTransactionOfCluster => "ERR LOCK.DROP is not possible in transactions and scripts of a cluster";
    /// Redis before 7.0.6 does not tell a module the user's permissions, or not safely.
    DropNeedsAllKeys => "NOPERM LOCK.DROP needs a user with ~* on this server, which does not tell modules what a user may do";
    GrantedElsewhere => "TRYAGAIN this node does not grant the lock any more, ask again";
    /// The server saves the key itself at this moment, or has just paused writes.
    NotNow => "TRYAGAIN the server cannot change this key now, ask again";
    Demoted => "UNBLOCKED this server became a replica, ask the new primary";
    WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value";
    NotHolder => "NOTHOLDER this owner does not hold the lock by this fence, nothing was run";
    GuardedItself => "ERR LOCK.GUARD cannot guard itself";
    GuardedUnknown => "ERR unknown command to guard";
    GuardedArity => "ERR wrong number of arguments for the command to guard";
    GuardedTransaction => "ERR LOCK.GUARD does not run commands of transactions, use it inside MULTI";
    GuardedScript => "ERR LOCK.GUARD does not run scripts or functions, call LOCK.GUARD or LOCK.CHECK in the script";
    GuardedConnection => "ERR LOCK.GUARD does not run commands that act on a connection or a subscription";
    GuardedAdministration => "ERR LOCK.GUARD does not run commands for administrators";
    GuardedModule => "ERR LOCK.GUARD does not run commands of other modules, call LOCK.CHECK and the command in a script";
    GuardedDenied => "NOPERM this user has no permissions to run the command to guard, or to access its keys or channels";
    /// Redis 6.2 does not tell a module the user's permissions.
    GuardNeedsAllCommands => "NOPERM LOCK.GUARD needs a user with +@all on this server, which does not tell modules what a user may do";
    GuardedForNobody => "NOPERM LOCK.GUARD needs a user, and a call of another module may have none";
    CommandRenamed => "ERR LOCK.GUARD is not possible, the command COMMAND is renamed or disabled (rename-command)";
    GuardedOutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.";
    GuardedRefused => "ERR the server refused the command to guard";
    GuardedHeldBack => "ERR the command to guard was run, but another module holds back its reply";
    /// Replicas would repeat the script, and each would issue fences of its own.
    ScriptRepeated => "ERR no lock changes in a script that replicas repeat (config lua-replicate-commands)";
    NoFenceLeft => "ERR no fence left: the server's clock is past the year 2255";
    NotReplicated => "ERR the server cannot replicate the change, nothing was changed";
    /// A panic was caught.
    Internal => "ERR internal error, see the server's log";
}

impl From<NotALock> for Error {
    fn from(_: NotALock) -> Self {
        Self::WrongType
    }
}
