//! Which words of a command are keys, for a server that asks the module.
//!
//! Every server asks about `LOCK.GUARD`, since only the command behind it says where its keys are. Redis
//! 6.2 also asks about the commands that know `ALSO`; later servers are told once where the keys stand behind it: see
//! [`register`](super::register).

use super::call::Call;
use super::ffi::api::{api, flag, optional};
use super::ffi::string::bytes_of;
use super::guard;
use leasehold_core::command::{Spec, guard as guard_page};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};
use std::ffi::{CStr, c_int};
use std::ptr;

/// The flag of a command whose keys the server asks for.
pub(super) const ASKED_FOR_KEYS: &CStr = c"getkeys-api";

/// Where every command that has a key has its lock.
const LOCK_AT: usize = 1;

/// Of a key of which nothing is said but that it is one. The server then checks no more than that the user may use it at all.
const NO_FLAGS: c_int = 0;

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
    at.filter(|&at| at < words.len()).for_each(|at| tell(ctx, at, NO_FLAGS));
}

/// The key of the lock, and the keys of the command behind it, wherever the server itself finds them.
///
/// This is asked of whatever a client sends, whether it can be executed or not. A command that guards itself is refused when it is
/// executed; here nothing is asked of it, because each level would take some of the stack.
fn tell_guarded(ctx: *mut RedisModuleCtx, strings: &[*mut RedisModuleString]) {
    if strings.len() > LOCK_AT {
        let reads = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
        tell(ctx, LOCK_AT, flag(reads));
    }
    let command = strings.get(guard_page::COMMAND_AT..).unwrap_or_default();
    // SAFETY: a word of the command that the server asks about.
    let bytes = |&string: &*mut RedisModuleString| unsafe { bytes_of(string) };
    let Some(name) = command.first().map(bytes).filter(|name| !guard_page::is_itself(name)) else {
        return;
    };
    let tell_inner = |at: usize, flags| tell(ctx, at.saturating_add(guard_page::COMMAND_AT), flags);
    let found = Found::in_words(ctx, command);
    found.each().for_each(|(at, flags)| tell_inner(at, flags));
    if guard_page::may_have_hidden_keys(name) {
        let words: Vec<_> = command.iter().map(bytes).collect();
        for at in guard_page::hidden_keys(&words) {
            if found.each().all(|(other, _)| other != at) {
                tell_inner(at, NO_FLAGS);
            }
        }
    }
}

/// The keys that the server finds in a command: the places of the words, and what becomes of each.
struct Found {
    places: *mut c_int,
    flags: *mut c_int,
    count: usize,
}

impl Found {
    fn in_words(ctx: *mut RedisModuleCtx, words: &[*mut RedisModuleString]) -> Self {
        let (mut count, mut flags) = (0, ptr::null_mut());
        let argv = words.as_ptr().cast_mut();
        let argc = c_int::try_from(words.len()).unwrap_or(0);
        let places = match optional!(RedisModule_GetCommandKeysWithFlags) {
            // SAFETY: so many valid strings, at least one, which the server only reads.
            Some(keys) => unsafe { keys(ctx, argv, argc, &raw mut count, &raw mut flags) },
            // SAFETY: the same.
            None => unsafe { api!(RedisModule_GetCommandKeys)(ctx, argv, argc, &raw mut count) },
        };
        // For a command without keys the server leaves the count at 0.
        Self { places, flags, count: usize::try_from(count).unwrap_or(0) }
    }

    fn each(&self) -> impl Iterator<Item = (usize, c_int)> {
        (0..self.count).filter_map(|index| {
            // SAFETY: each is null, or has room for so many numbers and is ours until it is freed.
            let (place, flags) = unsafe {
                let flags = if self.flags.is_null() { NO_FLAGS } else { *self.flags.add(index) };
                (*self.places.add(index), flags)
            };
            Some((usize::try_from(place).ok()?, flags))
        })
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        for list in [self.places, self.flags].into_iter().filter(|list| !list.is_null()) {
            // SAFETY: the server made it for us, and nobody has it any more.
            unsafe { api!(RedisModule_Free)(list.cast()) };
        }
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
