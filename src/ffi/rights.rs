//! What the user may do who sent the command being executed, as far as the server tells modules.

use super::api::{Ctx, api, flag, optional, status};
use super::call_reply::CallReply;
use super::client;
use super::string::OwnedString;
use redis_module::raw;
use std::ffi::{CString, c_int};
use std::ptr::NonNull;

/// The rights of the user of one command.
pub(crate) struct Rights {
    ctx: Ctx,
    of: Of,
}

enum Of {
    /// The command has no user: another module called it, a primary replicates it, or it comes from a file.
    Anybody,
    User(NonNull<raw::RedisModuleUser>),
    /// The user does not exist any more.
    Nobody,
}

impl Rights {
    /// `None` if the server does not tell the user, or not safely: servers before Redis 7.0.6 do not say that a command
    /// has none. `SetContextUser` came with the same change.
    pub(crate) fn of_command(ctx: Ctx) -> Option<Self> {
        optional!(RedisModule_SetContextUser)?;
        optional!(RedisModule_FreeModuleUser)?;
        let name_of_user = optional!(RedisModule_GetCurrentUserName)?;
        let user_of_name = optional!(RedisModule_GetModuleUserFromUserName)?;
        if has_no_user(ctx) {
            return Some(Self { ctx, of: Of::Anybody });
        }
        // SAFETY: the client of the command has a user, as was just checked. The name of the user is ours to free.
        let name = unsafe { OwnedString::given(ctx, name_of_user(ctx)) };
        // SAFETY: takes a valid string.
        let user = NonNull::new(unsafe { user_of_name(name.string()) });
        Some(Self { ctx, of: user.map_or(Of::Nobody, Of::User) })
    }

    /// Whether the user may publish on this channel. A refusal is noted in `ACL LOG`, as the server notes its own.
    pub(crate) fn allow_publishing(&self, channel: &[u8]) -> Option<bool> {
        let may_access = optional!(RedisModule_ACLCheckChannelPermissions)?;
        let note = optional!(RedisModule_ACLAddLogEntry)?;
        Some(self.allow_if(|user| {
            let string = OwnedString::new(self.ctx, channel);
            let publish = flag(raw::REDISMODULE_CMD_CHANNEL_PUBLISH);
            // SAFETY: the user and the string are valid.
            unsafe {
                let is_allowed = may_access(user, string.string(), publish) == status(true);
                if !is_allowed {
                    let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL;
                    note(self.ctx, user, string.string(), reason);
                }
                is_allowed
            }
        }))
    }

    /// Whether the user may run this command with these words. A selector of the user allows both the command and its
    /// keys, or neither. A refusal is noted nowhere: the user has not named the key.
    pub(crate) fn allow<const N: usize>(&self, words: [&[u8]; N]) -> bool {
        self.allow_if(|user| {
            let Some(check) = optional!(RedisModule_ACLCheckCommandPermissions) else {
                return false;
            };
            let owned = words.map(|word| OwnedString::new(self.ctx, word));
            let mut strings = owned.each_ref().map(OwnedString::string);
            let count = c_int::try_from(N).unwrap_or(c_int::MAX);
            // SAFETY: the user and the strings are valid, and there are as many.
            unsafe { check(user, strings.as_mut_ptr(), count) == status(true) }
        })
    }

    /// Asks about the user, if there is one. The user is valid until the answer.
    fn allow_if(&self, asks: impl FnOnce(*mut raw::RedisModuleUser) -> bool) -> bool {
        match self.of {
            Of::Anybody => true,
            Of::Nobody => false,
            Of::User(user) => asks(user.as_ptr()),
        }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        if let (Of::User(user), Some(free)) = (&self.of, optional!(RedisModule_FreeModuleUser)) {
            // SAFETY: ours, and freed once.
            unsafe { free(user.as_ptr()) };
        }
    }
}

/// Whether the user who sent the command may use all keys, on a server that does not tell [`Rights`]. `None` if it does
/// not say that either: a script does not say which user runs it.
pub(crate) fn may_use_all_keys(ctx: Ctx) -> Option<bool> {
    let user = CString::new(client::user(ctx, client::id(ctx))?).ok()?;
    let reply = CallReply::to(ctx, c"ACL", &[c"GETUSER", &user])?;
    // Names and values in turn: flags, passwords, commands, keys. Redis 6.2 has a flag, and 7.0 none.
    let keys = [reply.whole().at(1)?.texts(), reply.whole().at(7)?.texts()].concat();
    Some(keys.contains(&&b"allkeys"[..]) || keys.contains(&&b"~*"[..]))
}

/// Whether the command being executed has no user, so that everything is allowed.
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
