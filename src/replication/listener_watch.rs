//! Decides when the module looks for [`listeners`], and makes the server count the changes that were not replicated.

use super::listeners::{self, Audience};
use super::replicate;
use crate::ffi::{Ctx, MainThread, server_flavor, subscription};
use crate::{clock, guard};
use leasehold_core::lock::Monotonic;
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_void;

/// Time between two looks.
const MILLIS_BETWEEN: u64 = 100;

/// How many changes are counted at a look while somebody listens: this takes the server about two milliseconds.
const COUNTED_AT_A_LOOK: u64 = 5_000;

/// Whether the rule of [`listeners`] was verified for this server.
static IS_KNOWN: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));
static LOOKED: MainThread<Cell<Option<Monotonic>>> = MainThread::new(Cell::new(None));

/// Subscribes to saves, and finds out whether the rule holds on this server. The other events that the rule needs are
/// the callers of [`listeners::expect`].
pub(crate) fn begin(ctx: Ctx) {
    let hears =
        subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_PERSISTENCE, Some(saving));
    IS_KNOWN.set(hears && server_flavor::forks_for_replicas(ctx));
}

/// Looks for listeners. Called by the server's cron. The server is not asked while nobody changes locks.
pub(crate) fn look(ctx: Ctx) {
    if !(listeners::has_told() && IS_KNOWN.get()) && listeners::uncounted() == 0 {
        return;
    }
    let now = clock::monotonic();
    if LOOKED.get().is_some_and(|last| now < last.plus_millis(MILLIS_BETWEEN)) {
        return;
    }
    LOOKED.set(Some(now));
    match listeners::look(ctx) {
        Audience::Nobody => count_where_nobody_listens(ctx),
        Audience::Somebody => {
            count(ctx, listeners::uncounted().min(COUNTED_AT_A_LOOK), replicate::count);
        }
    }
}

/// Runs in the same step as the look, so nobody can begin to listen in between.
fn count_where_nobody_listens(ctx: Ctx) {
    count(ctx, listeners::uncounted(), replicate::count_where_nobody_listens);
}

fn count(ctx: Ctx, changes: u64, count: fn(Ctx)) {
    (0..changes).for_each(|_| count(ctx));
    listeners::counted(changes);
}

/// Also called in a child that saves, on its copy of the memory.
unsafe extern "C" fn saving(_ctx: Ctx, _: RedisModuleEvent, _stage: u64, _data: *mut c_void) {
    guard::value("saving", (), listeners::expect);
}
