//! A warning to operators whose server may evict locks.
//!
//! Locks have an expiry, so every policy but `noeviction` may take them when memory is short. One that
//! somebody waits for is put back (see `lock::queue`); one that nobody waits for is lost.

use super::api::api;
use super::{guard, log};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::ffi::{CStr, c_void};

const POLICY: &CStr = c"maxmemory-policy";

/// Warns if the policy in force evicts.
pub(super) fn warn_if_evicting(ctx: *mut RedisModuleCtx) {
    if let Some(policy) = policy_in_force(ctx).filter(|policy| policy != "noeviction") {
        log::warning(
            ctx,
            &format!(
                "maxmemory-policy {policy} may evict locks that are held; noeviction does not"
            ),
        );
    }
}

/// Subscribes to changes of the configuration, where the server tells of them (7.0 on).
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) {
    let event = RedisModuleEvent { id: raw::REDISMODULE_EVENT_CONFIG, dataver: 1 };
    // SAFETY: the callback has the signature the server calls. Older servers refuse the event.
    unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, Some(changed)) };
}

unsafe extern "C" fn changed(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    _stage: u64,
    change: *mut c_void,
) {
    guard::event("config-changed", || {
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

/// As INFO tells it, which no operator renames.
fn policy_in_force(ctx: *mut RedisModuleCtx) -> Option<String> {
    // SAFETY: the section and the field are C strings; the field's text lives until the section is freed,
    // which happens after it was copied.
    unsafe {
        let info = api!(RedisModule_GetServerInfo)(ctx, c"memory".as_ptr());
        let policy = api!(RedisModule_ServerInfoGetFieldC)(info, c"maxmemory_policy".as_ptr());
        let policy =
            (!policy.is_null()).then(|| CStr::from_ptr(policy).to_string_lossy().into_owned());
        api!(RedisModule_FreeServerInfo)(ctx, info);
        policy
    }
}
