//! Changes to keys that no command names: flushes and swaps. For evictions see [`eviction`](super::eviction), for
//! commands that name keys [`command_filter`](super::command_filter).
//!
//! Nothing is decided here. An event only marks the locks that have waiters. The callbacks run while the server does
//! something else, such as walking the very tables that a hand-off would change. For the same reason there are no
//! post-notification jobs (`RM_AddPostNotificationJob`): some servers run them between two steps of such a walk, and
//! crash.

use crate::engine::ENGINE;
use crate::ffi::{Ctx, subscription};
use crate::guard;
use redis_module::raw::{self, RedisModuleEvent};
use std::ffi::c_void;

/// Subscribes to the events. False if the server refuses.
pub(crate) fn subscribe(ctx: Ctx) -> bool {
    let events: [(u64, raw::RedisModuleEventCallback); 2] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(flushed)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(swapped)),
    ];
    events.into_iter().all(|(id, callback)| subscription::to_server_event(ctx, id, callback))
}

unsafe extern "C" fn flushed(ctx: Ctx, _: RedisModuleEvent, stage: u64, info: *mut c_void) {
    guard::event("flush", ctx, || {
        if stage != raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
            return;
        }
        // SAFETY: with this event the server passes this structure.
        let info = unsafe { info.cast::<raw::RedisModuleFlushInfo>().as_ref() };
        // -1 stands for all databases.
        let db = info.map(|info| info.dbnum).filter(|&db| db >= 0);
        ENGINE.flushed(db);
    });
}

unsafe extern "C" fn swapped(ctx: Ctx, _: RedisModuleEvent, _stage: u64, info: *mut c_void) {
    guard::event("swapdb", ctx, || {
        // SAFETY: with this event the server passes this structure.
        let Some(info) = (unsafe { info.cast::<raw::RedisModuleSwapDbInfo>().as_ref() }) else {
            return;
        };
        ENGINE.swapped(info.dbnum_first, info.dbnum_second);
    });
}
