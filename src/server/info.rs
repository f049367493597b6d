//! The section `INFO leasehold`.

use super::ffi::api::{api, status};
use super::ffi::main_thread;
use super::locks::{LOCKS, fences};
use super::{clock, guard, room, version};
use leasehold_core::lock::{Now, WaitKind};
use leasehold_core::observe::ServerGauges;
use redis_module::raw::{RedisModuleCtx, RedisModuleInfoCtx};
use std::ffi::c_int;

/// Makes the section known; false if the server will not have it.
pub(super) fn register(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: the callback has the signature the server calls.
    let outcome = unsafe { api!(RedisModule_RegisterInfoFunc)(ctx, Some(section)) };
    outcome == status(true)
}

/// Also called for a crash report, in the handler of a signal, whatever the module was doing: it only looks, allocates
/// nothing, and leaves out what is lent out. The thread that crashed need not be the main thread, which then goes on
/// meanwhile. On any other there is nothing that may be looked at.
unsafe extern "C" fn section(ctx: *mut RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 && !main_thread::is_current() {
        return;
    }
    guard::value("info", (), || {
        // SAFETY: the context is the one the server is calling with. An empty name makes the section
        // bear the module's.
        if unsafe { api!(RedisModule_InfoAddSection)(ctx, c"".as_ptr()) } != status(true) {
            return; // not asked for
        }
        LOCKS.peek(|queues, observer, evicted| {
            let (fences, Now { wall: now, monotonic }) = (fences(), clock::both());
            let waited = |since| monotonic.micros_since(since);
            let gauges = ServerGauges {
                version: version::NUMBER.unsigned_abs().into(),
                waiters: number(queues.blocked()),
                tickets: number(queues.places(WaitKind::Ticket)),
                effective_max_waiters: room::most_waiters().0,
                longest_wait_us: queues.longest_since().map_or(0, waited),
                bindings: number(LOCKS.bindings()),
                evictions_pending: number(evicted.len()),
                quarantine_left_us: fences.quarantine_left_micros(),
                panics_caught: guard::panics_caught(),
                fences_refused: fences.refused(),
                fence_ahead_us: fences.ahead_micros(now),
            };
            for (name, value) in observer.rows(gauges, now) {
                // SAFETY: as above; the server copies the name, and calls nobody back.
                unsafe { api!(RedisModule_InfoAddFieldULongLong)(ctx, name.as_ptr(), value) };
            }
        });
    });
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
