//! The lock by itself: no server, no clock, no randomness, no unsafe code.
//!
//! ```text
//!                     acquire → a grant with a new fence
//!              ┌────────────────────────────────────────────┐
//!              │                                            ▼
//!          ┌──────┐                                     ┌──────┐ ⟲ acquire by the holder: same fence,
//!          │ free │                                     │ held │   the lease never gets shorter
//!          └──────┘                                     └──────┘ ⟲ extend by the holder: the lease ends
//!              ▲                                            │      ttl from now
//!              └────────────────────────────────────────────┘
//!                 release by the holder, or the lease runs out
//! ```
//!
//! Several owners may hold a lock at a time, if each hold tolerates the others (see [`Share`]). The drawing then shows
//! each hold by itself.
//!
//! The only state of a lock is a string key with an expiry (see [`Hold`] and [`Holders`]). This module decides what to
//! do with the key. Everything is a function of what the key holds, the request and the time.
//!
//! What must hold, cited by number in code, tests and docs:
//!
//! - **L1 mutual exclusion.** On one primary, a grant takes effect only if the holds in force, counting it, are then no
//!   more than any one of them tolerates (its share). With exclusive holds: only after the grant before it was released
//!   or deleted, or its lease had run out.
//! - **L2 fences grow.** Per lock name, for ever: if a grant was answered before another was asked for, its fence is
//!   smaller.
//! - **L3 owner.** Release and extend by anyone but the holder change nothing.
//! - **L4 first come, first served** among waiters; a try never overtakes a queue.
//! - **L5 no lost wake-up.** A lock that can be granted to a live waiter is granted at once.
//! - **L6 the server lives.** No input, timing or fault crashes or hangs the server, or makes it leak memory.
//! - **L7 one truth.** Primary, replicas, AOF replay and RDB reload agree.
//! - **L8 honest limits.** What asynchronous replication cannot promise is said, never hidden.

mod decision;
mod digits;
mod edit;
mod ephemeral;
mod evicted;
mod fence;
mod hold;
mod holders;
mod lease;
mod line;
mod name;
mod outcome;
mod owner;
mod queue;
mod share;
mod wait;

pub use decision::{Checked, Decision, Standing, Wanted};
pub use decision::{acquire, check, extend, extend_one, raise, release};
pub use edit::{Changed, Edit, Write};
pub use ephemeral::{Ephemeral, Grace};
pub use evicted::Evicted;
pub use fence::{Fence, FenceClock};
pub use hold::{Grant, Hold, NotALock, Proof, Seen, Stored};
pub use holders::{Holders, Holds, OtherHolders, learn_from, newest_fence};
pub use lease::{Deadline, Limits, Moment, Monotonic, Now, Patience, Ttl};
pub use line::Value;
pub use name::{KeptName, KeptNames, Name, Names};
pub use outcome::{NotHolder, Outcome, Raised};
pub use owner::{KeptOwner, Owner};
pub(crate) use queue::from_index;
pub use queue::{Cause, Departed, Joined, Look, Lost, LostBy, Marked, Ownership, Queues, Renewed};
pub use queue::{Room, Settled, Suspicion, Turn, Waiter, WaiterId};
pub use share::Share;
pub use wait::{KeptTicket, KeptWait, Ticket, Wait, WaitKind};
