//! The moments at which grants may have been made that this process does not know of.

use super::fence_observer::{self, Loading};
use super::host::Server;
use super::{alarm, clock, config, fence_broadcast, guard, slots, subscription};
use crate::server::state::STATE;
use leasehold_core::engine::Host;
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::ffi::c_void;

/// Lifts the fence clock above whatever a process with a clock close to ours may have given out until
/// now (L2). A server that lost its data, or took over from a primary whose last grants it never saw, has
/// nothing else to go by.
pub(super) fn raise_fences() {
    let floor = clock::exactly().plus_millis(config::fence_margin_millis());
    STATE.with_fences(|fences| fences.raise(floor));
    fence_broadcast::request_after_lift();
}

/// The same for a server that begins to grant locks. Where an operator wants it so, nothing is granted for a while
/// either: grants that this server does not know of may still be in force, and run out meanwhile (L1).
pub(super) fn begin() {
    raise_fences();
    quarantine();
}

/// Why fences could go back if this module were unloaded now and loaded again (L2). It would remember nothing, and begin a
/// margin above the clock, as any start does. So the fence clock may be no further ahead than that, as it is after
/// `LOCK.RAISE`, or once the clock was set back.
pub(super) fn obstacle_to_a_later_load() -> Option<String> {
    let ahead = STATE.fences().ahead_micros(clock::exactly());
    let margin_millis = config::fence_margin_after_a_load_millis();
    (ahead > margin_millis.saturating_mul(1_000)).then(|| {
        format!(
            "fences are {} ms ahead of the clock, and those after a load begin {margin_millis} ms ahead of it, \
             so they might go back",
            ahead.div_ceil(1_000)
        )
    })
}

/// The same for one that takes over from a primary, whose fences it knows except for the last.
fn take_over() {
    let margin = config::fence_margin_millis();
    STATE.with_fences(|fences| fences.raise_above_known(clock::now(), margin));
    fence_broadcast::request_after_lift();
    quarantine();
}

fn quarantine() {
    let millis = config::quarantine_millis();
    STATE.with_fences(|fences| fences.quarantine(clock::monotonic(), millis));
}

/// Subscribes to the events; false if the server will not have it.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) -> bool {
    let events: [(u64, raw::RedisModuleEventCallback); 3] = [
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(role_changed)),
        (raw::REDISMODULE_EVENT_LOADING, Some(loading)),
        (raw::REDISMODULE_EVENT_SHUTDOWN, Some(shutdown)),
    ];
    events.into_iter().all(|(id, callback)| subscription::to_server_event(ctx, id, callback))
}

unsafe extern "C" fn role_changed(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    role: u64,
    _data: *mut c_void,
) {
    guard::event("role-changed", || {
        fence_observer::update_subscriptions(ctx, Loading::Nothing);
        slots::begin();
        STATE.locks.role_changed();
        if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
            take_over();
        } else {
            // Most servers have sent them away already; some leave it to the module.
            let server = Server { ctx };
            STATE.locks.send_all_away(&server, server.demoted());
            alarm::set(ctx);
        }
    });
}

unsafe extern "C" fn loading(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    _data: *mut c_void,
) {
    guard::event("loading", || {
        let ended =
            [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED];
        let loading = match stage {
            raw::REDISMODULE_SUBEVENT_LOADING_AOF_START => Loading::Commands,
            stage if ended.contains(&stage) => Loading::Nothing,
            _ => Loading::Keys,
        };
        fence_observer::update_subscriptions(ctx, loading);
        if stage == raw::REDISMODULE_SUBEVENT_LOADING_ENDED {
            begin();
            STATE.locks.loaded();
            alarm::set(ctx);
        }
    });
}

/// From here there is no way back.
unsafe extern "C" fn shutdown(
    _ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    _stage: u64,
    _data: *mut c_void,
) {
    guard::event("shutdown", || STATE.going_down.set(true));
}
