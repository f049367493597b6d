//! One timer of the server's for everything that is due at some time.
//!
//! It exists only while something is due.
//!
//! Nobody sets it by hand. Whatever may make something due sooner, or later, notes it: the
//! [engine](leasehold_core::engine::Engine::take_due_changed), and for all else [`reconsider`]. The [guard](super::guard)
//! of each call of the server's looks for such a note at the end, and sets the alarm if there is one.

use super::clock;
use super::ffi::api::api;
use super::ffi::main_thread::MainThread;
use super::locks::LOCKS;
use leasehold_core::lock::{Moment, Monotonic, Now};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleTimerID};
use std::cell::Cell;
use std::ptr;

/// No alarm is set further away: a look at a contended lock is due a second after the last one.
const FURTHEST_MILLIS: u64 = 2_000;

/// No alarm rings so late unless the server was busy all the time.
const LATE_MILLIS: u64 = 20;

/// By so much the server's clock may fall back although nobody sets it. That of Valkey 9.1 is ahead by up to a millisecond for as
/// long, if the server was kept from running in the middle of a look at the system's.
const JITTER_MILLIS: u64 = 2;

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
    /// again, and the server do nothing else for as long as the clock is behind. If that is no more than a moment, the moment
    /// is spent so: who waits is not to wait for the server's routine.
    pub(super) fn is_early(self, now: Moment) -> bool {
        self.rings > now.plus_millis(JITTER_MILLIS)
    }
}

/// What the alarm is for.
#[derive(Clone, Copy)]
pub(super) struct Duties {
    /// When there is next something to do.
    pub(super) next: fn(Now) -> Option<Moment>,
    /// Does it. It calls [`take`] first.
    pub(super) ring: raw::RedisModuleTimerProc,
}

static ALARM: MainThread<Cell<Option<Alarm>>> = MainThread::new(Cell::new(None));
static DUTIES: MainThread<Cell<Option<Duties>>> = MainThread::new(Cell::new(None));
static IS_TO_BE_RECONSIDERED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

pub(super) fn begin(duties: Duties) {
    DUTIES.set(Some(duties));
}

/// Something may be due sooner than before, or not be due any more.
pub(super) fn reconsider() {
    IS_TO_BE_RECONSIDERED.set(true);
}

/// Whether what is due next may have changed since the last call.
pub(super) fn is_to_be_set() -> bool {
    let has_changed = LOCKS.take_due_changed();
    IS_TO_BE_RECONSIDERED.take() || has_changed
}

/// Sets the alarm to the next thing due, if it is not set to that already.
pub(super) fn set(ctx: *mut RedisModuleCtx) {
    let Some(Duties { next, ring }) = DUTIES.get() else { return };
    let due = next(clock::both());
    let alarm = ALARM.get();
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
        start(ctx, rings, ring);
    }
}

/// Sets the alarm anew if the clock was set since, by which the server's timers go.
pub(super) fn check(ctx: *mut RedisModuleCtx) {
    match (ALARM.get(), DUTIES.get()) {
        (Some(alarm), Some(Duties { ring, .. })) if alarm.is_off(clock::both()) => {
            stop(ctx);
            start(ctx, clock::now(), ring);
        }
        // As a rule it is set already.
        _ => set(ctx),
    }
}

/// The alarm rings, and the server has forgotten it.
pub(super) fn take() -> Option<Alarm> {
    ALARM.take()
}

fn start(ctx: *mut RedisModuleCtx, rings: Moment, ring: raw::RedisModuleTimerProc) {
    let Now { wall, monotonic } = clock::both();
    let millis = rings.whole_millis_after(wall);
    let period = i64::try_from(millis).unwrap_or(i64::MAX);
    // SAFETY: the callback has the signature the server calls, and needs no data.
    let timer = unsafe { api!(RedisModule_CreateTimer)(ctx, period, ring, ptr::null_mut()) };
    let rings_unless_set = monotonic.plus_millis(millis);
    ALARM.set(Some(Alarm { timer, rings, rings_unless_set }));
}

fn stop(ctx: *mut RedisModuleCtx) {
    if let Some(alarm) = ALARM.take() {
        // SAFETY: created in `set` and forgotten above; it has not rung, because `ring` forgets it first.
        unsafe { api!(RedisModule_StopTimer)(ctx, alarm.timer, ptr::null_mut()) };
    }
}
