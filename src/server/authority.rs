//! Who may write: the one place that says whether the module may change a key on its own account.
//!
//! A command was let in by the server, which checked all this. A hand-off at the end of a lease, after a
//! disconnect, or in the wake of somebody else's command was not: it must not happen on a replica, while
//! data is loading, while writes are paused (the server would crash), or for a key that this node of a
//! cluster does not own or is about to give away (two nodes would grant it).

use super::api::api;
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Authority {
    Yes,
    /// Ask again in a moment.
    NotNow,
    /// This server is a replica: another one decides.
    Replica,
    /// The key's slot is elsewhere, or on its way out.
    NotOurs,
}

/// Whether the module may write this key.
pub(super) fn over(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString) -> Authority {
    let flags = flags(ctx);
    if flags & raw::REDISMODULE_CTX_FLAGS_MASTER == 0 {
        Authority::Replica
    } else if flags & raw::REDISMODULE_CTX_FLAGS_LOADING != 0 || writes_are_paused() {
        Authority::NotNow
    } else if flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0 && !is_ours(ctx, key) {
        Authority::NotOurs
    } else {
        Authority::Yes
    }
}

/// Whether the client of the command being executed can be made to wait. In a transaction, a script or a
/// call from another module it cannot; and on a writable replica nobody would ever hand it the lock.
pub(super) fn may_block(ctx: *mut RedisModuleCtx) -> bool {
    let denied = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
        | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    flags(ctx) & denied == 0
}

pub(super) fn is_replica(ctx: *mut RedisModuleCtx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
}

/// `CLIENT PAUSE`, a failover in progress, a slot being handed over.
fn writes_are_paused() -> bool {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
}

/// Asks the server to read the key as a client would: it refuses if the slot is not ours, or if it is
/// leaving and the key has left already.
fn is_ours(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString) -> bool {
    // SAFETY: the format takes one string. The reply is null or ours to free.
    unsafe {
        let reply = api!(RedisModule_Call)(ctx, c"EXISTS".as_ptr(), c"s".as_ptr(), key);
        if !reply.is_null() {
            api!(RedisModule_FreeCallReply)(reply);
        }
        !reply.is_null()
    }
}

fn flags(ctx: *mut RedisModuleCtx) -> u32 {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_GetContextFlags)(ctx) }.cast_unsigned()
}
