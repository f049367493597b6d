//! How a client waits for a lock, from `LOCK.ACQUIRE … BLOCK` to the server's last callback.
//!
//! ```text
//!            RM_BlockClient                 RM_UnblockClient, once and only once
//!   LOCK.ACQUIRE ───► blocked ─────────────► unblocked ─────────► reply sent, memory freed
//!    … BLOCK            │  its turn comes      │                        │
//!                       │  patience ends       │ the connection ends    │ or in the same turn of the
//!                       │  sent away           │ before the reply:      │ event loop, see `closing`:
//!                       │                      ▼ the grant goes back    ▼ likewise
//!                       └─► connection ends: leaves the queue
//! ```
//!
//! The answer is taken once: by the reply, by the end of the connection, or by [`free`], whichever comes first.

use super::capacity::{self, Limit};
use super::closing;
use super::host::{LockKey, Server};
use crate::blocked_client::{self, BlockedClient, PendingReply};
use crate::engine::ENGINE;
use crate::ffi::{Callbacks, Handle, User, api, client, optional, status};
use crate::keys::{command_filter, eviction};
use crate::reply::respond;
use crate::{authority, clock, guard};
use leasehold_core::command::{Error, Reply, acquire};
use leasehold_core::engine::{Answer, NoRoom, WaiterGrant};
use leasehold_core::lock::{
    Deadline, Ephemeral, Grace, KeptNames, KeptOwner, Names, Patience, Told, WaitKind, Waiter,
    Wanted,
};
use redis_module::raw::{self, RedisModuleBlockedClient, RedisModuleCtx, RedisModuleString};
use std::ffi::{c_int, c_void};

/// How a client waits on its connection.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) patience: Patience,
    /// The client asked for a minted owner.
    pub(crate) minted: bool,
    /// The hold ends with the connection, after this grace.
    pub(crate) grace: Option<Grace>,
}

/// Blocks the client of the current command, and queues it for these locks. `Ok(false)` where clients cannot block,
/// for example in a transaction: the client gets nil, as if its patience had ended at once. If the client could expect
/// to wait and cannot, the result is an error: after nil the client would ask again at once, forever.
pub(crate) fn wait(
    ctx: *mut RedisModuleCtx,
    keys: &[LockKey<'_>],
    names: Names<'_>,
    wanted: &Wanted<'_>,
    block: Block,
) -> Result<bool, Error> {
    let (server, name) = (Server { ctx }, names.first);
    if authority::denies_blocking(ctx) {
        ENGINE.cannot_wait(name);
        return Ok(false);
    }
    if authority::is_replica(ctx) {
        ENGINE.cannot_wait(name);
        return Err(Error::NobodyWaitsOnReplicas);
    }
    capacity::look_again(ctx);
    let room = capacity::room();
    ENGINE.has_room(&server, names, wanted.owner, WaitKind::Blocked, room).map_err(|no_room| {
        let has_connection = ENGINE.with_queues(|queues| queues.blocked() < room.connections);
        match (no_room, capacity::most_waiters()) {
            (NoRoom::ForThisLock, _) => Error::LockQueueFull,
            (NoRoom::OnTheServer, (_, Limit::ShareOfMaxClients)) if !has_connection => {
                Error::ShareFull
            }
            (NoRoom::OnTheServer, _) => Error::QueueFull,
        }
    })?;
    let id = client::id(ctx);
    let Some(handle) = Handle::block(ctx, callbacks()) else {
        ENGINE.cannot_wait(name);
        return Err(why_not_blocked(id));
    };
    let (address, now) = (handle.address(), clock::monotonic());
    let waiter = Waiter {
        owner: KeptOwner::from(wanted.owner),
        ttl: wanted.ttl,
        share: wanted.share,
        since: now,
        gives_up: block.patience.ends(now),
        ephemeral: block.grace.map(|grace| Ephemeral { connection: id, grace }),
        told: Told::Blocked(BlockedClient {
            handle,
            id,
            user: User::of(ctx, id),
            minted: block.minted,
        }),
    };
    blocked_client::remember(address, ENGINE.join(&server, names, waiter));
    command_filter::install(ctx);
    eviction::somebody_waits(ctx);
    for key in keys {
        ENGINE.settle_joined(&server, key);
    }
    Ok(true)
}

/// Why the server did not block this client. Valkey since 8.1 does not block clients with subscriptions.
fn why_not_blocked(client: u64) -> Error {
    let subscribed = u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB);
    if client::flags(client) & subscribed == 0 {
        Error::CannotBeBlocked
    } else {
        Error::SubscribersCannotBeBlocked
    }
}

fn callbacks() -> Callbacks {
    // `CLIENT UNBLOCK` needs a timeout callback. Servers before Redis 7.4 can run it for a client that is already
    // being unblocked, and the client then never gets a reply. So on those servers `CLIENT UNBLOCK` is refused.
    // `AddACLCategory` came with the same release as the fix.
    let interruptible = optional!(RedisModule_AddACLCategory).is_some();
    Callbacks {
        reply: Some(reply),
        interrupted: if interruptible { Some(interrupted) } else { None },
        disconnected: Some(disconnected),
        free: Some(free),
    }
}

/// Takes the waiter of a blocked client out of its queue, without a reply. False if the client has already been
/// unblocked.
fn leave(ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) -> bool {
    let waiter = blocked_client::waiter_at(handle.into());
    let client = waiter.and_then(|waiter| ENGINE.leave(&Server { ctx }, waiter));
    client.map(BlockedClient::let_go).is_some()
}

/// The connection has ended, or the server has unblocked the client itself.
unsafe extern "C" fn disconnected(ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) {
    guard::event("disconnected", ctx, || {
        if !leave(ctx, handle)
            // SAFETY: the context is this callback's.
            && let Some(pending) = unsafe { PendingReply::of(ctx) }
        {
            mark_undeliverable(ctx, pending);
        }
    });
}

/// `CLIENT UNBLOCK`: replies as if patience had ended.
unsafe extern "C" fn interrupted(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    let outcome = guard::answer("interrupted", ctx, || {
        // SAFETY: takes the context of this callback, which belongs to a blocked client.
        let handle = unsafe { api!(RedisModule_GetBlockedClientHandle)(ctx) };
        if leave(ctx, handle) {
            respond(ctx, &Reply::Nil);
        }
        Ok(())
    });
    refuse(ctx, outcome)
}

/// Sends the reply: the client is still connected.
unsafe extern "C" fn reply(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    let outcome = guard::answer("waiter-reply", ctx, || {
        // SAFETY: the context is this callback's.
        let Some(pending) = (unsafe { PendingReply::of(ctx) }) else { return Ok(()) };
        let Some(answer) = pending.answer.take() else { return Ok(()) };
        respond(ctx, &to_send(ctx, pending, answer));
        Ok(())
    });
    refuse(ctx, outcome)
}

/// The server no longer needs the reply, sent or not.
unsafe extern "C" fn free(ctx: *mut RedisModuleCtx, pending: *mut c_void) {
    guard::event("waiter-free", ctx, || {
        // SAFETY: the server passes it to this callback, which is the last.
        if let Some(pending) = unsafe { PendingReply::come_back(pending) } {
            mark_undeliverable(ctx, &pending);
        }
    });
}

/// Returns a grant that the client has not been sent and will not be sent.
fn mark_undeliverable(ctx: *mut RedisModuleCtx, pending: &PendingReply) {
    if let Some(Answer::Granted { names, fence, .. }) = pending.answer.take() {
        let owner = pending.owner.clone();
        ENGINE.mark_undeliverable(&Server { ctx }, WaiterGrant { names, owner, fence });
    }
}

/// What the client is sent now.
fn to_send(ctx: *mut RedisModuleCtx, pending: &PendingReply, answer: Answer) -> Reply<'_> {
    let owner = pending.owner.as_owner();
    match answer {
        Answer::Granted { names, fence, deadline } => {
            let number = fence.number();
            if is_any_over(ctx, pending, &names, number, deadline) {
                ENGINE.mark_delivered(number);
                return Reply::Nil;
            }
            let granted = WaiterGrant { names, owner: pending.owner.clone(), fence };
            closing::sent(ctx, granted, pending.user);
            acquire::reply(owner, pending.minted, Some(number))
        }
        Answer::Again { names, fence_number, deadline } => {
            if is_any_over(ctx, pending, &names, fence_number, deadline) {
                return Reply::Nil;
            }
            acquire::reply(owner, pending.minted, Some(fence_number))
        }
        Answer::GaveUp => Reply::Nil,
        Answer::Refused(error) => Reply::Error(error),
    }
}

/// Whether the lease of any of these locks has ended before the client could be told.
fn is_any_over(
    ctx: *mut RedisModuleCtx,
    pending: &PendingReply,
    names: &KeptNames,
    fence_number: u64,
    deadline: Deadline,
) -> bool {
    names.iter().any(|name| {
        let key = || LockKey::selected(ctx, name.as_name());
        ENGINE.lease_is_over(&Server { ctx }, &pending.owner, fence_number, deadline, key)
    })
}

/// Sends the one reply of a callback that failed before it replied.
fn refuse(ctx: *mut RedisModuleCtx, outcome: Result<(), Error>) -> c_int {
    if let Err(error) = outcome {
        respond(ctx, &Reply::Error(error));
    }
    status(true)
}
