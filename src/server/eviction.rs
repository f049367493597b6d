//! Locks that the server evicts although they are held: noticed, kept in memory, and put back.
//!
//! A server short of memory deletes what its `maxmemory-policy` lets it delete, and a lock looks to
//! it like any other key. How the module learns of it depends on the server:
//!
//! - Redis and Valkey from 7.2 on tell of each key before it goes, with its value, and why it goes.
//!   They make this event also for every key that is deleted, overwritten or expires, so the module
//!   subscribes to it only while [`policy`](super::policy) says that locks may be evicted.
//! - Older servers tell of an eviction only when the key is gone. There the module knows what a key
//!   held only if somebody waits for the lock, and subscribes only while somebody does.
//!
//! The key cannot be written inside the event. It is written in the module's timer right after, or,
//! if that comes first, by the next command of the module that names it. See
//! [`Evicted`](leasehold_core::lock::Evicted) for how many are written at once.

use super::api::{api, optional};
use super::authority::{self, Account, Authority};
use super::call::bytes_of;
use super::key::{Key, Mode, OwnedString};
use super::state::STATE;
use super::subscription::{ServerSubscription, Subscription};
use super::witness::Witness;
use super::{alarm, clock, guard, handoff, log};
use leasehold_core::command::Error;
use leasehold_core::lock::{Moment, Seen, Stored, Value};
use leasehold_core::observe::Lock;
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

/// When there is something to do. The subscription is cancelled in the timer: the server crashes if
/// that is done inside an event.
pub(super) fn due(now: Moment) -> Option<Moment> {
    let is_heard_in_vain = STATE.unlinks_heard.is_on() && !STATE.may_evict.get();
    let due = STATE.with_evicted(|evicted| evicted.due(now));
    if is_heard_in_vain { Some(now) } else { due }
}

/// Puts back what is to be put back now. Called from contexts of the module's own.
pub(super) fn work(ctx: *mut RedisModuleCtx) {
    if !STATE.may_evict.get() {
        STATE.unlinks_heard.cancel(ctx);
    }
    while let Some(name) = STATE.with_evicted(|evicted| evicted.next(clock::now())) {
        let lock = Lock { db: name.db, key: &name.key };
        match handoff::select(ctx, name.db).then(|| put_back_if_allowed(ctx, lock)) {
            Some(Authority::Yes) => {}
            // If the slot stays here, the lock is still held.
            Some(Authority::NotNow | Authority::Refused | Authority::ClusterDown) => {
                return STATE.with_evicted(|evicted| evicted.wait(clock::now()));
            }
            // Another server decides, and has heard of the deletion.
            Some(Authority::Replica | Authority::NotOurs) | None => {
                STATE.with_evicted(|evicted| drop(evicted.remove(name.db, &name.key)));
            }
        }
    }
    complain(ctx);
}

fn put_back_if_allowed(ctx: *mut RedisModuleCtx, lock: Lock<'_>) -> Authority {
    let name = OwnedString::new(ctx, lock.key);
    let authority = authority::over(ctx, name.string(), Account::Own);
    if authority == Authority::Yes {
        put_back_first(ctx, name.string(), lock);
    }
    authority
}

/// The same as [`put_back`], for a key that is not open and that the module may write.
pub(super) fn put_back_first(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    lock: Lock<'_>,
) {
    if STATE.with_evicted(|evicted| evicted.get(lock.db, lock.key).is_none()) {
        return;
    }
    let mut key = Key::open(ctx, name, Mode::Write);
    let witness = Witness { ctx, name, lock, now: clock::now() };
    // If the server refuses, it will refuse the next time too: the lock is lost, and free for those
    // who wait.
    if put_back(&mut key, &witness).is_err() || matches!(key.stored(), Stored::Nothing) {
        STATE.with_queues(|queues| queues.mark(lock.db, lock.key));
    }
}

/// Writes what the key held when it was evicted, if it holds nothing else now and the lease lasts.
/// Called for every key that is about to be changed, before anybody looks at it.
pub(super) fn put_back(key: &mut Key<'_>, witness: &Witness<'_>) -> Result<(), Error> {
    // Nearly always nothing was evicted.
    if STATE.with_evicted(|evicted| evicted.is_empty()) {
        return Ok(());
    }
    let Witness { lock: Lock { db, key: name }, now, .. } = *witness;
    let stored = key.stored();
    if let Some(seen) = STATE.with_evicted(|evicted| evicted.take(db, name, stored, now)) {
        key.restore(&seen.value, seen.deadline)?;
        witness.restored(&seen);
    }
    Ok(())
}

/// What the key held when it was evicted, if that has not been put back.
pub(super) fn kept(lock: Lock<'_>) -> Option<Seen> {
    STATE.with_evicted(|evicted| evicted.get(lock.db, lock.key).cloned())
}

/// Tells the log, now and then, that there is little else than locks to evict.
fn complain(ctx: *mut RedisModuleCtx) {
    let left = STATE.with_evicted(|evicted| evicted.complains(clock::now()).then(|| evicted.len()));
    if let Some(left) = left {
        log::warning(
            ctx,
            &format!(
                "the server evicts locks faster than they are put back: {left} locks that are held are missing from \
                 its data for now. Give it more memory, or set maxmemory-policy to noeviction"
            ),
        );
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
            (Key::lent(ctx, info.key), bytes_of(name.cast_mut()))
        };
        let lock = Lock { db: selected(ctx), key: name };
        let is_contended = STATE.with_queues(|queues| queues.waiters_for(lock.db, name)) > 0;
        // To read a short value the server has to copy it.
        let stored = if is_contended || Value::LENGTHS.contains(&key.len()) {
            key.stored()
        } else {
            Stored::Nothing
        };
        keep(ctx, lock, stored, is_contended);
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
        let lock = Lock { db: selected(ctx), key: unsafe { bytes_of(key) } };
        let seen = STATE.with_queues(|queues| queues.seen(lock.db, lock.key).cloned());
        if STATE.with_queues(|queues| queues.waiters_for(lock.db, lock.key)) > 0 {
            keep(ctx, lock, seen.as_ref().map_or(Stored::Nothing, Seen::as_stored), true);
        }
        guard::status(true)
    })
}

fn keep(ctx: *mut RedisModuleCtx, lock: Lock<'_>, stored: Stored<'_>, is_contended: bool) {
    let Lock { db, key } = lock;
    let now = clock::now();
    let is_kept = STATE.with_evicted(|evicted| evicted.keep(db, key, stored, is_contended, now));
    if is_kept || (is_contended && STATE.with_queues(|queues| queues.mark(db, key))) {
        alarm::set(ctx);
    }
}

fn selected(ctx: *mut RedisModuleCtx) -> i32 {
    // SAFETY: takes a valid context; that of an event has the database of its key.
    unsafe { api!(RedisModule_GetSelectedDb)(ctx) }
}
