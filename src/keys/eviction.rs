//! Locks that the server evicts although they are held: noticed, kept in memory, and written again.
//!
//! A server short of memory evicts keys by its `maxmemory-policy`, and treats a lock like any other key. How the
//! module learns of an eviction depends on the server:
//!
//! - Redis and Valkey from 7.2 on announce each key before they delete it, with its value and the reason. They make
//!   this event also for every key that is deleted, overwritten or expires, so the module subscribes only while
//!   [`settings`](crate::server::settings) says that locks may be evicted.
//! - Older servers announce an eviction only after the key is gone. There the module knows the value of a key only if
//!   the lock has waiters, and subscribes only while somebody waits.
//!
//! The key cannot be written inside the event. The [engine](leasehold_core::engine) writes it soon after.

use super::open_key::OpenKey;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, MainThread, RawString, Subscription, api, bytes_of, optional, status};
use crate::{clock, guard, timer};
use leasehold_core::engine::Key;
use leasehold_core::lock::{Name, Seen, Stored, Value};
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

/// Announces each key that is about to go.
static UNLINKS: MainThread<Subscription> =
    MainThread::new(Subscription::to_server(raw::REDISMODULE_EVENT_KEY, Some(unlinked)));

/// Announces each key that was evicted, on older servers.
static EVICTIONS: MainThread<Subscription> =
    MainThread::new(Subscription::to_keys(raw::REDISMODULE_NOTIFY_EVICTED, Some(evicted)));

/// Whether the server may evict keys when memory is short.
static MAY_EVICT: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

pub(crate) fn reset() {
    UNLINKS.reset();
    EVICTIONS.reset();
    MAY_EVICT.set(false);
}

/// Whether the server announces an eviction while the value still exists.
pub(crate) fn is_told_in_time() -> bool {
    let event = RedisModuleEvent { id: raw::REDISMODULE_EVENT_KEY, dataver: 1 };
    let evicted = raw::REDISMODULE_SUBEVENT_KEY_EVICTED;
    optional!(RedisModule_IsSubEventSupported)
        // SAFETY: takes two numbers.
        .is_some_and(|is_supported| unsafe { is_supported(event, evicted) } != 0)
}

/// Subscribes to evictions on older servers: somebody waits for a lock.
pub(crate) fn somebody_waits(ctx: Ctx) {
    if !is_told_in_time() {
        EVICTIONS.take_out(ctx);
    }
}

/// Unsubscribes: nobody waits any more.
pub(crate) fn nobody_waits(ctx: Ctx) {
    EVICTIONS.cancel(ctx);
}

/// Subscribes if the server may evict keys from now on. If not, the subscription is cancelled soon.
pub(crate) fn follow_setting(ctx: Ctx, may_evict: bool) {
    MAY_EVICT.set(may_evict);
    if may_evict && is_told_in_time() {
        UNLINKS.take_out(ctx);
    }
    timer::reconsider();
}

/// Whether a subscription must be cancelled. The timer does that, because the server crashes if it is done inside an
/// event.
pub(crate) fn is_heard_in_vain() -> bool {
    UNLINKS.is_on() && !MAY_EVICT.get()
}

/// Cancels an unneeded subscription. Called from the module's own contexts.
pub(crate) fn work(ctx: Ctx) {
    if !MAY_EVICT.get() {
        UNLINKS.cancel(ctx);
    }
}

/// The server deletes a key, or replaces its value.
unsafe extern "C" fn unlinked(ctx: Ctx, _: RedisModuleEvent, why: u64, info: *mut c_void) {
    guard::event("unlinked", ctx, || {
        if why != raw::REDISMODULE_SUBEVENT_KEY_EVICTED {
            return;
        }
        // SAFETY: with this event the server passes this structure.
        let Some(info) = (unsafe { info.cast::<raw::RedisModuleKeyInfo>().as_ref() }) else {
            return;
        };
        // SAFETY: the key is open until this callback returns.
        let (key, name) = unsafe {
            let name = api!(RedisModule_GetKeyNameFromModuleKey)(info.key);
            (OpenKey::lent(ctx, info.key), bytes_of(name.cast_mut()))
        };
        let name = Name::new(selected(ctx), name);
        let is_contended = ENGINE.is_contended(name);
        // The server copies short values in order to read them.
        let stored = if is_contended || key.len() >= Value::SHORTEST {
            key.stored()
        } else {
            Stored::Nothing
        };
        ENGINE.evicted(name, stored, clock::now());
    });
}

/// The server has deleted a key.
unsafe extern "C" fn evicted(ctx: Ctx, _class: c_int, _: *const c_char, key: RawString) -> c_int {
    guard::event("evicted", ctx, || {
        // SAFETY: the key's name lives as long as this callback.
        let name = Name::new(selected(ctx), unsafe { bytes_of(key) });
        if let Some(seen) = ENGINE.seen(name) {
            let stored = seen.as_ref().map_or(Stored::Nothing, Seen::as_stored);
            ENGINE.evicted(name, stored, clock::now());
        }
    });
    status(true)
}

fn selected(ctx: Ctx) -> i32 {
    // SAFETY: takes a valid context; that of an event has the database of its key.
    unsafe { api!(RedisModule_GetSelectedDb)(ctx) }
}
