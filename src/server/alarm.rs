//! One timer of the server's for everything that is due at some time.
//!
//! It exists only while something is due: a timer keeps a module from being unloaded.

use super::api::api;
use super::host::Server;
use super::state::STATE;
use super::{authority, clock, command_filter, eviction, fence_broadcast, guard, subscription};
use leasehold_core::lock::{Moment, Monotonic, Now};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent, RedisModuleTimerID};
use std::ffi::c_void;
use std::ptr;

/// No alarm is set further away: every contended lock is looked at each second.
const FURTHEST_MILLIS: u64 = 2_000;

/// No alarm rings so late unless the server was busy all the time.
const LATE_MILLIS: u64 = 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct Alarm {
    timer: RedisModuleTimerID,
    rings: Moment,
    /// The same moment, if nobody sets the clock.
    rings_unless_set: Monotonic,
}

impl Alarm {
    /// Whether the clock was set since.
    fn is_off(self, now: Now) -> bool {
        self.rings > now.wall.plus_millis(FURTHEST_MILLIS)
            || self.rings.plus_millis(LATE_MILLIS) < now.wall
            || self.rings_unless_set.plus_millis(LATE_MILLIS) < now.monotonic
    }

    /// Whether it rings before its time. The server looks at the clock once, and has every timer ring that was to by then,
    /// also those that are set meanwhile. If the clock is set back just then, so is what we set: it would ring at once, and
    /// again, and the server do nothing else for as long as the clock is behind.
    fn is_early(self, now: Moment) -> bool {
        self.rings > now
    }
}

/// Sets the alarm to the next thing due, if it is not set to that already.
pub(super) fn set(ctx: *mut RedisModuleCtx) {
    let due = next_due();
    let alarm = STATE.alarm.get();
    // One that rings too early only finds nothing to do, and is set again.
    let is_soon_enough = match (alarm, due) {
        (Some(alarm), Some(due)) => alarm.rings <= due,
        (alarm, None) => alarm.is_none(),
        (None, Some(_)) => false,
    };
    if is_soon_enough {
        return;
    }
    stop(ctx);
    if let Some(rings) = due {
        start(ctx, rings);
    }
}

fn start(ctx: *mut RedisModuleCtx, rings: Moment) {
    let Now { wall, monotonic } = clock::both();
    let millis = rings.whole_millis_after(wall);
    let period = i64::try_from(millis).unwrap_or(i64::MAX);
    // SAFETY: the callback has the signature the server calls, and needs no data.
    let timer = unsafe { api!(RedisModule_CreateTimer)(ctx, period, Some(ring), ptr::null_mut()) };
    let rings_unless_set = monotonic.plus_millis(millis);
    STATE.alarm.set(Some(Alarm { timer, rings, rings_unless_set }));
}

pub(super) fn stop(ctx: *mut RedisModuleCtx) {
    if let Some(alarm) = STATE.alarm.take() {
        // SAFETY: created in `set` and forgotten above; it has not rung, because `ring` forgets it first.
        unsafe { api!(RedisModule_StopTimer)(ctx, alarm.timer, ptr::null_mut()) };
    }
}

fn next_due() -> Option<Moment> {
    let now = clock::both();
    let soon = [STATE.movements.due(now.monotonic), STATE.fence_broadcast.due(now.monotonic)];
    let soon = soon.into_iter().flatten().map(|then| now.wall_at(then));
    let locks = STATE.locks.next_due(now);
    let in_vain = eviction::is_heard_in_vain().then_some(now.wall);
    soon.chain(locks).chain(in_vain).min()
}

/// Does what is due. Called from contexts of the module's own, whose selected database is nobody's.
pub(super) fn work(ctx: *mut RedisModuleCtx) {
    STATE.movements.look();
    eviction::work(ctx);
    STATE.locks.work(&Server { ctx });
    fence_broadcast::broadcast(ctx);
    set(ctx);
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
    guard::event("routine", || {
        if STATE.in_cluster.get() {
            // Nothing tells the module that the cluster is down, in which case nobody is to wait, or that other nodes
            // say that a slot has gone.
            STATE.rounds.want();
            if STATE.rounds.take(clock::monotonic()) {
                let count = authority::questions_in_a_round();
                STATE.locks.with_queues(|queues| queues.doubt_next_slots(count));
            }
        }
        match STATE.alarm.get() {
            Some(alarm) if alarm.is_off(clock::both()) => {
                stop(ctx);
                start(ctx, clock::now());
            }
            // As a rule it is set already.
            _ => set(ctx),
        }
        command_filter::remove_if_idle(ctx);
    });
}

unsafe extern "C" fn ring(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    // First of all, whatever happens then: the server frees a timer that has rung, and stopping it would free
    // it again.
    let alarm = STATE.alarm.take();
    guard::event("alarm", || {
        // Nothing is due, and the next alarm is for the server's routine to set.
        if !alarm.is_some_and(|alarm| alarm.is_early(clock::now())) {
            work(ctx);
        }
    });
}
