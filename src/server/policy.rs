//! A warning to operators whose server may evict locks.
//!
//! Locks have an expiry, so every policy but `noeviction` may take them when memory is short. One that
//! somebody waits for is put back (see `lock::queue`); one that nobody waits for is lost.

use super::{config, guard, log, product, subscription};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::ffi::{CStr, c_void};

const POLICY: &CStr = c"maxmemory-policy";

/// Warns if the policy in force evicts.
pub(super) fn warn_if_evicting(ctx: *mut RedisModuleCtx) {
    let policy = product::info_field(ctx, c"memory", c"maxmemory_policy");
    if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
        log::warning(
            ctx,
            &format!(
                "maxmemory-policy {policy} may evict locks that are held; noeviction does not"
            ),
        );
    }
}

/// Subscribes to changes of the configuration, those of our own settings too, where the server tells of them (7.0 on). It
/// does once a `CONFIG SET` has succeeded.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) {
    subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_CONFIG, Some(changed));
}

unsafe extern "C" fn changed(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    _stage: u64,
    change: *mut c_void,
) {
    guard::event("config-changed", || {
        config::take_effect(ctx);
        // SAFETY: with this event the server passes this structure, and in it that many C strings.
        let names = unsafe {
            change.cast::<raw::RedisModuleConfigChange>().as_ref().map_or(&[][..], |change| {
                let len = usize::try_from(change.num_changes).unwrap_or(0);
                std::slice::from_raw_parts(change.config_names, len)
            })
        };
        // SAFETY: as above.
        if names.iter().any(|&name| unsafe { CStr::from_ptr(name) } == POLICY) {
            warn_if_evicting(ctx);
        }
    });
}
