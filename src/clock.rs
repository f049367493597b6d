//! The only place that reads clocks. The time comes from the server, through its API, not from the system.
//!
//! The two agree, but a key expires by the server's clock, and so must a lease. The one exception is [`exactly`].
//! Durations are measured with [`monotonic`].

use crate::ffi::{api, optional};
use leasehold_core::lock::{Moment, Monotonic, Now};
use redis_module::raw;
use std::sync::LazyLock;
use std::time::{Instant, UNIX_EPOCH};

pub(crate) fn now() -> Moment {
    in_micros().unwrap_or_else(in_millis)
}

/// For durations: nobody can set this clock. On Linux it stands still while the machine is suspended.
pub(crate) fn monotonic() -> Monotonic {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Monotonic::from_micros(u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX))
}

pub(crate) fn both() -> Now {
    Now { wall: now(), monotonic: monotonic() }
}

/// The wall clock, to the microsecond on every server. For what must differ between two cluster nodes that act a
/// moment apart. The system's clock suffices, since no lease ends by this time.
pub(crate) fn exactly() -> Moment {
    in_micros().unwrap_or_else(|| {
        let since = UNIX_EPOCH.elapsed().unwrap_or_default();
        Moment::from_micros(u64::try_from(since.as_micros()).unwrap_or(0))
    })
}

/// When the server began to execute the current command: constant until the command is done. Redis 7.0 and earlier do
/// not say.
pub(crate) fn beginning_of_command() -> Option<Moment> {
    let at_the_beginning = optional!(RedisModule_CachedMicroseconds)?;
    // SAFETY: takes no arguments, and reads a time that the server keeps.
    let micros = unsafe { at_the_beginning() };
    Some(Moment::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// Never earlier than the beginning of the current command: the server judges expiries by that moment until the
/// command is done. If the clock was set back meanwhile, a lease granted now would otherwise be over at once.
fn in_micros() -> Option<Moment> {
    let microseconds = optional!(RedisModule_Microseconds)?;
    let at_the_beginning = optional!(RedisModule_CachedMicroseconds)?;
    // SAFETY: takes no arguments, and reads the server's clock.
    let now = unsafe { microseconds() };
    // SAFETY: takes no arguments, and reads a time that the server keeps.
    let now = now.max(unsafe { at_the_beginning() });
    Some(Moment::from_micros(u64::try_from(now).unwrap_or(0)))
}

fn in_millis() -> Moment {
    // SAFETY: takes no arguments, and reads the server's clock.
    let millis: raw::mstime_t = unsafe { api!(RedisModule_Milliseconds)() };
    Moment::from_millis(u64::try_from(millis).unwrap_or(0))
}
