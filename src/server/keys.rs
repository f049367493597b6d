//! Which words of a command are keys, for a server that asks the module.
//!
//! Every server asks about `LOCK.GUARD`, since only the [command behind it](super::inner_command) says where its keys are. Redis
//! 6.2 also asks about the commands that know `ALSO`; later servers are told once where the keys stand behind it: see
//! [`register`](super::register).

use super::call::Call;
use super::ffi::api::{api, optional};
use leasehold_core::command::{Also, Spec};
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::ffi::{CStr, c_int};

/// The flag of a command whose keys the server asks for.
pub(super) const ASKED_FOR_KEYS: &CStr = c"getkeys-api";

/// The flags of a key, for Redis 6.2, which does not ask for them.
const NOT_HEARD: c_int = 0;

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
    if !is_asked(ctx) {
        return false;
    }
    let call = Call::new(ctx, argv, argc);
    let words = call.all_words();
    let also = spec.also_from().and_then(|from| Also::find(&words, from));
    let others = also.map_or(0..0, |also| also.at..also.at.saturating_add(also.keys.len()));
    let at = std::iter::once(1).chain(others);
    // The server reads the word that it is told, whether there is one or not.
    at.filter(|&at| at < words.len()).for_each(|at| tell(ctx, at, NOT_HEARD));
    true
}

/// Whether the server only wants to know which words are keys.
pub(super) fn is_asked(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_IsKeysPositionRequest)(ctx) != 0 }
}

/// Tells the server that the word at this position is a key, and, where it can be told, what becomes of it.
pub(super) fn tell(ctx: *mut RedisModuleCtx, position: usize, flags: c_int) {
    let Ok(position) = c_int::try_from(position) else { return };
    match optional!(RedisModule_KeyAtPosWithFlags) {
        // SAFETY: the server has just said that it asks for keys in this context.
        Some(tell) => unsafe { tell(ctx, position, flags) },
        // SAFETY: the same.
        None => unsafe { api!(RedisModule_KeyAtPos)(ctx, position) },
    }
}
