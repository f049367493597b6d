//! Decides whether the module may change a key on its own account. No other file decides this.
//!
//! The server checks all of this before it executes a client's command. Nobody checks a hand-off after a lease has
//! ended, after a disconnect, or after somebody else's command. Such a hand-off must not happen on a replica, while
//! data is loading, while writes are paused (the server would crash) or refused, or for a key that this cluster node
//! does not own or is about to give away (two nodes would grant the lock).

use crate::ffi::{CallReply, Ctx, RawString, api, optional, server_flavor};
use leasehold_core::engine::{Authority, Initiator};
use redis_module::raw;

/// Whether the module may write this key.
pub(crate) fn to_write(ctx: Ctx, key: RawString, initiator: Initiator) -> Authority {
    let flags = flags(ctx);
    match of_flags(flags) {
        Authority::Yes if initiator == Initiator::Module => {
            ask_to_write(ctx, key).unwrap_or_else(|| to_read(ctx, key))
        }
        Authority::Yes => to_read(ctx, key),
        // If the key's slot has left, its waiters do not wait for the end of the pause.
        Authority::NotNow if flags & raw::REDISMODULE_CTX_FLAGS_LOADING == 0 => {
            match to_read(ctx, key) {
                Authority::Yes => Authority::NotNow,
                other => other,
            }
        }
        other => other,
    }
}

/// Whether the server keeps an append-only file.
pub(crate) fn is_filed(ctx: Ctx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_AOF != 0
}

/// Whether only replicas and the backlog can be told of changes: the server is a primary outside a cluster, has no
/// append-only file, loads nothing, and has no child process that saves its data.
pub(crate) fn excludes_listeners(ctx: Ctx) -> bool {
    let (flags, primary) = (flags(ctx), raw::REDISMODULE_CTX_FLAGS_MASTER);
    let others = raw::REDISMODULE_CTX_FLAGS_CLUSTER
        | raw::REDISMODULE_CTX_FLAGS_AOF
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD;
    flags & (primary | others) == primary
}

/// Whether the server uses more than `maxmemory` and cannot free enough.
pub(crate) fn is_out_of_memory(ctx: Ctx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_OOM != 0
}

/// What the server as a whole allows now, whatever the key. Asking is almost free.
pub(crate) fn of_the_server(ctx: Ctx) -> Authority {
    of_flags(flags(ctx))
}

fn of_flags(flags: u32) -> Authority {
    if flags & raw::REDISMODULE_CTX_FLAGS_MASTER == 0 {
        Authority::Replica
    } else if flags & raw::REDISMODULE_CTX_FLAGS_LOADING != 0 || writes_are_paused() {
        Authority::NotNow
    } else {
        Authority::Yes
    }
}

/// Whether the command being executed must not block: it is part of a transaction or a script, or another module
/// called it.
pub(crate) fn denies_blocking(ctx: Ctx) -> bool {
    let denied = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
    flags(ctx) & denied != 0
}

/// Whether the command was called by a script that is replicated, and written to the append-only file, as a script
/// rather than by its effects. Redis 7.0 removed such scripts. Before, they were off by default.
pub(crate) fn is_verbatim_script(ctx: Ctx) -> bool {
    if optional!(RedisModule_GetCommand).is_some()
        || flags(ctx) & raw::REDISMODULE_CTX_FLAGS_LUA == 0
    {
        return false;
    }
    // `None` if `CONFIG` was renamed.
    server_flavor::setting(ctx, c"lua-replicate-commands").is_some_and(|setting| setting == b"no")
}

pub(crate) fn is_replica(ctx: Ctx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
}

pub(crate) fn is_in_cluster(ctx: Ctx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
}

/// Whether writes are paused: `CLIENT PAUSE`, a failover in progress, a slot that is being handed over.
fn writes_are_paused() -> bool {
    // SAFETY: takes no arguments.
    unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
}

/// Asks the server whether a client could write the key, with a write that changes nothing. `None` if the server
/// cannot be asked: before Redis 7.0, or if the command was renamed.
fn ask_to_write(ctx: Ctx, key: RawString) -> Option<Authority> {
    // The flags enable the checks for scripts, and errors as replies, without which Valkey 9.1 crashes when it
    // refuses.
    let format = if has_dry_runs() { c"DSEscc" } else { c"SEscc" };
    let (call, name) = (api!(RedisModule_Call), c"SETRANGE");
    // SAFETY: the format takes a string and two C strings. Nobody else gets the reply.
    let (reply, refusal) = unsafe {
        CallReply::or_refusal_of_call(ctx, name, || {
            call(ctx, name.as_ptr(), format.as_ptr(), key, c"0".as_ptr(), c"".as_ptr())
        })
    };
    match refusal {
        libc::ESPIPE => Some(Authority::Refused),
        libc::ENETDOWN | libc::EROFS => Some(Authority::ClusterDown),
        libc::EPERM => Some(Authority::NotOurs),
        // The command was renamed, or the server does not know the flags.
        libc::ENOENT | libc::EBADF => None,
        _ => (has_dry_runs() || reply.is_some()).then_some(Authority::Yes),
    }
}

/// Whether the server would let a client read the key. In a cluster it refuses if this node does not own the slot, or
/// if the slot is migrating and the key has already left.
pub(crate) fn to_read(ctx: Ctx, key: RawString) -> Authority {
    to_read_all(ctx, &[key])
}

/// Like [`to_read`], for several keys at once. The server also refuses keys of several slots, and, while their slot
/// migrates, keys that are not all on this node. The client may have sent `ASKING`.
pub(crate) fn to_read_all(ctx: Ctx, keys: &[RawString]) -> Authority {
    if flags(ctx) & raw::REDISMODULE_CTX_FLAGS_CLUSTER == 0 {
        return Authority::Yes;
    }
    match ask_to_read(ctx, keys) {
        // The command was renamed, so nobody can be asked. The server's own redirections must suffice.
        None | Some(libc::ENOENT) => Authority::Yes,
        Some(libc::ENETDOWN) => Authority::ClusterDown,
        Some(_) => Authority::NotOurs,
    }
}

/// Asks the server whether it would let a client read the keys. `None` if it would, otherwise the error number.
pub(crate) fn ask_to_read(ctx: Ctx, keys: &[RawString]) -> Option<i32> {
    let format = if has_dry_runs() { c"Dv" } else { c"v" };
    let (start, count) = (keys.as_ptr(), keys.len());
    let (call, name) = (api!(RedisModule_Call), c"EXISTS");
    // SAFETY: the format takes strings and their number. Nobody else gets the reply.
    let (reply, refusal) = unsafe {
        CallReply::or_refusal_of_call(ctx, name, || {
            call(ctx, name.as_ptr(), format.as_ptr(), start, count)
        })
    };
    // Some servers reply to a dry run that succeeds, others do not.
    let is_granted = if has_dry_runs() { refusal == 0 } else { reply.is_some() };
    (!is_granted).then_some(refusal)
}

/// Whether the server can check a command without executing it (Redis and Valkey 7.2 on). A command that is executed
/// appears in `MONITOR` and in the statistics.
fn has_dry_runs() -> bool {
    // Dry runs cannot be detected. `AddPostNotificationJob` came with the same release.
    optional!(RedisModule_AddPostNotificationJob).is_some()
}

/// How many locks to check in each round, ten rounds a second, for slots that have left. Few if operators see each
/// check.
pub(crate) fn questions_in_a_round() -> usize {
    if has_dry_runs() { 500 } else { 25 }
}

fn flags(ctx: Ctx) -> u32 {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_GetContextFlags)(ctx) }.cast_unsigned()
}
