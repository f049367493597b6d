//! Channels on which the grant of a lock is published: who may name a channel, and the message itself.
//!
//! The right to publish is checked when a client names the channel, as the server checks its `PUBLISH`. A message goes
//! to every node of a cluster, but not to replicas. A message may be lost, and nothing depends on it.

use crate::ffi::{CallReply, Ctx, OwnedString, api, flag, optional, status};
use leasehold_core::command::Error;
use redis_module::raw;
use std::ptr::NonNull;

/// Whether the user who sent the command being executed may publish on this channel.
pub(crate) fn check(ctx: Ctx, channel: &[u8]) -> Result<(), Error> {
    // Servers before Redis 7.0.6 do not say that a command has no user. `SetContextUser` came with the same change.
    let (Some(_), Some(name_of_user), Some(user_of_name), Some(may_access), Some(note), Some(free)) = (
        optional!(RedisModule_SetContextUser),
        optional!(RedisModule_GetCurrentUserName),
        optional!(RedisModule_GetModuleUserFromUserName),
        optional!(RedisModule_ACLCheckChannelPermissions),
        optional!(RedisModule_ACLAddLogEntry),
        optional!(RedisModule_FreeModuleUser),
    ) else {
        return Err(Error::NotifyNotPossible);
    };
    if has_no_user(ctx) {
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
pub(crate) fn publish(ctx: Ctx, channel: &[u8], message: &[u8]) -> usize {
    let Some(publish) = optional!(RedisModule_PublishMessage) else { return 0 };
    let (channel, message) = (OwnedString::new(ctx, channel), OwnedString::new(ctx, message));
    // SAFETY: the server copies what it needs of both strings.
    let receivers = unsafe { publish(ctx, channel.string(), message.string()) };
    usize::try_from(receivers).unwrap_or(0)
}

/// Whether the command being executed has no user, so that everything is allowed: another module called it, a primary
/// replicates it, or it comes from a file.
///
/// `GetCurrentUserName` crashes without a user, so probe with a nonexistent command: the server looks for the user
/// before it looks for the command.
fn has_no_user(ctx: Ctx) -> bool {
    // SAFETY: the format takes no argument, and makes the server return its error as a reply. Nobody else gets the
    // reply.
    let (_error, refusal) = unsafe {
        let call = || api!(RedisModule_Call)(ctx, c"".as_ptr(), c"CE".as_ptr());
        CallReply::or_refusal_of_call(ctx, c"", call)
    };
    refusal == libc::ENOTSUP
}
