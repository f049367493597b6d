//! Channels on which the grant of a lock is published: who may name a channel, and the message itself.
//!
//! The right to publish is checked when a client names the channel, as the server checks its `PUBLISH`. A message goes
//! to every node of a cluster, but not to replicas. A message may be lost, and nothing depends on it.

use crate::authority;
use crate::ffi::{OwnedString, flag, optional, status};
use leasehold_core::command::Error;
use redis_module::raw::{self, RedisModuleCtx};
use std::ptr::NonNull;

/// Whether the user who sent the command being executed may publish on this channel.
pub(crate) fn check(ctx: *mut RedisModuleCtx, channel: &[u8]) -> Result<(), Error> {
    let (Some(name_of_user), Some(user_of_name), Some(may_access), Some(note), Some(free)) = (
        optional!(RedisModule_GetCurrentUserName),
        optional!(RedisModule_GetModuleUserFromUserName),
        optional!(RedisModule_ACLCheckChannelPermissions),
        optional!(RedisModule_ACLAddLogEntry),
        optional!(RedisModule_FreeModuleUser),
    ) else {
        return Err(Error::NotifyNotPossible);
    };
    if !authority::knows_of_no_user() {
        return Err(Error::NotifyNotPossible);
    }
    if authority::has_no_user(ctx) {
        return Ok(());
    }
    // SAFETY: the client of the command has a user, as was just checked. The name of the user is ours to free.
    let name = unsafe { OwnedString::given(ctx, name_of_user(ctx)) };
    // SAFETY: takes a valid string.
    let Some(user) = NonNull::new(unsafe { user_of_name(name.string()) }) else {
        return Err(Error::ChannelDenied);
    };
    let string = OwnedString::new(ctx, channel);
    let publish = flag(raw::REDISMODULE_CMD_CHANNEL_PUBLISH);
    // SAFETY: the user and the strings are valid until the end of this function, and the user is freed once.
    let is_allowed = unsafe {
        let is_allowed = may_access(user.as_ptr(), string.string(), publish) == status(true);
        if !is_allowed {
            let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL;
            note(ctx, user.as_ptr(), string.string(), reason);
        }
        free(user.as_ptr());
        is_allowed
    };
    if is_allowed { Ok(()) } else { Err(Error::ChannelDenied) }
}

/// Publishes the message. Returns how many subscribers of this server receive it.
pub(crate) fn publish(ctx: *mut RedisModuleCtx, channel: &[u8], message: &[u8]) -> usize {
    let Some(publish) = optional!(RedisModule_PublishMessage) else { return 0 };
    let (channel, message) = (OwnedString::new(ctx, channel), OwnedString::new(ctx, message));
    // SAFETY: the server copies what it needs of both strings.
    let hearers = unsafe { publish(ctx, channel.string(), message.string()) };
    usize::try_from(hearers).unwrap_or(0)
}
