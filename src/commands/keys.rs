//! Tells a server that asks which words of a command are keys.
//!
//! Servers ask about `LOCK.GUARD`, since only the [command behind it](super::guarded_keys) says where its keys are.
//! Redis 6.2 also asks about the commands that take `ALSO`. Later servers learn the positions after `ALSO` at
//! registration: see [`register`](super::register).

use super::call::Call;
use super::guarded_keys;
use crate::ffi::api::{api, flag, optional};
use crate::guard;
use leasehold_core::command::{Spec, guard as guard_page};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};
use std::ffi::{CStr, c_int};

/// The flag of a command whose keys the server asks for.
pub(crate) const ASKED_FOR_KEYS: &CStr = c"getkeys-api";

/// Every command that takes a lock has it here.
const LOCK_AT: usize = 1;

/// Tells the server the keys of a command, if the server asks for the keys instead of executing the command.
pub(crate) fn are_told(
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

/// Does so for a command that guards another command.
pub(crate) fn are_told_with_those_of_another(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> bool {
    is_asked(ctx) && answered(|| tell_guarded(ctx, Call::new(ctx, argv, argc).strings()))
}

/// True even if `tell` panics: the command must not be executed.
fn answered(tell: impl FnOnce()) -> bool {
    guard::value("keys-asked", (), tell);
    true
}

/// Whether the server asks only for the positions of the keys.
fn is_asked(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_IsKeysPositionRequest)(ctx) != 0 }
}

fn tell_own(ctx: *mut RedisModuleCtx, call: &Call, spec: &Spec) {
    let words = call.all_words();
    let at = std::iter::once(LOCK_AT).chain(spec.keys_behind_also(&words));
    // The server reads the word at the position that it is told, even if there is no such word.
    at.filter(|&at| at < words.len()).for_each(|at| tell(ctx, at, guarded_keys::NO_FLAGS));
}

/// Tells the key of the lock, and the keys that the server finds in the guarded command.
///
/// The server asks this about everything that clients send, executable or not. A `LOCK.GUARD` that guards a
/// `LOCK.GUARD` is refused when it is executed. Here its inner keys are not asked for, because each level uses stack.
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

/// Tells the server that the word at this position is a key, and, if the server takes flags, how the key is used.
fn tell(ctx: *mut RedisModuleCtx, position: usize, flags: c_int) {
    let Ok(position) = c_int::try_from(position) else { return };
    match optional!(RedisModule_KeyAtPosWithFlags) {
        // SAFETY: the server has just said that it asks for keys in this context.
        Some(tell) => unsafe { tell(ctx, position, flags) },
        // SAFETY: the server has just said that it asks for keys in this context.
        None => unsafe { api!(RedisModule_KeyAtPos)(ctx, position) },
    }
}
