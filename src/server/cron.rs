//! What is done when the [timer] rings.

use crate::clients::host::Server;
use crate::cluster::slots;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, MainThread, subscription};
use crate::keys::{command_filter, eviction};
use crate::replication::{fence_clock, listeners};
use crate::throttle::Throttle;
use crate::timer::{self, Duties};
use crate::{authority, clock, guard};
use leasehold_core::lock::{Moment, Now};
use redis_module::raw::{self, RedisModuleEvent};
use std::ffi::c_void;

/// Rounds of checks of locks that no event has named.
static ROUNDS: MainThread<Throttle> = MainThread::new(Throttle::new());

pub(crate) fn begin() {
    timer::begin(Duties { next, ring: Some(ring) });
}

/// When the next thing is due.
fn next(now: Now) -> Option<Moment> {
    let soon = [slots::due(now.monotonic), fence_clock::due(now.monotonic)];
    let soon = soon.into_iter().flatten().map(|then| now.wall_at(then));
    let in_vain = eviction::is_heard_in_vain().then_some(now.wall);
    soon.chain(ENGINE.next_due(now)).chain(in_vain).min()
}

/// Does what is due. Called from the module's own contexts, whose selected database no client uses.
fn work(ctx: Ctx) {
    slots::look();
    eviction::work(ctx);
    ENGINE.on(&Server { ctx }).work();
    fence_clock::broadcast(ctx);
}

unsafe extern "C" fn ring(ctx: Ctx, _data: *mut c_void) {
    // First, whatever happens then: the server frees a timer that has fired, and stopping the timer would free it
    // again.
    let alarm = timer::take();
    guard::event("alarm", ctx, || {
        // If the alarm is early, nothing is due, and the server's cron sets the next alarm.
        if !alarm.is_some_and(|alarm| alarm.is_early(clock::now())) {
            work(ctx);
            timer::reconsider();
        }
    });
}

/// Subscribes to the server's cron. The server's timers follow the wall clock. If the clock is set back by an hour,
/// the alarm would ring, and waiters would get their locks, an hour late. If the clock is set forward, the server does
/// not look at its timers at once. The cron follows a clock that never steps. It notices an alarm that is further
/// ahead than any alarm can be, or that should have rung, and sets it again.
pub(crate) fn subscribe(ctx: Ctx) -> bool {
    subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_CRON_LOOP, Some(routine))
}

unsafe extern "C" fn routine(ctx: Ctx, _: RedisModuleEvent, _stage: u64, _info: *mut c_void) {
    guard::event("routine", ctx, || {
        if slots::is_in_cluster() {
            // No event tells the module that the cluster is down, when nobody may wait, or that other nodes say that a
            // slot has left.
            ROUNDS.want();
            if ROUNDS.take(clock::monotonic()) {
                let count = authority::questions_in_a_round();
                ENGINE.with_queues(|queues| queues.doubt_next_slots(count));
            }
        }
        timer::check(ctx);
        command_filter::remove_if_idle(ctx);
        listeners::look(ctx);
    });
}
