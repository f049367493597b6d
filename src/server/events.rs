//! What happens to keys behind the module's back: deletion, expiry, eviction, renaming, flushes, swaps.
//!
//! Nothing is decided here. An event only marks the locks that somebody waits for, and sees to it that
//! they are settled soon: the callbacks run in the middle of whatever the server is doing.

use super::api::{api, optional};
use super::call::bytes_of;
use super::handoff;
use super::state::STATE;
use super::{alarm, guard, learn};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent, RedisModuleString};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// What may free a lock, or shorten its lease: `del`, `rename_from`, `move_from`, `expire`, `expired`,
/// `evicted` and their like; and `loaded`, which comes with every key of an RDB file. Not the class of `set`: a
/// string put in a lock's place is a lock again, held by another, and plain SETs should not pay for us.
const CLASSES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED
    | raw::REDISMODULE_NOTIFY_LOADED;

/// Subscribes; false if the server will not have it.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: the callback has the signature the server calls.
    let keys =
        unsafe { api!(RedisModule_SubscribeToKeyspaceEvents)(ctx, CLASSES, Some(key_event)) };
    let events: [(u64, raw::RedisModuleEventCallback); 2] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(flushed)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(swapped)),
    ];
    keys == guard::status(true)
        && events.into_iter().all(|(id, callback)| {
            let event = RedisModuleEvent { id, dataver: 1 };
            // SAFETY: the callbacks have the signature the server calls.
            let outcome = unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, callback) };
            outcome == guard::status(true)
        })
}

unsafe extern "C" fn key_event(
    ctx: *mut RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut RedisModuleString,
) -> c_int {
    guard::value("key-event", guard::status(true), || {
        // SAFETY: the server names every event.
        let event = unsafe { CStr::from_ptr(event) };
        let is_applied = class == raw::REDISMODULE_NOTIFY_LOADED || event == c"expire";
        // A value that is restored comes from elsewhere, whoever this server is.
        if (is_applied && STATE.learning.get()) || event == c"restore" {
            learn::from_key(ctx, key);
        }
        if STATE.with_queues(|queues| queues.is_empty()) {
            return guard::status(true);
        }
        // SAFETY: takes a valid context.
        let db = unsafe { api!(RedisModule_GetSelectedDb)(ctx) };
        // SAFETY: the key's name lives as long as this callback.
        let name = unsafe { bytes_of(key) };
        if class == raw::REDISMODULE_NOTIFY_EVICTED {
            // Not right after it: the server would evict the lock again, and again, until it gives up.
            if STATE.with_queues(|queues| queues.mark_evicted(db, name)) {
                alarm::set(ctx);
            }
        } else if STATE.with_queues(|queues| queues.mark(db, name)) {
            settle_soon(ctx);
        }
        guard::status(true)
    })
}

unsafe extern "C" fn flushed(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    info: *mut c_void,
) {
    guard::event("flush", || {
        if stage != raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
            return;
        }
        // SAFETY: with this event the server passes this structure.
        let info = unsafe { info.cast::<raw::RedisModuleFlushInfo>().as_ref() };
        // -1 stands for all databases.
        let db = info.map(|info| info.dbnum).filter(|&db| db >= 0);
        mark_all(ctx, &[db]);
    });
}

unsafe extern "C" fn swapped(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    _stage: u64,
    info: *mut c_void,
) {
    guard::event("swapdb", || {
        // SAFETY: with this event the server passes this structure.
        let Some(info) = (unsafe { info.cast::<raw::RedisModuleSwapDbInfo>().as_ref() }) else {
            return;
        };
        // Waiters stay with the number of their database, as those of BLPOP do; what it holds is new.
        mark_all(ctx, &[Some(info.dbnum_first), Some(info.dbnum_second)]);
    });
}

/// The locks of these databases (`None`: of all) may have become free.
pub(super) fn mark_all(ctx: *mut RedisModuleCtx, dbs: &[Option<i32>]) {
    STATE.with_queues(|queues| dbs.iter().for_each(|&db| queues.mark_all(db)));
    alarm::set(ctx);
}

/// Right after the command that caused the event, as part of its transaction, where the server can be
/// asked for that (7.2 on); else from the timer, at once.
fn settle_soon(ctx: *mut RedisModuleCtx) {
    let queued = optional!(RedisModule_AddPostNotificationJob).is_some_and(|add_job| {
        // SAFETY: the context is that of a notification; the callback has the signature the server calls, and
        // needs no data.
        unsafe { add_job(ctx, Some(job), ptr::null_mut(), None) == guard::status(true) }
    });
    if !queued {
        alarm::set(ctx);
    }
}

unsafe extern "C" fn job(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    guard::event("job", || handoff::work(ctx));
}
