//! What replicas and the append-only file are told.
//!
//! Effects, not commands: a grant and every new end of a lease is `SET key value PXAT deadline`, a release
//! is `DEL key`. So the data loads, replicates and reads the same on servers without the module, and
//! nothing depends on another server's clock.

use super::api::api;
use super::guard;
use crate::command::Error;
use crate::lock::Deadline;
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::ffi::{CStr, c_int, c_longlong};
use std::io;

const SET: &CStr = c"SET";
const DEL: &CStr = c"DEL";
const PXAT: &CStr = c"PXAT";

pub(super) fn set(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    value: *mut RedisModuleString,
    deadline: Option<Deadline>,
) -> Result<(), Error> {
    let Some(deadline) = deadline else {
        // SAFETY: the format takes two strings; the server takes its own share of them.
        return accepted(unsafe {
            api!(RedisModule_Replicate)(ctx, SET.as_ptr(), c"ss".as_ptr(), name, value)
        });
    };
    // SAFETY: the format takes two strings, a C string and a long long, which is what follows; the server
    // takes its own share of the strings.
    accepted(unsafe {
        api!(RedisModule_Replicate)(
            ctx,
            SET.as_ptr(),
            c"sscl".as_ptr(),
            name,
            value,
            PXAT.as_ptr(),
            signed_millis(deadline),
        )
    })
}

pub(super) fn del(ctx: *mut RedisModuleCtx, name: *mut RedisModuleString) -> Result<(), Error> {
    // SAFETY: the format takes one string.
    accepted(unsafe { api!(RedisModule_Replicate)(ctx, DEL.as_ptr(), c"s".as_ptr(), name) })
}

/// A deadline as the server counts it. None is near the end of the signed range: see `Ttl::LONGEST`.
pub(super) fn signed_millis(deadline: Deadline) -> c_longlong {
    c_longlong::try_from(deadline.millis()).unwrap_or(c_longlong::MAX)
}

/// Why grants and releases could not be replicated here; `None` if they can.
///
/// The server looks up the command it is told to replicate by name. With `rename-command SET ...` the name
/// is gone: grants would be made, and silently missing from every replica and the file.
pub(super) fn obstacle(ctx: *mut RedisModuleCtx) -> Option<String> {
    [(SET, "a grant"), (DEL, "a release")].into_iter().find(|(name, _)| is_unknown(ctx, name)).map(
        |(name, what)| {
            let name = name.to_string_lossy();
            format!(
                "the command {name} is renamed or disabled (rename-command), \
                 and {what} is replicated as {name}"
            )
        },
    )
}

/// Calls the command with no arguments, which neither takes: an unknown one is told from a known one
/// by the error, and nothing can come of either.
fn is_unknown(ctx: *mut RedisModuleCtx, name: &CStr) -> bool {
    // SAFETY: the format takes nothing. The reply is null, for either reason.
    let reply = unsafe { api!(RedisModule_Call)(ctx, name.as_ptr(), c"".as_ptr()) };
    debug_assert!(reply.is_null());
    io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT)
}

fn accepted(outcome: c_int) -> Result<(), Error> {
    if outcome == guard::status(true) { Ok(()) } else { Err(Error::NotReplicated) }
}
