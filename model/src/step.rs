//! What can happen next. Each step has the name of what does it in the code.

use crate::both::Which;
use crate::server::Held;

/// One step from a world to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A second passes, on all clocks.
    Tick,
    /// A client asks a server for the lock.
    Acquire {
        /// Who asks.
        client: Which,
        /// Who is asked.
        server: Which,
    },
    /// The answer to that arrives.
    Hear {
        /// At whom.
        client: Which,
    },
    /// A holder asks for more time.
    Extend {
        /// Who asks.
        client: Which,
        /// Who is asked.
        server: Which,
    },
    /// A holder gives the lock back.
    Release {
        /// Who does.
        client: Which,
        /// To whom.
        server: Which,
    },
    /// The replica receives the next command of its primary, and learns the fence in it.
    Learn,
    /// A process ends.
    Die {
        /// Which server.
        server: Which,
    },
    /// It starts again, and decides: a server by itself, a primary, a node of a cluster.
    Begin {
        /// Which server.
        server: Which,
        /// What its file says of the key.
        kept: Option<Held>,
        /// What its clock is ahead by.
        clock: u8,
    },
    /// A server becomes a replica, loads what the primary has, and is told how far its fence clock is.
    Join {
        /// Which server.
        server: Which,
        /// What its clock is ahead by.
        clock: u8,
    },
    /// The replica becomes the primary.
    TakeOver {
        /// Which server.
        server: Which,
    },
    /// A slot is handed over at once, with its key.
    MovedAtOnce,
    /// A slot begins to move by hand: the node that it goes to expects it, and grants free locks to clients that come with `ASKING`.
    Expect,
    /// The key goes to the other node.
    Migrate,
    /// The other node has the slot.
    ReadSlots,
}

/// Where the code does what a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCode {
    /// Of the step, for tables.
    pub name: &'static str,
    /// The function, as timelines show it. Of the environment there is none.
    pub function: &'static str,
    /// The file that has it. Empty for the environment.
    pub file: &'static str,
}

impl Step {
    /// Every kind of step, in the order of the enumeration.
    pub const KINDS: [InCode; 14] = [
        InCode::outside("a second passes"),
        InCode::new("acquire", "lock::acquire", "core/src/lock/decision.rs"),
        InCode::outside("the answer arrives"),
        InCode::new("extend", "lock::extend", "core/src/lock/decision.rs"),
        InCode::new("release", "lock::release", "core/src/lock/decision.rs"),
        InCode::new("learn", "fence_observer::key_event", "src/keys/fence_observer.rs"),
        InCode::outside("a server dies"),
        InCode::new("begin", "fence_clock::begin", "src/replication/fence_clock.rs"),
        InCode::new("join", "fence_clock::joined", "src/replication/fence_clock.rs"),
        InCode::new("take over", "fence_clock::take_over", "src/replication/fence_clock.rs"),
        InCode::new("moved at once", "slots::moved_at_once", "src/cluster/slots.rs"),
        InCode::new("expect", "slots::expect_all", "src/cluster/slots.rs"),
        InCode::outside("the key migrates"),
        InCode::new("read slots", "slots::read", "src/cluster/slots.rs"),
    ];

    /// Where the code does this.
    pub const fn in_code(self) -> InCode {
        let [
            tick,
            acquire,
            hear,
            extend,
            release,
            learn,
            die,
            begin,
            join,
            take_over,
            moved,
            expect,
            migrate,
            read,
        ] = Self::KINDS;
        match self {
            Self::Tick => tick,
            Self::Acquire { .. } => acquire,
            Self::Hear { .. } => hear,
            Self::Extend { .. } => extend,
            Self::Release { .. } => release,
            Self::Learn => learn,
            Self::Die { .. } => die,
            Self::Begin { .. } => begin,
            Self::Join { .. } => join,
            Self::TakeOver { .. } => take_over,
            Self::MovedAtOnce => moved,
            Self::Expect => expect,
            Self::Migrate => migrate,
            Self::ReadSlots => read,
        }
    }
}

impl InCode {
    const fn new(name: &'static str, function: &'static str, file: &'static str) -> Self {
        Self { name, function, file }
    }

    const fn outside(name: &'static str) -> Self {
        Self { name, function: "", file: "" }
    }
}
