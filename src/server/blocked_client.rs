//! Connections that wait: the life of one blocked client.
//!
//! ```text
//!            RM_BlockClient                 RM_UnblockClient, once and only once
//!   LOCK.ACQUIRE ───► blocked ─────────────► unblocked ─────────► reply sent, memory freed
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
//! While a client is blocked, [`Handles`] knows its handle by address. When it is unblocked, the address is
//! forgotten, and a [`PendingReply`] travels with the handle until the server passes it to [`free`]. The
//! answer in it is taken once: by the reply, by the end of the connection, or by `free` itself.

use super::api::{api, optional};
use super::authority;
use super::delivery::{self, User};
use super::host::{LockKey, Server};
use super::respond::respond;
use super::room::Limit;
use super::state::STATE;
use super::{alarm, clock, command_filter, eviction, guard};
use leasehold_core::command::{Error, Reply, acquire};
use leasehold_core::engine::{Answer, Lock, NoRoom, WaiterGrant};
use leasehold_core::lock::{KeptOwner, Owner, Patience, Share, Ttl, Waiter, WaiterId};
use redis_module::raw::{self, RedisModuleBlockedClient, RedisModuleCtx, RedisModuleString};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

/// The connection of a waiter.
#[derive(Debug)]
pub(super) struct BlockedClient {
    handle: Handle,
    pub(super) id: u64,
    user: User,
    /// It asked for an owner to be made up, and does not know it yet.
    minted: bool,
}

/// The server's handle of a blocked client, by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handle(NonNull<RedisModuleBlockedClient>);

impl BlockedClient {
    /// Tells the client, who has left its queue, what became of its wait.
    pub(super) fn unblock(self, owner: KeptOwner, answer: Answer) {
        let _id = take_out(&self.handle);
        let Self { handle, user, minted, .. } = self;
        let reply = PendingReply { answer: Cell::new(Some(answer)), owner, user, minted };
        unblock(handle, Box::into_raw(Box::new(reply)).cast());
    }
}

/// What a client that was unblocked is about to be sent.
struct PendingReply {
    /// Taken by whoever comes first: the reply, or the end of the connection.
    answer: Cell<Option<Answer>>,
    owner: KeptOwner,
    user: User,
    minted: bool,
}

impl PendingReply {
    /// What [`BlockedClient::unblock`] gave to the server with the handle of this callback's client, if it did.
    ///
    /// # Safety
    /// The context is that of a callback for a blocked client, and the reference does not outlive it.
    unsafe fn of<'c>(ctx: *mut RedisModuleCtx) -> Option<&'c Self> {
        // SAFETY: null, or what `BlockedClient::unblock` made, which lives until `free`, the last callback of all.
        unsafe { api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Self>().as_ref() }
    }

    /// The client has not been sent it, and is not going to be.
    fn mark_undeliverable(&self, ctx: *mut RedisModuleCtx) {
        if let Some(Answer::Granted { name, fence, .. }) = self.answer.take() {
            let owner = self.owner.clone();
            STATE.locks.mark_undeliverable(&Server { ctx }, WaiterGrant { name, owner, fence });
            alarm::set(ctx);
        }
    }

    /// What the client is sent now.
    fn reply(&self, ctx: *mut RedisModuleCtx, answer: Answer) -> Reply<'_> {
        let (server, locks) = (Server { ctx }, &STATE.locks);
        let owner = self.owner.as_owner();
        match answer {
            Answer::Granted { name, fence, deadline } => {
                let number = fence.number();
                let key = || LockKey::selected(ctx, name.as_name());
                if locks.lease_is_over(&server, &self.owner, number, Some(deadline), key) {
                    locks.mark_delivered(number);
                    return Reply::Nil;
                }
                let granted = WaiterGrant { name, owner: self.owner.clone(), fence };
                delivery::sent(ctx, granted, self.user);
                acquire::reply(owner, self.minted, number)
            }
            Answer::Again { name, fence_number, deadline } => {
                let key = || LockKey::selected(ctx, name.as_name());
                if locks.lease_is_over(&server, &self.owner, fence_number, deadline, key) {
                    return Reply::Nil;
                }
                acquire::reply(owner, self.minted, fence_number)
            }
            Answer::GaveUp => Reply::Nil,
            Answer::Refused(error) => Reply::Error(error),
        }
    }
}

/// What a request needs to wait.
pub(super) struct Wait<'r> {
    pub(super) owner: Owner<'r>,
    pub(super) minted: bool,
    pub(super) ttl: Ttl,
    pub(super) share: Share,
    pub(super) patience: Patience,
}

/// Blocks the client of the command being executed, and queues it for the lock. `Ok(false)` where nothing ever waits, as in a
/// transaction: then it is as if patience had ended at once. Where the client could expect to wait and cannot, it is an
/// error: a client that got nil would ask again at once, and again.
pub(super) fn wait(
    ctx: *mut RedisModuleCtx,
    key: &LockKey<'_>,
    wait: &Wait<'_>,
) -> Result<bool, Error> {
    let (server, locks, name) = (Server { ctx }, &STATE.locks, key.name());
    if authority::denies_blocking(ctx) {
        locks.cannot_wait(name);
        return Ok(false);
    }
    if authority::is_replica(ctx) {
        locks.cannot_wait(name);
        return Err(Error::NobodyWaitsOnReplicas);
    }
    STATE.max_clients.look_again(ctx);
    locks.has_room(&server, name, wait.owner, STATE.max_clients.room()).map_err(
        |no_room| match (no_room, STATE.max_clients.most_waiters()) {
            (NoRoom::ForThisLock, _) => Error::LockQueueFull,
            (NoRoom::OnTheServer, (_, Limit::MaxWaiters)) => Error::QueueFull,
            (NoRoom::OnTheServer, (_, Limit::ShareOfMaxClients)) => Error::ShareFull,
        },
    )?;
    // SAFETY: takes a valid context.
    let id = unsafe { api!(RedisModule_GetClientId)(ctx) };
    let Some(handle) = block(ctx) else {
        locks.cannot_wait(name);
        return Err(why_not_blocked(id));
    };
    let now = clock::monotonic();
    let waiter = Waiter {
        owner: KeptOwner::from(wait.owner),
        ttl: wait.ttl,
        share: wait.share,
        since: now,
        gives_up: wait.patience.ends(now),
        client: BlockedClient { handle, id, user: User::of(ctx, id), minted: wait.minted },
    };
    let waiter = locks.join(&server, name, waiter);
    STATE.with_blocked(|blocked| blocked.insert(handle, waiter));
    command_filter::install(ctx);
    eviction::somebody_waits(ctx);
    locks.settle_joined(&server, key);
    alarm::set(ctx);
    Ok(true)
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

fn unblock(handle: Handle, pending: *mut c_void) {
    // SAFETY: the handle came from `block`; every caller has just taken it out of the queue and of
    // `Handles`, so this is its first and only time here.
    unsafe { api!(RedisModule_UnblockClient)(handle.0.as_ptr(), pending) };
}

/// Takes a client that is still blocked out of its queue, and answers nobody. False if it has been
/// unblocked already.
fn leave(ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) -> bool {
    let id = NonNull::new(handle).and_then(|handle| take_out(&Handle(handle)));
    let Some((handle, id)) = id else { return false };
    STATE.locks.leave(&Server { ctx }, id);
    unblock(handle, ptr::null_mut());
    alarm::set(ctx);
    true
}

/// The connection ended, or the server took the client away.
unsafe extern "C" fn disconnected(ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) {
    guard::event("disconnected", || {
        if !leave(ctx, handle)
            // SAFETY: the context is this callback's.
            && let Some(pending) = unsafe { PendingReply::of(ctx) }
        {
            pending.mark_undeliverable(ctx);
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

/// The client is there to hear the reply.
unsafe extern "C" fn reply(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    guard::reply("waiter-reply", ctx, || {
        // SAFETY: the context is this callback's.
        let Some(pending) = (unsafe { PendingReply::of(ctx) }) else { return };
        let Some(answer) = pending.answer.take() else { return };
        let reply = pending.reply(ctx, answer);
        respond(ctx, &reply);
    })
}

/// The reply is done with, whether it was sent or not.
unsafe extern "C" fn free(ctx: *mut RedisModuleCtx, pending: *mut c_void) {
    guard::event("waiter-free", || {
        if pending.is_null() {
            return;
        }
        // SAFETY: what `BlockedClient::unblock` turned into a pointer, come back for the first and only time.
        let pending = unsafe { Box::from_raw(pending.cast::<PendingReply>()) };
        pending.mark_undeliverable(ctx);
    });
}

/// Those who are blocked, by handle.
pub(super) type Handles = std::collections::HashMap<Handle, WaiterId>;

/// Room for so many is kept when nobody is blocked any more.
const KEPT: usize = 100;

fn take_out(handle: &Handle) -> Option<(Handle, WaiterId)> {
    STATE.with_blocked(|blocked| {
        let left = blocked.remove_entry(handle);
        if blocked.is_empty() {
            // What a crowd needed is not kept when the crowd has gone.
            blocked.shrink_to(KEPT);
        }
        left
    })
}
