//! The only place that reads clocks. What time it is comes from the server, through its API.
//!
//! It does not come from the system, although the two agree: a key expires by the server's clock, and so must a
//! lease. There is one exception: see [`exactly`]. How long something has lasted is told by [`monotonic`].

use super::ffi::api::{api, optional};
use leasehold_core::lock::{Moment, Monotonic, Now};
use redis_module::raw;
use std::sync::LazyLock;
use std::time::{Instant, UNIX_EPOCH};

pub(super) fn now() -> Moment {
    in_micros().unwrap_or_else(in_millis)
}

/// What lasts for some time goes by this clock, which nobody can set. On Linux it stands still while
/// the machine is suspended.
pub(super) fn monotonic() -> Monotonic {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Monotonic::from_micros(u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX))
}

pub(super) fn both() -> Now {
    Now { wall: now(), monotonic: monotonic() }
}

/// The same, to the microsecond on every server: for what must differ between two nodes of a cluster, one of which does
/// something a moment after the other did. The system's clock will do, since no lease ends by it.
pub(super) fn exactly() -> Moment {
    in_micros().unwrap_or_else(|| {
        let since = UNIX_EPOCH.elapsed().unwrap_or_default();
        Moment::from_micros(u64::try_from(since.as_micros()).unwrap_or(0))
    })
}

/// When the server began with the command that it is executing: the same moment for as long as that takes. Redis 7.0 and
/// before do not tell.
pub(super) fn beginning_of_command() -> Option<Moment> {
    let at_the_beginning = optional!(RedisModule_CachedMicroseconds)?;
    // SAFETY: takes nothing, reads what the server noted.
    let micros = unsafe { at_the_beginning() };
    Some(Moment::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// Not before the moment at which the server began with the command, by which it judges whether keys have expired until
/// it has done it: if the clock was set back since, what is granted now would be over at once.
fn in_micros() -> Option<Moment> {
    let microseconds = optional!(RedisModule_Microseconds)?;
    let at_the_beginning = optional!(RedisModule_CachedMicroseconds)?;
    // SAFETY: takes nothing, reads the server's clock.
    let now = unsafe { microseconds() };
    // SAFETY: takes nothing, reads what the server noted.
    let now = now.max(unsafe { at_the_beginning() });
    Some(Moment::from_micros(u64::try_from(now).unwrap_or(0)))
}

fn in_millis() -> Moment {
    // SAFETY: as above.
    let millis: raw::mstime_t = unsafe { api!(RedisModule_Milliseconds)() };
    Moment::from_millis(u64::try_from(millis).unwrap_or(0))
}
