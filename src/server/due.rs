//! What is due at some time, and done when the [alarm] rings.

use super::alarm::{self, Duties};
use super::ffi::main_thread::MainThread;
use super::ffi::subscription;
use super::host::Server;
use super::locks::LOCKS;
use super::throttle::Throttle;
use super::{
    authority, clock, command_filter, eviction, fence_broadcast, guard, listener_watch, slots,
};
use leasehold_core::lock::{Moment, Now};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::ffi::c_void;

/// Looks at locks to which nothing is known to have happened.
static ROUNDS: MainThread<Throttle> = MainThread::new(Throttle::new());

pub(super) fn begin() {
    alarm::begin(Duties { next, ring: Some(ring) });
}

/// When there is next something to do.
fn next(now: Now) -> Option<Moment> {
    let soon = [slots::due(now.monotonic), fence_broadcast::due(now.monotonic)];
    let soon = soon.into_iter().flatten().map(|then| now.wall_at(then));
    let in_vain = eviction::is_heard_in_vain().then_some(now.wall);
    soon.chain(LOCKS.next_due(now)).chain(in_vain).min()
}

/// Does what is due. Called from contexts of the module's own, whose selected database is nobody's.
fn work(ctx: *mut RedisModuleCtx) {
    slots::look();
    eviction::work(ctx);
    LOCKS.work(&Server { ctx });
    fence_broadcast::broadcast(ctx);
}

unsafe extern "C" fn ring(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    // First of all, whatever happens then: the server frees a timer that has rung, and stopping it would free
    // it again.
    let alarm = alarm::take();
    guard::event("alarm", ctx, || {
        // Nothing is due, and the next alarm is for the server's routine to set.
        if !alarm.is_some_and(|alarm| alarm.is_early(clock::now())) {
            work(ctx);
            alarm::reconsider();
        }
    });
}

/// The server's timers go by the wall clock. If that is set back by an hour, so is the alarm, and those who
/// wait would wait an hour longer; if it is set forward, the server does not look at once. Its own routine goes by a
/// clock that never steps: it notices an alarm that is further away than any can be, or that should have rung, and
/// sets it anew.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) -> bool {
    subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_CRON_LOOP, Some(routine))
}

unsafe extern "C" fn routine(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    _stage: u64,
    _info: *mut c_void,
) {
    guard::event("routine", ctx, || {
        if slots::is_in_cluster() {
            // Nothing tells the module that the cluster is down, in which case nobody is to wait, or that other nodes
            // say that a slot has gone.
            ROUNDS.want();
            if ROUNDS.take(clock::monotonic()) {
                let count = authority::questions_in_a_round();
                LOCKS.with_queues(|queues| queues.doubt_next_slots(count));
            }
        }
        alarm::check(ctx);
        command_filter::remove_if_idle(ctx);
        listener_watch::look(ctx);
    });
}
