//! Locks that the server evicts although they are held: noticed, kept in memory, and put back.
//!
//! A server short of memory deletes what its `maxmemory-policy` lets it delete, and a lock looks to
//! it like any other key. How the module learns of it depends on the server:
//!
//! - Redis and Valkey from 7.2 on tell of each key before it goes, with its value, and why it goes.
//!   They make this event also for every key that is deleted, overwritten or expires, so the module
//!   subscribes to it only while [`server_settings`](super::server_settings) says that locks may be evicted.
//! - Older servers tell of an eviction only when the key is gone. There the module knows what a key
//!   held only if somebody waits for the lock, and subscribes only while somebody does.
//!
//! The key cannot be written inside the event. The [engine](leasehold_core::engine) writes it soon after.

use super::api::{api, optional};
use super::call::bytes_of;
use super::key::OpenKey;
use super::state::STATE;
use super::subscription::{ServerSubscription, Subscription};
use super::{alarm, clock, guard};
use leasehold_core::engine::Key;
use leasehold_core::lock::{Name, Seen, Stored, Value};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent, RedisModuleString};
use std::ffi::{c_char, c_int, c_void};

/// Of each key that is about to go.
pub(super) const fn of_unlinks() -> ServerSubscription {
    ServerSubscription::new(raw::REDISMODULE_EVENT_KEY, Some(unlinked))
}

/// Of each key that was evicted, for older servers.
pub(super) const fn of_evictions() -> Subscription {
    Subscription::new(raw::REDISMODULE_NOTIFY_EVICTED, Some(evicted))
}

/// Whether the server tells of an eviction while the value is still there.
pub(super) fn is_told_in_time() -> bool {
    let event = RedisModuleEvent { id: raw::REDISMODULE_EVENT_KEY, dataver: 1 };
    let evicted = raw::REDISMODULE_SUBEVENT_KEY_EVICTED;
    optional!(RedisModule_IsSubEventSupported)
        // SAFETY: takes two numbers.
        .is_some_and(|is_supported| unsafe { is_supported(event, evicted) } != 0)
}

/// Somebody waits for a lock.
pub(super) fn somebody_waits(ctx: *mut RedisModuleCtx) {
    if !is_told_in_time() {
        STATE.evictions_heard.take_out(ctx);
    }
}

/// Whether there is a subscription to be cancelled. That is done in the timer: the server crashes if it is done inside an
/// event.
pub(super) fn is_heard_in_vain() -> bool {
    STATE.unlinks_heard.is_on() && !STATE.may_evict.get()
}

/// Called from contexts of the module's own.
pub(super) fn work(ctx: *mut RedisModuleCtx) {
    if !STATE.may_evict.get() {
        STATE.unlinks_heard.cancel(ctx);
    }
}

/// The server deletes a key, or replaces its value.
unsafe extern "C" fn unlinked(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    why: u64,
    info: *mut c_void,
) {
    guard::event("unlinked", || {
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
        let is_contended = STATE.locks.is_contended(name);
        // To read a short value the server has to copy it.
        let stored = if is_contended || key.len() >= Value::SHORTEST {
            key.stored()
        } else {
            Stored::Nothing
        };
        keep(ctx, name, stored);
    });
}

/// The server has deleted a key.
unsafe extern "C" fn evicted(
    ctx: *mut RedisModuleCtx,
    _class: c_int,
    _event: *const c_char,
    key: *mut RedisModuleString,
) -> c_int {
    guard::value("evicted", guard::status(true), || {
        // SAFETY: the key's name lives as long as this callback.
        let name = Name::new(selected(ctx), unsafe { bytes_of(key) });
        if let Some(seen) = STATE.locks.seen(name) {
            keep(ctx, name, seen.as_ref().map_or(Stored::Nothing, Seen::as_stored));
        }
        guard::status(true)
    })
}

fn keep(ctx: *mut RedisModuleCtx, name: Name<'_>, stored: Stored<'_>) {
    if STATE.locks.evicted(name, stored, clock::now()) {
        alarm::set(ctx);
    }
}

fn selected(ctx: *mut RedisModuleCtx) -> i32 {
    // SAFETY: takes a valid context; that of an event has the database of its key.
    unsafe { api!(RedisModule_GetSelectedDb)(ctx) }
}
