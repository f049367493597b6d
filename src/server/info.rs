//! The section `INFO leasehold`, and the version of the module.

use super::patches;
use crate::clients::capacity;
use crate::engine::{ENGINE, fences};
use crate::ffi::{Ctx, api, main_thread, status};
use crate::{clock, guard};
use leasehold_core::lock::{Now, WaitKind};
use leasehold_core::observe::ServerGauges;
use redis_module::raw::RedisModuleInfoCtx;
use std::ffi::c_int;

/// The version of the module: 1.2.3 becomes 10203, as MODULE LIST shows it.
pub(crate) const VERSION: c_int = part(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + part(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + part(env!("CARGO_PKG_VERSION_PATCH"));

/// Registers the section. False if the server refuses.
pub(crate) fn register(ctx: Ctx) -> bool {
    // SAFETY: the callback has the signature that the server calls.
    let outcome = unsafe { api!(RedisModule_RegisterInfoFunc)(ctx, Some(section)) };
    outcome == status(true)
}

/// Writes the section. Also called for a crash report, in a signal handler, whatever the module was doing. So it only
/// reads, allocates nothing, and leaves out what is borrowed. Another thread may have crashed while the main thread
/// runs on: then nothing can be read safely.
unsafe extern "C" fn section(ctx: *mut RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 && !main_thread::is_current() {
        return;
    }
    guard::value("info", (), || {
        // SAFETY: the context is the one that the server passes to this callback. An empty name gives the section the
        // module's name.
        if unsafe { api!(RedisModule_InfoAddSection)(ctx, c"".as_ptr()) } != status(true) {
            return; // not asked for
        }
        ENGINE.peek(|queues, observer, evicted| {
            let (fences, Now { wall: now, monotonic }) = (fences(), clock::both());
            let waited = |since| monotonic.micros_since(since);
            let gauges = ServerGauges {
                version: VERSION.unsigned_abs().into(),
                server_patched_from: patches::patched_from(),
                waiters: number(queues.blocked()),
                tickets: number(queues.places(WaitKind::Ticket)),
                effective_max_waiters: capacity::most_waiters().0,
                longest_wait_us: queues.longest_since().map_or(0, waited),
                bindings: number(ENGINE.bindings()),
                evictions_pending: number(evicted.len()),
                quarantine_left_us: fences.quarantine_left_micros(),
                panics_caught: guard::panics_caught(),
                fences_refused: fences.refused(),
                fence_ahead_us: fences.ahead_micros(now),
            };
            for (name, value) in observer.rows(gauges, now) {
                // SAFETY: the context is the one that the server passes to this callback. The server copies the name,
                // and calls nothing back.
                unsafe { api!(RedisModule_InfoAddFieldULongLong)(ctx, name.as_ptr(), value) };
            }
        });
    });
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

const fn part(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_the_packages() {
        let parts: Vec<i32> =
            env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap()).collect();
        assert_eq!(super::VERSION, (parts[0] * 100 + parts[1]) * 100 + parts[2]);
    }
}
