//! What an operator can set: `CONFIG SET leasehold.*` on servers that have module settings (7.0 on), and arguments of
//! the loadmodule line on all servers.

use crate::engine::{ENGINE, fences, with_fences};
use crate::ffi::{Ctx, RawString, optional, status};
use crate::{clock, guard};
use leasehold_core::command::parse_integer;
use leasehold_core::lock::{Limits, Patience, Ttl};
use leasehold_core::observe::USUAL_LONG_WAIT_MILLIS;
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

/// A number that an operator can set.
pub(crate) struct Setting {
    /// Without the `leasehold.` that the server puts in front.
    name: &'static CStr,
    bounds: RangeInclusive<i64>,
    default: i64,
    /// Atomic only because a static must be `Sync`: there is one thread.
    value: AtomicI64,
}

static MAX_TTL: Setting = Setting::new(
    c"max-ttl",
    1..=Ttl::LONGEST.millis().cast_signed(),
    Ttl::USUAL_LIMIT.millis().cast_signed(),
);
static MAX_HOLDERS: Setting = Setting::new(c"max-holders", 1..=99_999, 1_000);
/// How many milliseconds above the clock the fences of a new process, or a new primary, begin. More than the 10 s for
/// which a primary that Sentinel has replaced may go on, with Sentinel's default settings.
pub(crate) static FENCE_MARGIN: Setting = Setting::new(c"fence-margin", 0..=3_600_000, 15_000);
/// How many milliseconds a new process, or a new primary, grants nothing: at most the longest ttl.
pub(crate) static QUARANTINE: Setting =
    Setting::new(c"quarantine-ms", 0..=Ttl::LONGEST.millis().cast_signed(), 0);
/// How many waiters the server may have, if it accepts enough clients: see [`crate::clients::capacity`]. 80 % of the
/// default `maxclients`.
pub(crate) static MAX_WAITERS: Setting = Setting::new(c"max-waiters", 0..=1_000_000, 8_000);
pub(crate) static MAX_WAITERS_PER_LOCK: Setting =
    Setting::new(c"max-waiters-per-lock", 0..=1_000_000, 8_000);
/// A lock has no limit of its own for tickets: a ticket occupies no connection.
pub(crate) static MAX_TICKETS: Setting = Setting::new(c"max-tickets", 0..=1_000_000, 100_000);
/// The share of `maxclients` that the waiters may take, in percent. The rest is for the holders and for all other clients.
pub(crate) static MAX_WAITERS_PERCENT: Setting = Setting::new(c"max-waiters-percent", 1..=100, 80);
static LOG_MAX_LEN: Setting = Setting::new(c"log-max-len", 0..=10_000, 128);
static LOG_LONG_WAIT: Setting = Setting::new(
    c"log-long-wait",
    0..=Patience::LONGEST_MILLIS.cast_signed(),
    USUAL_LONG_WAIT_MILLIS.cast_signed(),
);

static SETTINGS: [&Setting; 10] = [
    &MAX_TTL,
    &MAX_HOLDERS,
    &FENCE_MARGIN,
    &QUARANTINE,
    &MAX_WAITERS,
    &MAX_WAITERS_PER_LOCK,
    &MAX_WAITERS_PERCENT,
    &MAX_TICKETS,
    &LOG_MAX_LEN,
    &LOG_LONG_WAIT,
];

impl Setting {
    const fn new(name: &'static CStr, bounds: RangeInclusive<i64>, default: i64) -> Self {
        Self { name, bounds, default, value: AtomicI64::new(default) }
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed).unsigned_abs()
    }

    fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

pub(crate) fn limits() -> Limits {
    Limits {
        max_ttl: Ttl::from_millis(MAX_TTL.get()).unwrap_or(Ttl::USUAL_LIMIT),
        max_holders: usize::try_from(MAX_HOLDERS.get()).unwrap_or(usize::MAX),
    }
}

/// The server reports this name when the number of possible holders of a lock changes.
pub(crate) const MAX_HOLDERS_CHANGED: &CStr = c"leasehold.max-holders";

/// Tells the observer, which keeps copies of its settings.
fn configure_observer() {
    let length = usize::try_from(LOG_MAX_LEN.get()).unwrap_or(usize::MAX);
    ENGINE.with_observer(|observer| observer.configure(length, LOG_LONG_WAIT.get()));
}

/// Sets everything to its default, then to the arguments of the loadmodule line: alternating names and values.
pub(crate) fn from_arguments(words: &[&[u8]]) -> Result<(), String> {
    SETTINGS.iter().for_each(|setting| setting.set(setting.default));
    for pair in words.chunks(2) {
        let name = pair.first().copied().unwrap_or_default();
        let shown = name.escape_ascii();
        let setting = SETTINGS
            .iter()
            .find(|setting| setting.name.to_bytes().eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("unknown argument '{shown}', expected {}", names()))?;
        let value = pair
            .get(1)
            .and_then(|value| parse_integer(value))
            .and_then(|value| i64::try_from(value).ok())
            .filter(|value| setting.bounds.contains(value))
            .ok_or_else(|| {
                let (min, max) = (setting.bounds.start(), setting.bounds.end());
                format!("argument {shown} must be from {min} to {max}")
            })?;
        setting.set(value);
    }
    configure_observer();
    Ok(())
}

/// Registers the settings as `leasehold.*`, with the arguments as defaults, and applies the configuration file. A
/// server without module settings uses the arguments only.
pub(crate) fn register(ctx: Ctx) -> Result<(), String> {
    let (Some(register), Some(load)) =
        (optional!(RedisModule_RegisterNumericConfig), optional!(RedisModule_LoadConfigs))
    else {
        return Ok(());
    };
    for &setting in &SETTINGS {
        // SAFETY: the strings and the setting, which the callbacks get back, are static. The callbacks have the
        // signatures that the server calls.
        let outcome = unsafe {
            register(
                ctx,
                setting.name.as_ptr(),
                setting.value.load(Ordering::Relaxed),
                raw::REDISMODULE_CONFIG_DEFAULT,
                *setting.bounds.start(),
                *setting.bounds.end(),
                Some(get),
                Some(set),
                None,
                ptr::from_ref(setting).cast_mut().cast(),
            )
        };
        if outcome != status(true) {
            return Err(format!("the server refused {}", setting.name.to_string_lossy()));
        }
    }
    // SAFETY: all settings are registered.
    if unsafe { load(ctx) } == status(true) {
        configure_observer();
        Ok(())
    } else {
        Err("the configuration file has a leasehold.* line that is not valid".to_owned())
    }
}

fn names() -> String {
    SETTINGS.map(|setting| setting.name.to_string_lossy()).join(" or ")
}

extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    guard::value("config-get", 0, || {
        // SAFETY: the server passes the pointer that `register` gave it, to a static.
        unsafe { &*setting.cast::<Setting>() }.value.load(Ordering::Relaxed)
    })
}

/// Sets a number whose bounds the server has checked. The server may still refuse the `CONFIG SET`, and then restores
/// the old number. So only the number may change here, and [`take_effect`] does the rest.
extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _error: *mut RawString,
) -> c_int {
    guard::value("config-set", status(false), || {
        // SAFETY: as in `get`.
        unsafe { &*setting.cast::<Setting>() }.set(value);
        status(true)
    })
}

/// A `CONFIG SET` has succeeded.
///
/// The callback `applyfn` would be too early: Redis 8.6 calls it for each setting in turn, and may then fail at the
/// next setting, such as a port that is in use.
pub(crate) fn take_effect() {
    configure_observer();
    if QUARANTINE.get() == 0 && fences().is_quarantined() {
        // An operator who knows that no unknown grant remains need not wait for the end of this quarantine.
        with_fences(|fences| fences.quarantine(clock::monotonic(), 0));
        ENGINE.mark_all(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::observe::Log;

    #[test]
    fn the_log_may_be_as_long_as_it_can_be_and_is_as_long_as_usual() {
        let length = |length: usize| i64::try_from(length).unwrap();
        assert_eq!(*LOG_MAX_LEN.bounds.end(), length(Log::GREATEST_LENGTH));
        assert_eq!(LOG_MAX_LEN.default, length(Log::USUAL_LENGTH));
    }
}
