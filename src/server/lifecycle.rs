//! Changes of the whole server: it changes its role, loads its data, and ends.

use crate::clients::host::Server;
use crate::cluster::slots;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, MainThread, subscription};
use crate::guard;
use crate::keys::fence_observer::{self, Loading};
use crate::replication::{fence_clock, listeners};
use leasehold_core::engine::Host;
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_void;

/// Whether this process is about to end, so that its memory no longer matters.
static IS_ENDING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

pub(crate) fn is_ending() -> bool {
    IS_ENDING.get()
}

/// Subscribes to the events. False if the server refuses.
pub(crate) fn subscribe(ctx: Ctx) -> bool {
    let events: [(u64, raw::RedisModuleEventCallback); 3] = [
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(role_changed)),
        (raw::REDISMODULE_EVENT_LOADING, Some(loading)),
        (raw::REDISMODULE_EVENT_SHUTDOWN, Some(shutdown)),
    ];
    events.into_iter().all(|(id, callback)| subscription::to_server_event(ctx, id, callback))
}

unsafe extern "C" fn role_changed(ctx: Ctx, _: RedisModuleEvent, role: u64, _data: *mut c_void) {
    listeners::expect();
    guard::event("role-changed", ctx, || {
        fence_observer::update_subscriptions(ctx, Loading::Nothing);
        slots::begin();
        ENGINE.role_changed();
        if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
            fence_clock::take_over();
        } else {
            // Most servers have unblocked the waiters already. Some leave it to the module.
            let server = Server { ctx };
            ENGINE.on(&server).send_all_away(server.demoted());
        }
    });
}

unsafe extern "C" fn loading(ctx: Ctx, _: RedisModuleEvent, stage: u64, _data: *mut c_void) {
    listeners::expect();
    guard::event("loading", ctx, || {
        let ended =
            [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED];
        let loading = match stage {
            raw::REDISMODULE_SUBEVENT_LOADING_AOF_START => Loading::Commands,
            stage if ended.contains(&stage) => Loading::Nothing,
            _ => Loading::Keys,
        };
        fence_observer::update_subscriptions(ctx, loading);
        if stage == raw::REDISMODULE_SUBEVENT_LOADING_ENDED {
            fence_clock::begin();
            ENGINE.loaded();
        }
    });
}

/// The shutdown cannot be stopped from here on.
unsafe extern "C" fn shutdown(ctx: Ctx, _: RedisModuleEvent, _stage: u64, _data: *mut c_void) {
    guard::event("shutdown", ctx, || IS_ENDING.set(true));
}
