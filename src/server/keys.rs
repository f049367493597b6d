//! Which words of a command are keys, for a server that asks the module.
//!
//! Servers ask about `LOCK.GUARD`, since only the [command behind it](super::guarded_keys) says where its keys are.
//! Redis 6.2 also asks about the commands that know `ALSO`; later servers are told once where the keys stand behind it:
//! see [`register`](super::register).

use super::call::Call;
use super::ffi::api::{api, flag, optional};
use super::{guard, guarded_keys};
use leasehold_core::command::{Spec, guard as guard_page};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};
use std::ffi::{CStr, c_int};

/// The flag of a command whose keys the server asks for.
pub(super) const ASKED_FOR_KEYS: &CStr = c"getkeys-api";

/// Where every command that has a key has its lock.
const LOCK_AT: usize = 1;

/// Tells the server the keys of a command, if it asks for them instead of having the command executed.
pub(super) fn are_told(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    spec: &Spec,
) -> bool {
    if optional!(RedisModule_SetCommandInfo).is_some() {
        return false;
    }
    is_asked(ctx) && answered(|| tell_own(ctx, &Call::new(ctx, argv, argc), spec))
}

/// The same for a command that guards another one.
pub(super) fn are_told_with_those_of_another(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> bool {
    is_asked(ctx) && answered(|| tell_guarded(ctx, Call::new(ctx, argv, argc).strings()))
}

/// Whatever becomes of `tell`, the command is not to be executed.
fn answered(tell: impl FnOnce()) -> bool {
    guard::value("keys-asked", (), tell);
    true
}

/// Whether the server only wants to know which words are keys.
fn is_asked(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_IsKeysPositionRequest)(ctx) != 0 }
}

fn tell_own(ctx: *mut RedisModuleCtx, call: &Call, spec: &Spec) {
    let words = call.all_words();
    let at = std::iter::once(LOCK_AT).chain(spec.keys_behind_also(&words));
    // The server reads the word that it is told, whether there is one or not.
    at.filter(|&at| at < words.len()).for_each(|at| tell(ctx, at, guarded_keys::NO_FLAGS));
}

/// The key of the lock, and the keys of the command behind it, wherever the server itself finds them.
///
/// This is asked of whatever a client sends, whether it can be executed or not. A command that guards itself is refused
/// when it is executed; here nothing is asked of it, because each level would take some of the stack.
fn tell_guarded(ctx: *mut RedisModuleCtx, strings: &[*mut RedisModuleString]) {
    if strings.len() > LOCK_AT {
        let reads = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
        tell(ctx, LOCK_AT, flag(reads));
    }
    let command = strings.get(guard_page::COMMAND_AT..).unwrap_or_default();
    for (at, flags) in guarded_keys::places(ctx, command) {
        tell(ctx, at.saturating_add(guard_page::COMMAND_AT), flags);
    }
}

/// Tells the server that the word at this position is a key, and, where it can be told, what becomes of it.
fn tell(ctx: *mut RedisModuleCtx, position: usize, flags: c_int) {
    let Ok(position) = c_int::try_from(position) else { return };
    match optional!(RedisModule_KeyAtPosWithFlags) {
        // SAFETY: the server has just said that it asks for keys in this context.
        Some(tell) => unsafe { tell(ctx, position, flags) },
        // SAFETY: the same.
        None => unsafe { api!(RedisModule_KeyAtPos)(ctx, position) },
    }
}
