//! The only place that reads a clock: the server's own, through its API.
//!
//! Not the system's, although the two agree: a key expires by the server's clock, and so must a lease.

use super::api::{api, optional};
use crate::lock::Moment;
use redis_module::raw;

pub(super) fn now() -> Moment {
    if let Some(microseconds) = optional!(RedisModule_Microseconds) {
        // SAFETY: takes nothing, reads the server's clock.
        return Moment::from_micros(u64::try_from(unsafe { microseconds() }).unwrap_or(0));
    }
    // SAFETY: as above.
    let millis: raw::mstime_t = unsafe { api!(RedisModule_Milliseconds)() };
    Moment::from_millis(u64::try_from(millis).unwrap_or(0))
}
