//! Who may write: the one place that says whether the module may change a key on its own account.
//!
//! A command was let in by the server, which checked all this. A hand-off at the end of a lease, after a
//! disconnect, or in the wake of somebody else's command was not: it must not happen on a replica, while
//! data is loading, while writes are paused (the server would crash) or refused, or for a key that this node of a
//! cluster does not own or is about to give away (two nodes would grant it).

use super::ffi::api::{api, optional};
use super::ffi::call_reply::CallReply;
use super::ffi::server_flavor;
use leasehold_core::engine::{Authority, Initiator};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};
use std::io;

#[cfg(not(target_os = "macos"))]
use libc::__errno_location as errno;
#[cfg(target_os = "macos")]
use libc::__error as errno;

/// Whether the module may write this key.
pub(super) fn to_write(
    ctx: *mut RedisModuleCtx,
    key: *mut RedisModuleString,
    initiator: Initiator,
) -> Authority {
    let flags = flags(ctx);
    match of_flags(flags) {
        Authority::Yes if initiator == Initiator::Module => {
            ask_to_write(ctx, key).unwrap_or_else(|| to_read(ctx, key))
        }
        Authority::Yes => to_read(ctx, key),
        // Those whose slot has gone meanwhile do not wait for the end of the pause.
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
pub(super) fn is_filed(ctx: *mut RedisModuleCtx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_AOF != 0
}

/// Whether the flags of the server leave nobody who might hear of changes but replicas and a backlog: it is a primary
/// outside a cluster, has no append-only file, loads nothing, and has no child that writes its data down.
pub(super) fn excludes_listeners(ctx: *mut RedisModuleCtx) -> bool {
    let (flags, primary) = (flags(ctx), raw::REDISMODULE_CTX_FLAGS_MASTER);
    let others = raw::REDISMODULE_CTX_FLAGS_CLUSTER
        | raw::REDISMODULE_CTX_FLAGS_AOF
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD;
    flags & (primary | others) == primary
}

/// Whether the server uses more than `maxmemory`, and could not make room.
pub(super) fn is_out_of_memory(ctx: *mut RedisModuleCtx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_OOM != 0
}

/// What the server as a whole allows now, whatever the key. Asking costs next to nothing.
pub(super) fn of_the_server(ctx: *mut RedisModuleCtx) -> Authority {
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

/// Whether the command being executed is part of something that does not wait: a transaction, a script, or a call from
/// another module.
pub(super) fn denies_blocking(ctx: *mut RedisModuleCtx) -> bool {
    let denied = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
    flags(ctx) & denied != 0
}

/// Whether the command being executed was called by a script that replicas, and the append-only file, would be told
/// to run again instead of what it did. Redis 7.0 did away with that; before, it was off unless asked for.
pub(super) fn is_verbatim_script(ctx: *mut RedisModuleCtx) -> bool {
    if optional!(RedisModule_GetCommand).is_some()
        || flags(ctx) & raw::REDISMODULE_CTX_FLAGS_LUA == 0
    {
        return false;
    }
    // Nothing where the command was renamed.
    server_flavor::setting(ctx, c"lua-replicate-commands").is_some_and(|setting| setting == b"no")
}

pub(super) fn is_replica(ctx: *mut RedisModuleCtx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
}

/// Whether the server has no user for the command being executed, and everything is allowed: another module called it, it is
/// repeated for a primary, or it was read from a file. Only for a server that [`knows_of_no_user`].
///
/// The server dies where it is asked for the name of a user that there is not. So it is asked to execute, as that user, a
/// command that there is not: before it looks for the command it looks for the user.
pub(super) fn has_no_user(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: the format takes no argument, and has the server reply with its error. The reply goes nowhere else; the error
    // number is this thread's own.
    unsafe {
        *errno() = 0;
        let call = || api!(RedisModule_Call)(ctx, c"".as_ptr(), c"CE".as_ptr());
        drop(CallReply::of_call(ctx, c"", call));
    }
    io::Error::last_os_error().raw_os_error() == Some(libc::ENOTSUP)
}

/// Whether the server can be asked whether there is a user (Redis 7.0.6 on). Before, it looked for the command first.
pub(super) fn knows_of_no_user() -> bool {
    // It came with the same change.
    optional!(RedisModule_SetContextUser).is_some()
}

pub(super) fn is_in_cluster(ctx: *mut RedisModuleCtx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
}

/// `CLIENT PAUSE`, a failover in progress, a slot being handed over.
fn writes_are_paused() -> bool {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
}

/// Asks the server whether it would let a client write into the key, by a write of nothing. `None` where it cannot be
/// asked: before Redis 7.0, or if the command was renamed.
fn ask_to_write(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString) -> Option<Authority> {
    // Flags for the checks of scripts, and for errors as replies, without which Valkey 9.1 crashes where it refuses.
    let format = if has_dry_runs() { c"DSEscc" } else { c"SEscc" };
    // SAFETY: the format takes a string and two C strings. The reply goes nowhere else.
    let reply = unsafe {
        *errno() = 0;
        let (call, name) = (api!(RedisModule_Call), c"SETRANGE");
        CallReply::of_call(ctx, name, || {
            call(ctx, name.as_ptr(), format.as_ptr(), key, c"0".as_ptr(), c"".as_ptr())
        })
    };
    let refusal = io::Error::last_os_error().raw_os_error();
    match refusal {
        Some(libc::ESPIPE) => Some(Authority::Refused),
        Some(libc::ENETDOWN | libc::EROFS) => Some(Authority::ClusterDown),
        Some(libc::EPERM) => Some(Authority::NotOurs),
        // Renamed, or the flags are not known.
        Some(libc::ENOENT | libc::EBADF) => None,
        _ => (has_dry_runs() || reply.is_some()).then_some(Authority::Yes),
    }
}

/// Whether the server would let a client read the key: in a cluster it refuses if the slot is not ours, or if it is
/// leaving and the key has left already.
pub(super) fn to_read(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString) -> Authority {
    to_read_all(ctx, &[key])
}

/// The same of all these keys at once: it also refuses if they are in several slots, and while their slot moves, unless all of
/// them are here. The client may have sent `ASKING`.
pub(super) fn to_read_all(ctx: *mut RedisModuleCtx, keys: &[*mut RedisModuleString]) -> Authority {
    if flags(ctx) & raw::REDISMODULE_CTX_FLAGS_CLUSTER == 0 {
        return Authority::Yes;
    }
    match ask_to_read(ctx, keys) {
        // Renamed: then nobody can be asked, and the server's own redirections have to do.
        None | Some(libc::ENOENT) => Authority::Yes,
        Some(libc::ENETDOWN) => Authority::ClusterDown,
        Some(_) => Authority::NotOurs,
    }
}

/// Asks the server whether it would let a client read the keys. `None` if it would, else the error number.
pub(super) fn ask_to_read(
    ctx: *mut RedisModuleCtx,
    keys: &[*mut RedisModuleString],
) -> Option<i32> {
    let format = if has_dry_runs() { c"Dv" } else { c"v" };
    let (start, count) = (keys.as_ptr(), keys.len());
    // SAFETY: the format takes strings and their number; the reply goes nowhere else. The error number is this thread's own.
    let reply = unsafe {
        *errno() = 0;
        let (call, name) = (api!(RedisModule_Call), c"EXISTS");
        CallReply::of_call(ctx, name, || call(ctx, name.as_ptr(), format.as_ptr(), start, count))
    };
    // To a dry run that succeeds some servers reply and some do not.
    match io::Error::last_os_error().raw_os_error() {
        Some(0) | None if has_dry_runs() => None,
        _ if reply.is_some() && !has_dry_runs() => None,
        refusal => Some(refusal.unwrap_or(0)),
    }
}

/// Whether the server can check a command without executing it (Redis and Valkey 7.2 on). A command that is executed
/// shows in `MONITOR` and in the statistics.
fn has_dry_runs() -> bool {
    // It came with the same release as dry runs, of which there is no sign.
    optional!(RedisModule_AddPostNotificationJob).is_some()
}

/// Of how many locks to ask, ten times a second, whether their slots have gone. Few where operators see each question.
pub(super) fn questions_in_a_round() -> usize {
    if has_dry_runs() { 500 } else { 25 }
}

fn flags(ctx: *mut RedisModuleCtx) -> u32 {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_GetContextFlags)(ctx) }.cast_unsigned()
}
