//! A replica listens to its primary's grants.
//!
//! They arrive as plain `SET key value PXAT deadline`, which the server applies without asking the module.
//! To be above every fence that reached it when it is promoted, also with a clock that is an hour
//! behind and for locks that were released since, the replica looks at each command of the stream. A
//! command filter is the cheapest way to: it exists only while the server is a replica, so primaries pay
//! nothing, and it is called with the words already parsed.

use super::api::api;
use super::call::bytes_of;
use super::state::STATE;
use super::{clock, guard};
use crate::lock::Hold;
use redis_module::raw::{self, RedisModuleCommandFilterCtx, RedisModuleCtx};
use std::ptr;

/// Starts to listen; false if the server will not have it.
pub(super) fn listen(ctx: *mut RedisModuleCtx) -> bool {
    if STATE.replica_filter.get().is_null() {
        // SAFETY: the callback has the signature the server calls.
        let handle = unsafe { api!(RedisModule_RegisterCommandFilter)(ctx, Some(filter), 0) };
        STATE.replica_filter.set(handle);
    }
    !STATE.replica_filter.get().is_null()
}

pub(super) fn stop_listening(ctx: *mut RedisModuleCtx) {
    let handle = STATE.replica_filter.replace(ptr::null_mut());
    if !handle.is_null() {
        // SAFETY: registered in `listen`, and forgotten above, so never given back twice.
        unsafe { api!(RedisModule_UnregisterCommandFilter)(ctx, handle) };
    }
}

/// Whether this server is a replica.
pub(super) fn is_replica(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: takes a valid context.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(ctx) };
    flags & raw::REDISMODULE_CTX_FLAGS_SLAVE.cast_signed() != 0
}

unsafe extern "C" fn filter(command: *mut RedisModuleCommandFilterCtx) {
    guard::event("replica-filter", || {
        let word = |position| {
            // SAFETY: the context is the one the server is calling with, and the position is one the
            // command has; the words live until the filter returns.
            unsafe { bytes_of(api!(RedisModule_CommandFilterArgGet)(command, position)) }
        };
        // SAFETY: as above.
        let words = unsafe { api!(RedisModule_CommandFilterArgsCount)(command) };
        if words == 5
            && word(0).eq_ignore_ascii_case(b"SET")
            && word(3) == b"PXAT"
            && let Some(fence) = Hold::read(word(2), None).fence
        {
            STATE.with_fences(|fences| fences.observe(fence, clock::now()));
        }
    });
}
