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

use super::closing;
use super::host::{LockKey, Server};
use crate::blocked_client::{self, BlockedClient, PendingReply};
use crate::engine::ENGINE;
use crate::ffi::{Callbacks, Ctx, RawString, api, optional, status};
use crate::guard;
use crate::reply::respond;
use leasehold_core::command::{Error, Reply, acquire};
use leasehold_core::engine::{Answer, WaiterGrant};
use leasehold_core::lock::{Deadline, KeptNames};
use redis_module::raw::RedisModuleBlockedClient;
use std::ffi::{c_int, c_void};

/// Says what the server calls for each blocked client.
pub(crate) fn begin() {
    // `CLIENT UNBLOCK` needs a timeout callback. Servers before Redis 7.4 can run it for a client that is already
    // being unblocked, and the client then never gets a reply. So on those servers `CLIENT UNBLOCK` is refused.
    // `AddACLCategory` came with the same release as the fix.
    let interruptible = optional!(RedisModule_AddACLCategory).is_some();
    blocked_client::begin(Callbacks {
        reply: Some(reply),
        interrupted: if interruptible { Some(interrupted) } else { None },
        disconnected: Some(disconnected),
        free: Some(free),
    });
}

/// Takes the waiter of a blocked client out of its queue, without a reply. False if the client has already been
/// unblocked.
fn leave(ctx: Ctx, handle: *mut RedisModuleBlockedClient) -> bool {
    let waiter = blocked_client::waiter_at(handle.into());
    let client = waiter.and_then(|waiter| ENGINE.on(&Server { ctx }).leave(waiter));
    client.map(BlockedClient::let_go).is_some()
}

/// The connection has ended, or the server has unblocked the client itself.
unsafe extern "C" fn disconnected(ctx: Ctx, handle: *mut RedisModuleBlockedClient) {
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
unsafe extern "C" fn interrupted(ctx: Ctx, _argv: *mut RawString, _argc: c_int) -> c_int {
    let outcome = guard::answer("interrupted", ctx, || {
        // SAFETY: takes the context of this callback, which belongs to a blocked client.
        let handle = unsafe { api!(RedisModule_GetBlockedClientHandle)(ctx) };
        if leave(ctx, handle) {
            respond(ctx, Reply::Nil);
        }
        Ok(())
    });
    refuse(ctx, outcome)
}

/// Sends the reply: the client is still connected.
unsafe extern "C" fn reply(ctx: Ctx, _argv: *mut RawString, _argc: c_int) -> c_int {
    let outcome = guard::answer("waiter-reply", ctx, || {
        // SAFETY: the context is this callback's.
        let Some(pending) = (unsafe { PendingReply::of(ctx) }) else { return Ok(()) };
        let Some(answer) = pending.answer.take() else { return Ok(()) };
        respond(ctx, to_send(ctx, pending, answer));
        Ok(())
    });
    refuse(ctx, outcome)
}

/// The server no longer needs the reply, sent or not.
unsafe extern "C" fn free(ctx: Ctx, pending: *mut c_void) {
    guard::event("waiter-free", ctx, || {
        // SAFETY: the server passes it to this callback, which is the last.
        if let Some(pending) = unsafe { PendingReply::come_back(pending) } {
            mark_undeliverable(ctx, &pending);
        }
    });
}

/// Returns a grant that the client has not been sent and will not be sent.
fn mark_undeliverable(ctx: Ctx, pending: &PendingReply) {
    if let Some(Answer::Granted { names, fence, .. }) = pending.answer.take() {
        let owner = pending.owner.clone();
        ENGINE.on(&Server { ctx }).mark_undeliverable(WaiterGrant { names, owner, fence });
    }
}

/// What the client is sent now.
fn to_send(ctx: Ctx, pending: &PendingReply, answer: Answer) -> Reply<'_> {
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
    ctx: Ctx,
    pending: &PendingReply,
    names: &KeptNames,
    fence_number: u64,
    deadline: Deadline,
) -> bool {
    names.iter().any(|name| {
        let key = || LockKey::selected(ctx, name.as_name());
        ENGINE.on(&Server { ctx }).lease_is_over(&pending.owner, fence_number, deadline, key)
    })
}

/// Sends the one reply of a callback that failed before it replied.
fn refuse(ctx: Ctx, outcome: Result<(), Error>) -> c_int {
    if let Err(error) = outcome {
        respond(ctx, Reply::Error(error));
    }
    status(true)
}
