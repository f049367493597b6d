//! Connections that wait: the life of one blocked client.
//!
//! ```text
//!            RM_BlockClient                 RM_UnblockClient, once and only once
//!   LOCK.ACQUIRE ───► parked ──────────────► told ──────────────► reply sent, memory freed
//!    … BLOCK            │  its turn comes      │                        │
//!                       │  patience ends       │ the connection ends    │ or in the same turn of the
//!                       │  sent away           │ before the reply:      │ event loop, see `delivery`:
//!                       │                      ▼ the grant goes back    ▼ the same
//!                       └─► connection ends: leaves the queue
//! ```
//!
//! The server's rules, each paid for with a crash or a leak somewhere: a handle is unblocked exactly once,
//! also when its client is gone; no native timeout, which may fire in the very loop in which the client
//! is unblocked, and then nobody replies; never block in a context that denies it.
//!
//! While a client is parked its handle is known by address in `parked`; from the moment it is told, the
//! address is forgotten, and what it was told travels with the handle until the server hands it back to
//! [`free`]. Whoever comes first takes it: the reply, the end of the connection, or `free` itself.

use super::api::{api, optional};
use super::authority;
use super::delivery::{self, Granted, User};
use super::key::{Key, Mode, OwnedString};
use super::respond::respond;
use super::room::Limit;
use super::state::STATE;
use super::{alarm, clock, eviction, guard, lookout, witness};
use leasehold_core::command::{Error, Reply, acquire};
use leasehold_core::lock::{
    self, Checked, Deadline, Fence, Joined, KeptOwner, Left, Name, Owner, Patience, Proof, Ttl,
    Waiter, WaiterId,
};
use leasehold_core::observe::{Lock, WaitEnd};
use leasehold_core::plant::{Bug, planted};
use redis_module::raw::{self, RedisModuleBlockedClient, RedisModuleCtx, RedisModuleString};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

/// How to find the connection of a waiter.
#[derive(Debug)]
pub(super) struct Parked {
    handle: Handle,
    pub(super) client: u64,
    user: User,
    /// It asked for an owner to be made up, and does not know it yet.
    minted: bool,
}

/// The server's handle of a blocked client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handle(NonNull<RedisModuleBlockedClient>);

/// What a waiter is told in the end.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The lock is its own, by a new grant.
    Granted {
        name: Name,
        fence: Fence,
        deadline: Deadline,
    },
    /// The lock was its own already.
    Again {
        name: Name,
        fence_number: u64,
        deadline: Option<Deadline>,
    },
    /// Its patience ended.
    GaveUp,
    Refused(Error),
}

impl Outcome {
    const fn ends_a_wait(&self) -> WaitEnd {
        match self {
            Self::Granted { .. } | Self::Again { .. } => WaitEnd::Granted,
            Self::GaveUp => WaitEnd::TimedOut,
            Self::Refused(_) => WaitEnd::Refused,
        }
    }
}

struct Told {
    /// Taken by whoever comes first: the reply, or the end of the connection.
    outcome: Cell<Option<Outcome>>,
    owner: KeptOwner,
    user: User,
    minted: bool,
}

impl Told {
    /// What `tell` gave to the server with the handle of this callback's client, if it did.
    ///
    /// # Safety
    /// The context is that of a callback for a blocked client, and the reference does not outlive it.
    unsafe fn of<'c>(ctx: *mut RedisModuleCtx) -> Option<&'c Self> {
        // SAFETY: null, or what `tell` made, which lives until `free`, the last callback of all.
        unsafe { api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Self>().as_ref() }
    }

    /// The client has not been sent it, and is not going to be.
    fn goes_unheard(&self, ctx: *mut RedisModuleCtx) {
        if let Some(Outcome::Granted { name, fence, .. }) = self.outcome.take() {
            delivery::failed(ctx, Granted { name, owner: self.owner.clone(), fence });
        }
    }

    /// What the client is sent now.
    fn reply(&self, ctx: *mut RedisModuleCtx, outcome: Outcome) -> Reply<'_> {
        let owner = self.owner.as_owner();
        match outcome {
            Outcome::Granted { name, fence, deadline } => {
                let number = fence.number();
                if self.is_over(ctx, &name, number, Some(deadline)) {
                    STATE.heard(number);
                    return Reply::Nil;
                }
                let granted = Granted { name, owner: self.owner.clone(), fence };
                delivery::sent(ctx, granted, self.user);
                acquire::reply(owner, self.minted, number)
            }
            Outcome::Again { name, fence_number, deadline } => {
                if self.is_over(ctx, &name, fence_number, deadline) {
                    return Reply::Nil;
                }
                acquire::reply(owner, self.minted, fence_number)
            }
            Outcome::GaveUp => Reply::Nil,
            Outcome::Refused(error) => Reply::Error(error),
        }
    }

    /// Whether the lease ended before the client could be told of it, as when a script took longer than the lease. The
    /// deadline says so unless the owner extended the lease meanwhile on another connection, so the key has the
    /// last word. The selected database is that of the lock: it is the client's.
    fn is_over(
        &self,
        ctx: *mut RedisModuleCtx,
        name: &Name,
        fence_number: u64,
        deadline: Option<Deadline>,
    ) -> bool {
        let now = clock::now();
        if deadline.is_none_or(|deadline| !deadline.has_passed(now)) {
            return false;
        }
        let name = OwnedString::new(ctx, &name.key);
        let opened = Key::open(ctx, name.string(), Mode::Read);
        let hold = STATE.with_fences(|fences| opened.stored().hold(now, fences)).ok().flatten();
        let proof = Proof { owner: self.owner.as_owner(), fence: Some(fence_number) };
        lock::check(hold.as_ref(), &proof) == Checked::NotHolder
    }
}

/// What a request needs to wait.
pub(super) struct Wait<'r> {
    pub(super) owner: Owner<'r>,
    pub(super) minted: bool,
    pub(super) ttl: Ttl,
    pub(super) patience: Patience,
}

/// Parks the client of the command being executed in the queue of the lock. `Ok(false)` where nothing ever waits, as in
/// a transaction: then it is as if patience had ended at once. Where the client could expect to wait and cannot, it is an
/// error: a client that got nil would ask again at once, and again.
pub(super) fn park(
    ctx: *mut RedisModuleCtx,
    db: i32,
    key: &[u8],
    wait: &Wait<'_>,
) -> Result<bool, Error> {
    if authority::denies_blocking(ctx) {
        return Ok(false);
    }
    let lock = Lock { db, key };
    if authority::is_replica(ctx) {
        return Err(refused(lock, Error::NobodyWaitsOnReplicas));
    }
    STATE.max_clients.look_again(ctx);
    has_room(lock, wait.owner).inspect_err(|_| {
        let owner = wait.owner.as_bytes();
        STATE.with_observer(|observer| observer.queue_full(lock, owner, clock::now()));
    })?;
    // SAFETY: takes a valid context.
    let client = unsafe { api!(RedisModule_GetClientId)(ctx) };
    let Some(handle) = block(ctx) else { return Err(refused(lock, why_not_blocked(client))) };
    let now = clock::monotonic();
    let waiter = Waiter {
        owner: KeptOwner::from(wait.owner),
        ttl: wait.ttl,
        since: now,
        gives_up: wait.patience.ends(now),
        parked: Parked { handle, client, user: User::of(ctx, client), minted: wait.minted },
    };
    let owner = waiter.owner.clone();
    let id = match STATE.with_queues(|queues| queues.join(db, key, waiter)) {
        Joined::Queued(id) => id,
        Joined::InPlaceOf(id, former) => {
            let outcome = Outcome::Refused(Error::Replaced);
            witness::wait_ended(lock, wait.owner.as_bytes(), now, outcome.ends_a_wait());
            tell(former, owner, outcome);
            id
        }
    };
    let waiters = STATE.with_queues(|queues| queues.waiters());
    STATE.with_observer(|observer| observer.wait_started(lock, waiters));
    STATE.with_parked(|parked| parked.insert(handle, id));
    lookout::post(ctx);
    eviction::somebody_waits(ctx);
    alarm::set(ctx);
    Ok(true)
}

fn refused(lock: Lock<'_>, error: Error) -> Error {
    STATE.with_observer(|observer| observer.refused(lock));
    error
}

/// Why the server would not block this client. Valkey since 8.1 blocks none that has a subscription.
fn why_not_blocked(client: u64) -> Error {
    let subscribed = u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB);
    if delivery::client_flags(client) & subscribed == 0 {
        Error::CannotBeBlocked
    } else {
        Error::SubscribersCannotBeBlocked
    }
}

fn has_room(lock: Lock<'_>, owner: Owner<'_>) -> Result<(), Error> {
    let (room, Lock { db, key }) = (STATE.max_clients.room(), lock);
    STATE.with_queues(|queues| {
        if queues.has_room(db, key, owner, room) {
            Ok(())
        } else if queues.waiters_for(db, key) >= room.per_lock {
            Err(Error::LockQueueFull)
        } else {
            Err(match STATE.max_clients.most_waiters() {
                (_, Limit::MaxWaiters) => Error::QueueFull,
                (_, Limit::ShareOfMaxClients) => Error::ShareFull,
            })
        }
    })
}

/// Tells a waiter, who has left the lock's queue, what became of it.
pub(super) fn answer(lock: Lock<'_>, waiter: Waiter<Parked>, outcome: Outcome) {
    let Waiter { owner, since, parked, .. } = waiter;
    let shown = owner.as_owner().as_bytes();
    witness::wait_ended(lock, shown, since, outcome.ends_a_wait());
    tell(parked, owner, outcome);
}

fn tell(parked: Parked, owner: KeptOwner, outcome: Outcome) {
    let was_parked = take_out(&parked.handle).is_some();
    if planted(Bug::GrantToTheGone) && !was_parked {
        return;
    }
    if let Outcome::Granted { fence, .. } = &outcome {
        STATE.not_heard_yet(*fence);
    }
    let Parked { handle, user, minted, .. } = parked;
    let told = Box::new(Told { outcome: Cell::new(Some(outcome)), owner, user, minted });
    unblock(handle, Box::into_raw(told).cast());
}

fn block(ctx: *mut RedisModuleCtx) -> Option<Handle> {
    // `CLIENT UNBLOCK` needs a timeout callback. Servers before Redis 7.4 can run it for a client that is
    // being unblocked already, which then never gets a reply: there it is refused instead. This function
    // came with the same release as the remedy.
    let interruptible = optional!(RedisModule_AddACLCategory).is_some();
    let on_interrupt: raw::RedisModuleCmdFunc =
        if interruptible { Some(interrupted) } else { None };
    // SAFETY: the context is that of the command being executed, in which blocking is allowed; the callbacks
    // have the signatures the server calls; 0 is no native timeout.
    let handle =
        unsafe { api!(RedisModule_BlockClient)(ctx, Some(reply), on_interrupt, Some(free), 0) };
    let handle = Handle(NonNull::new(handle)?);
    // SAFETY: the handle is new and valid; the callback has the signature the server calls.
    unsafe { api!(RedisModule_SetDisconnectCallback)(handle.0.as_ptr(), Some(disconnected)) };
    Some(handle)
}

fn unblock(handle: Handle, told: *mut c_void) {
    // SAFETY: the handle came from `block`; every caller has just taken it out of the queue and of
    // `parked`, so this is its first and only time here.
    unsafe { api!(RedisModule_UnblockClient)(handle.0.as_ptr(), told) };
}

/// Takes a client that is still parked out of its queue, with nobody to tell. False if it has been told
/// already.
fn leave(ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) -> bool {
    let id = NonNull::new(handle).and_then(|handle| take_out(&Handle(handle)));
    let Some((handle, id)) = id else { return false };
    if !planted(Bug::GrantToTheGone)
        && let Some(Left { name, waiter }) = STATE.with_queues(|queues| queues.leave(id))
    {
        let (lock, owner) = (Lock { db: name.db, key: &name.key }, waiter.owner.as_owner());
        witness::wait_ended(lock, owner.as_bytes(), waiter.since, WaitEnd::Abandoned);
    }
    unblock(handle, ptr::null_mut());
    alarm::set(ctx);
    true
}

/// The connection ended, or the server took the client away.
unsafe extern "C" fn disconnected(ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) {
    guard::event("disconnected", || {
        if !leave(ctx, handle)
            // SAFETY: the context is this callback's.
            && let Some(told) = unsafe { Told::of(ctx) }
        {
            told.goes_unheard(ctx);
        }
    });
}

/// `CLIENT UNBLOCK`: as if patience had ended.
unsafe extern "C" fn interrupted(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    guard::reply("interrupted", ctx, || {
        // SAFETY: takes the context of this callback, which belongs to a blocked client.
        let handle = unsafe { api!(RedisModule_GetBlockedClientHandle)(ctx) };
        if leave(ctx, handle) {
            respond(ctx, &Reply::Nil);
        }
    })
}

/// The client is there to hear what it is told.
unsafe extern "C" fn reply(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    guard::reply("waiter-reply", ctx, || {
        // SAFETY: the context is this callback's.
        let Some(told) = (unsafe { Told::of(ctx) }) else { return };
        let Some(outcome) = told.outcome.take() else { return };
        let reply = told.reply(ctx, outcome);
        respond(ctx, &reply);
    })
}

/// What a client was told is done with.
unsafe extern "C" fn free(ctx: *mut RedisModuleCtx, told: *mut c_void) {
    guard::event("waiter-free", || {
        if told.is_null() {
            return;
        }
        // SAFETY: what `tell` turned into a pointer, come back for the first and only time.
        let told = unsafe { Box::from_raw(told.cast::<Told>()) };
        told.goes_unheard(ctx);
    });
}

/// Those who are parked, by handle.
pub(super) type Handles = std::collections::HashMap<Handle, WaiterId>;

/// Room for so many is kept when nobody is parked any more.
const KEPT: usize = 100;

fn take_out(handle: &Handle) -> Option<(Handle, WaiterId)> {
    STATE.with_parked(|parked| {
        let left = parked.remove_entry(handle);
        if parked.is_empty() {
            // What a crowd needed is not kept when the crowd has gone.
            parked.shrink_to(KEPT);
        }
        left
    })
}
