//! Connections that end while holds are bound to them.
//!
//! The server reports every connection that begins and ends, so the module subscribes only once a hold is bound. The
//! event comes while the server does something else, so the [engine](leasehold_core::engine) only notes it.

use crate::engine::ENGINE;
use crate::ffi::{Ctx, MainThread, Subscription, optional, status};
use crate::{clock, guard};
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

static CHANGES: MainThread<Subscription> =
    MainThread::new(Subscription::to_server(raw::REDISMODULE_EVENT_CLIENT_CHANGE, Some(changed)));

/// Whether the server is about to call [`woken`].
static IS_WAKING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Subscribes: a hold is bound.
pub(crate) fn hear(ctx: Ctx) {
    CHANGES.take_out(ctx);
}

/// A connection has begun, or is about to be closed.
unsafe extern "C" fn changed(ctx: Ctx, _: RedisModuleEvent, change: u64, info: *mut c_void) {
    if change != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    guard::event("connection-ended", ctx, || {
        // SAFETY: with this event the server passes this structure.
        let Some(info) = (unsafe { info.cast::<raw::RedisModuleClientInfo>().as_ref() }) else {
            return;
        };
        if ENGINE.connection_ended(info.id, clock::monotonic()) {
            wake();
        }
    });
}

/// Wakes the server, so that it sees a timer set in this event. Redis 7.0 closes most connections after it has decided
/// how long to sleep, and would fire such a timer late. Redis 6.2 cannot be woken. Later servers decide how long to
/// sleep after they have closed connections.
fn wake() {
    if IS_WAKING.get() || optional!(RedisModule_AddPostNotificationJob).is_some() {
        return;
    }
    if let Some(add) = optional!(RedisModule_EventLoopAddOneShot) {
        // SAFETY: the callback has the signature that the server calls, and needs no data.
        let outcome = unsafe { add(Some(woken), ptr::null_mut()) };
        IS_WAKING.set(outcome == status(true));
    }
}

unsafe extern "C" fn woken(_data: *mut c_void) {
    IS_WAKING.set(false);
}
