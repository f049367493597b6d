//! One server timer for everything that is due at some time. The timer exists only while something is due.
//!
//! Nobody sets the timer directly. Code that may change what is due leaves a note: the
//! [engine](leasehold_core::engine::Memory::take_due_changed) has its own, and all other code calls [`reconsider`].
//! The [guard](crate::guard) reads the notes at the end of each call from the server, and sets the alarm if there is
//! one.

use crate::clock;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, MainThread, api};
use leasehold_core::lock::{Moment, Monotonic, Now};
use redis_module::raw::{self, RedisModuleTimerID};
use std::cell::Cell;
use std::ptr;

/// No alarm is set further ahead: a contended lock is looked at again one second after the last look.
const FURTHEST_MILLIS: u64 = 2_000;

/// An alarm rings later than this only if the server was busy all the time.
const LATE_MILLIS: u64 = 20;

/// How far the server's clock may fall back although nobody sets it. The clock of Valkey 9.1 runs up to a millisecond
/// ahead, for as long, if the process was suspended while it read the system's clock.
const JITTER_MILLIS: u64 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarm {
    timer: RedisModuleTimerID,
    rings: Moment,
    /// The same moment as `rings`, if nobody sets the clock.
    rings_unless_set: Monotonic,
}

impl Alarm {
    /// Whether the clock was set after the alarm.
    fn is_off(self, now: Now) -> bool {
        self.rings > now.wall.plus_millis(FURTHEST_MILLIS)
            || self.rings.plus_millis(LATE_MILLIS) < now.wall
            || self.rings_unless_set.plus_millis(LATE_MILLIS) < now.monotonic
    }

    /// Whether the alarm rings before its time. The server reads the clock once, then fires every timer that is due by
    /// then, also timers that are set meanwhile. If the clock is set back just then, a new timer would fire at once,
    /// again and again, and the server would do nothing else until the clock catches up. A difference of at most
    /// `JITTER_MILLIS` is ignored, so that waiters do not wait for the server's cron.
    pub(crate) fn is_early(self, now: Moment) -> bool {
        self.rings > now.plus_millis(JITTER_MILLIS)
    }
}

/// What the alarm is for.
#[derive(Clone, Copy)]
pub(crate) struct Duties {
    /// When the next thing is due.
    pub(crate) next: fn(Now) -> Option<Moment>,
    /// Does what is due. Calls [`take`] first.
    pub(crate) ring: raw::RedisModuleTimerProc,
}

static ALARM: MainThread<Cell<Option<Alarm>>> = MainThread::new(Cell::new(None));
static DUTIES: MainThread<Cell<Option<Duties>>> = MainThread::new(Cell::new(None));
static IS_TO_BE_RECONSIDERED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

pub(crate) fn begin(duties: Duties) {
    DUTIES.set(Some(duties));
}

/// Notes that something may be due sooner than before, or no longer due.
pub(crate) fn reconsider() {
    IS_TO_BE_RECONSIDERED.set(true);
}

/// Whether what is due next may have changed since the last call.
pub(crate) fn is_to_be_set() -> bool {
    let has_changed = ENGINE.take_due_changed();
    IS_TO_BE_RECONSIDERED.take() || has_changed
}

/// Sets the alarm for the next thing due, unless it is set early enough already.
pub(crate) fn set(ctx: Ctx) {
    let Some(Duties { next, ring }) = DUTIES.get() else { return };
    let due = next(clock::both());
    let alarm = ALARM.get();
    // An alarm that rings too early finds nothing to do, and is set again.
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

/// Sets the alarm again if the clock was set meanwhile: the server's timers follow the wall clock.
pub(crate) fn check(ctx: Ctx) {
    match (ALARM.get(), DUTIES.get()) {
        (Some(alarm), Some(Duties { ring, .. })) if alarm.is_off(clock::both()) => {
            stop(ctx);
            start(ctx, clock::now(), ring);
        }
        // Usually the alarm is set already.
        _ => set(ctx),
    }
}

/// Forgets the alarm that rings. The server has freed its timer.
pub(crate) fn take() -> Option<Alarm> {
    ALARM.take()
}

fn start(ctx: Ctx, rings: Moment, ring: raw::RedisModuleTimerProc) {
    let Now { wall, monotonic } = clock::both();
    let millis = rings.whole_millis_after(wall);
    let period = i64::try_from(millis).unwrap_or(i64::MAX);
    // SAFETY: the callback has the signature that the server calls, and needs no data.
    let timer = unsafe { api!(RedisModule_CreateTimer)(ctx, period, ring, ptr::null_mut()) };
    let rings_unless_set = monotonic.plus_millis(millis);
    ALARM.set(Some(Alarm { timer, rings, rings_unless_set }));
}

fn stop(ctx: Ctx) {
    if let Some(alarm) = ALARM.take() {
        // SAFETY: created in `start` and forgotten just now. The timer has not fired, because `ring` forgets it first.
        unsafe { api!(RedisModule_StopTimer)(ctx, alarm.timer, ptr::null_mut()) };
    }
}
