//! Whether the user of a `LOCK.GUARD` may run the command behind it.
//!
//! From Redis 7.0 on the server checks the command, its keys and its channels itself, when it runs the command as the
//! user. Redis 6.2 has checked the keys, which are declared, and tells modules nothing else. So there the user must be
//! one who may run every command.

use crate::ffi::api::optional;
use crate::ffi::call_reply::CallReply;
use crate::ffi::client;
use leasehold_core::command::Error;
use leasehold_core::command::guard::Guarded;
use redis_module::raw::RedisModuleCtx;
use std::ffi::CString;

/// Refuses a command that the user must not run, if the server would not refuse it.
pub(crate) fn check(ctx: *mut RedisModuleCtx, command: &Guarded) -> Result<(), Error> {
    if runs_as_user() || may_run_every_command(ctx, command).unwrap_or(false) {
        Ok(())
    } else {
        Err(Error::GuardNeedsAllCommands)
    }
}

/// Whether the server knows the call flags of Redis 7.0.
pub(crate) fn runs_as_user() -> bool {
    optional!(RedisModule_GetCommand).is_some()
}

/// Whether the user may run every command. `None` if the server does not say.
fn may_run_every_command(ctx: *mut RedisModuleCtx, command: &Guarded) -> Option<bool> {
    let Some(user) = client::user(ctx, client::id(ctx)) else {
        // A script does not say which user runs it.
        let rules = CallReply::to(ctx, c"ACL", &[c"LIST"])?;
        return Some(rules.texts().iter().all(|rules| allow_all(rules, command)));
    };
    let reply = CallReply::to(ctx, c"ACL", &[c"GETUSER", &CString::new(user).ok()?])?;
    // The field's name, then the flags.
    let flags = reply.whole().at(1)?.texts();
    let has = |flag: &[u8]| flags.contains(&flag);
    Some(has(b"allcommands") && (!command.publishes || has(b"allchannels")))
}

/// Whether a user with these rules, as `ACL LIST` shows them, may run every command, or cannot log in.
fn allow_all(rules: &[u8], command: &Guarded) -> bool {
    let words: Vec<_> = rules.split(|&byte| byte == b' ').skip(2).collect();
    let has = |word: &[u8]| words.contains(&word);
    let takes_away = words.iter().any(|word| word.starts_with(b"-"));
    has(b"off") || has(b"+@all") && !takes_away && (!command.publishes || has(b"&*"))
}
