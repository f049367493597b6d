//! Whether the server may evict keys, and with them held locks, when memory is short.
//!
//! Locks have an expiry, so every policy but `noeviction` may evict them. For what happens then, see [`eviction`].

use crate::clients::{capacity, closing};
use crate::engine::ENGINE;
use crate::ffi::{Ctx, log, server_flavor, subscription};
use crate::keys::eviction;
use crate::{config, guard};
use redis_module::raw::{self, RedisModuleEvent};
use std::ffi::{CStr, c_void};

const LIMIT: &CStr = c"maxmemory";
const POLICY: &CStr = c"maxmemory-policy";

/// Finds out whether the server may evict keys, and subscribes to evictions if so.
///
/// It subscribes even before the module has seen a lock. Locks also arrive by `RESTORE`, with a slot, from a primary
/// or from a file, and most of these ways bypass the module.
pub(crate) fn follow(ctx: Ctx) {
    let has_limit =
        server_flavor::info_field(ctx, c"memory", c"maxmemory").is_some_and(|limit| limit != "0");
    eviction::follow_setting(ctx, has_limit && evicting_policy(ctx).is_some());
}

/// Warns if the current policy evicts.
pub(crate) fn warn_if_evicting(ctx: Ctx) {
    let Some(policy) = evicting_policy(ctx) else { return };
    let fate = if eviction::is_told_in_time() {
        "they are put back, and other keys evicted instead"
    } else {
        "on this server they are lost, unless somebody waits for them"
    };
    log::warning(
        ctx,
        &format!(
            "maxmemory-policy {policy} may evict locks that are held: {fate}; noeviction does not"
        ),
    );
}

fn evicting_policy(ctx: Ctx) -> Option<String> {
    let policy = server_flavor::info_field(ctx, c"memory", c"maxmemory_policy");
    policy.filter(|policy| policy != "noeviction")
}

/// Subscribes to configuration changes, including changes of our settings, on servers that report them (7.0 on). The
/// event comes after a `CONFIG SET` has succeeded.
pub(crate) fn subscribe(ctx: Ctx) {
    subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_CONFIG, Some(changed));
}

unsafe extern "C" fn changed(ctx: Ctx, _: RedisModuleEvent, _stage: u64, change: *mut c_void) {
    guard::event("config-changed", ctx, || {
        config::take_effect();
        // SAFETY: with this event the server passes this structure, which has `num_changes` C strings.
        let names = unsafe {
            change.cast::<raw::RedisModuleConfigChange>().as_ref().map_or(&[][..], |change| {
                let len = usize::try_from(change.num_changes).unwrap_or(0);
                std::slice::from_raw_parts(change.config_names, len)
            })
        };
        // SAFETY: with this event the server passes C strings.
        let is_changed = |name| names.iter().any(|&other| unsafe { CStr::from_ptr(other) } == name);
        if is_changed(POLICY) || is_changed(LIMIT) {
            // Immediately, because the next command may make the server evict.
            follow(ctx);
        }
        if is_changed(capacity::MAX_CLIENTS) {
            capacity::look(ctx);
        }
        if is_changed(capacity::MAX_CLIENTS) || capacity::OWN_SETTINGS.into_iter().any(is_changed) {
            capacity::warn(ctx);
        }
        if is_changed(config::MAX_HOLDERS_CHANGED) {
            ENGINE.mark_all(None);
        }
        if is_changed(closing::THREADS_SETTING) {
            closing::reset();
        }
        if is_changed(POLICY) {
            warn_if_evicting(ctx);
        }
    });
}
