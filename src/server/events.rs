//! What happens to keys behind the module's back and without a command that names them: evictions, flushes,
//! swaps. Commands that do name them are the business of [`lookout`](super::lookout).
//!
//! Nothing is decided here. An event only marks the locks that somebody waits for, and sets the alarm: the
//! callbacks run in the middle of whatever the server is doing, such as walking over the very tables that a hand-off
//! would change. For the same reason there are no jobs after a notification (`RM_AddPostNotificationJob`), which some
//! servers run between two steps of such a walk, and die.

use super::api::api;
use super::call::bytes_of;
use super::state::STATE;
use super::subscription::{self, Subscription};
use super::{alarm, guard, handoff};
use crate::plant::{Bug, planted};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent, RedisModuleString};
use std::ffi::{c_char, c_int, c_void};

/// Subscribes to what comes without a command that names the key; false if the server will not have it.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) -> bool {
    let events: [(u64, raw::RedisModuleEventCallback); 2] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(flushed)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(swapped)),
    ];
    events.into_iter().all(|(id, callback)| subscription::to_server_event(ctx, id, callback))
}

/// Taken out while somebody waits: a server that evicts all the time should not pay for locks that nobody waits for.
pub(super) const fn of_evictions() -> Subscription {
    Subscription::new(raw::REDISMODULE_NOTIFY_EVICTED, Some(evicted))
}

unsafe extern "C" fn evicted(
    ctx: *mut RedisModuleCtx,
    _class: c_int,
    _event: *const c_char,
    key: *mut RedisModuleString,
) -> c_int {
    guard::value("evicted", guard::status(true), || {
        if STATE.with_queues(|queues| queues.is_empty()) {
            return guard::status(true);
        }
        // SAFETY: takes a valid context.
        let db = unsafe { api!(RedisModule_GetSelectedDb)(ctx) };
        // SAFETY: the key's name lives as long as this callback.
        let name = unsafe { bytes_of(key) };
        if STATE.with_queues(|queues| queues.mark_evicted(db, name)) {
            alarm::set(ctx);
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
        if planted(Bug::FlushForgets) {
            return STATE.with_queues(|queues| drop(queues.leave_all()));
        }
        mark_all(ctx, &[db]);
        if planted(Bug::WritesInEvent) {
            handoff::work(ctx);
        }
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
        if planted(Bug::SwapForgets) {
            return STATE.with_queues(|queues| drop(queues.leave_all()));
        }
        // Waiters stay with the number of their database, as those of BLPOP do; what it holds is new.
        mark_all(ctx, &[Some(info.dbnum_first), Some(info.dbnum_second)]);
    });
}

/// The locks of these databases (`None`: of all) may have become free.
pub(super) fn mark_all(ctx: *mut RedisModuleCtx, dbs: &[Option<i32>]) {
    STATE.with_queues(|queues| dbs.iter().for_each(|&db| queues.mark_all(db)));
    alarm::set(ctx);
}
