//! Which words of a command are keys, for Redis 6.2, which asks each time. Later servers are told once where the keys stand
//! behind `ALSO`: see [`register`](super::register).

use super::call::Call;
use super::ffi::api::optional;
use leasehold_core::command::{Also, Spec};
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::ffi::{CStr, c_int};

/// The flag of a command whose keys the server asks for.
pub(super) const ASKED_FOR_KEYS: &CStr = c"getkeys-api";

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
    let (Some(is_asked), Some(tell)) =
        (optional!(RedisModule_IsKeysPositionRequest), optional!(RedisModule_KeyAtPos))
    else {
        return false;
    };
    // SAFETY: takes a valid context.
    if unsafe { is_asked(ctx) } == 0 {
        return false;
    }
    let call = Call::new(ctx, argv, argc);
    let words = call.all_words();
    let also = spec.also_from().and_then(|from| Also::find(&words, from));
    let others = also.map_or(0..0, |also| also.at..also.at.saturating_add(also.keys.len()));
    for at in std::iter::once(1).chain(others) {
        // SAFETY: the context is one in which the server asks; the word is there.
        unsafe { tell(ctx, c_int::try_from(at).unwrap_or(c_int::MAX)) };
    }
    true
}
