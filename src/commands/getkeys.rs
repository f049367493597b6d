//! Which words of a command are keys, for a server that asks (`getkeys-api`).
//!
//! Servers ask about `LOCK.GUARD`, since only the command behind it says where its keys are. Redis 6.2 also asks about
//! the commands that take `ALSO`. Later servers learn the positions after `ALSO` at registration: see
//! [`register`](super::register).
//!
//! Servers that ask a module for the keys of a command in a thread crash. They learn of the lock alone. The keys that
//! they then cannot check, [`Call`](super::call::Call) checks when the command runs.

use crate::ffi::{
    Ctx, MainThread, RawString, Words, api, bytes_of, flag, log, optional, server_flavor,
};
use crate::{authority, guard};
use leasehold_core::command::{Access, Spec, guard as guard_page};
use redis_module::raw;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_int};
use std::ptr;

/// The flag of a command whose keys the server asks for.
pub(crate) const ASKED_FOR_KEYS: &CStr = c"getkeys-api";

/// Every command that takes a lock has it here.
const LOCK_AT: usize = 1;

/// For a key whose use is not known. The server then checks only that the user has any access to the key.
const NO_FLAGS: c_int = 0;

/// Whether the server may ask for the keys.
static ARE_TOLD: MainThread<Cell<bool>> = MainThread::new(Cell::new(true));

/// Decides whether the server may ask. Called before the command is registered.
pub(crate) fn decide_whether_to_tell(ctx: Ctx) {
    let is_in_cluster = authority::is_in_cluster(ctx);
    let in_threads = server_flavor::asks_for_keys_in_threads(ctx, is_in_cluster);
    if in_threads {
        log::notice(
            ctx,
            "this server would ask for the keys of a command behind LOCK.GUARD in a thread, which may crash it; COMMAND GETKEYS knows the lock alone",
        );
    }
    ARE_TOLD.set(!in_threads);
}

pub(crate) fn are_told() -> bool {
    ARE_TOLD.get()
}

/// Tells the server the keys of a command, if the server asks for the keys instead of executing the command. True even
/// if that panics: the command must not be executed.
#[inline(always)]
pub(crate) fn have_been_told(ctx: Ctx, words: &Words, spec: &Spec) -> bool {
    let is_guard = spec.access == Access::Guard;
    if !is_guard && (optional!(RedisModule_SetCommandInfo).is_some() || spec.also_from().is_none())
    {
        return false;
    }
    tell_if_asked(ctx, words, spec, is_guard)
}

#[inline(never)]
fn tell_if_asked(ctx: Ctx, words: &Words, spec: &Spec, is_guard: bool) -> bool {
    // SAFETY: takes a valid context.
    if unsafe { api!(RedisModule_IsKeysPositionRequest)(ctx) } == 0 {
        return false;
    }
    guard::value("keys-asked", (), || {
        if is_guard { tell_guarded(ctx, words.strings()) } else { tell_own(ctx, words, spec) }
    });
    true
}

fn tell_own(ctx: Ctx, words: &Words, spec: &Spec) {
    let words = words.bytes();
    let at = std::iter::once(LOCK_AT).chain(spec.keys_behind_also(&words));
    // The server reads the word at the position that it is told, even if there is no such word.
    at.filter(|&at| at < words.len()).for_each(|at| tell(ctx, at, NO_FLAGS));
}

/// Tells the key of the lock, and the keys that the server finds in the guarded command.
///
/// The server asks this about everything that clients send, executable or not. A `LOCK.GUARD` that guards a
/// `LOCK.GUARD` is refused when it is executed. Here its inner keys are not asked for, because each level uses stack.
fn tell_guarded(ctx: Ctx, strings: &[RawString]) {
    if strings.len() > LOCK_AT {
        let reads = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
        tell(ctx, LOCK_AT, flag(reads));
    }
    let command = strings.get(guard_page::COMMAND_AT..).unwrap_or_default();
    for (at, flags) in places(ctx, command) {
        tell(ctx, at.saturating_add(guard_page::COMMAND_AT), flags);
    }
}

/// Tells the server that the word at this position is a key, and, if the server takes flags, how the key is used.
fn tell(ctx: Ctx, position: usize, flags: c_int) {
    let Ok(position) = c_int::try_from(position) else { return };
    match optional!(RedisModule_KeyAtPosWithFlags) {
        // SAFETY: the server has just said that it asks for keys in this context.
        Some(tell) => unsafe { tell(ctx, position, flags) },
        // SAFETY: the server has just said that it asks for keys in this context.
        None => unsafe { api!(RedisModule_KeyAtPos)(ctx, position) },
    }
}

/// The keys of a guarded command.
pub(crate) fn of(ctx: Ctx, command: &[RawString]) -> Vec<RawString> {
    let places = places(ctx, command);
    places.into_iter().filter_map(|(at, _)| command.get(at).copied()).collect()
}

/// The positions of a guarded command's keys, and how it uses each.
fn places(ctx: Ctx, command: &[RawString]) -> Vec<(usize, c_int)> {
    // SAFETY: a word of the command that is being executed, or that the server asks about.
    let bytes = |&string: &RawString| unsafe { bytes_of(string) };
    let Some(name) = command.first().map(bytes).filter(|name| !guard_page::is_itself(name)) else {
        return Vec::new();
    };
    let Some(_asking) = Asking::begin() else { return Vec::new() };
    let mut places: Vec<_> = Found::in_words(ctx, command).each().collect();
    if guard_page::may_have_hidden_keys(name) {
        let words: Vec<_> = command.iter().map(bytes).collect();
        // A set, because a request can have half a million keys.
        let found: BTreeSet<_> = places.iter().map(|&(at, _)| at).collect();
        let hidden = guard_page::hidden_keys(&words).filter(|at| !found.contains(at));
        places.extend(hidden.map(|at| (at, NO_FLAGS)));
    }
    places
}

static IS_ASKING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Set while the server is asked for the keys of a command. If the server asks the module in turn, whatever the
/// command is called, the module answers with the lock alone: each level uses stack, and a request can have a quarter
/// of a million.
struct Asking;

impl Asking {
    fn begin() -> Option<Self> {
        if IS_ASKING.replace(true) { None } else { Some(Self) }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        IS_ASKING.set(false);
    }
}

/// The keys that the server finds in a command: their positions, and how the command uses each.
struct Found {
    places: *mut c_int,
    flags: *mut c_int,
    count: usize,
}

impl Found {
    fn in_words(ctx: Ctx, words: &[RawString]) -> Self {
        let (mut count, mut flags) = (0, ptr::null_mut());
        let argv = words.as_ptr().cast_mut();
        let argc = c_int::try_from(words.len()).unwrap_or(0);
        let places = match optional!(RedisModule_GetCommandKeysWithFlags) {
            // SAFETY: `argc` valid strings, at least one, which the server only reads.
            Some(keys) => unsafe { keys(ctx, argv, argc, &raw mut count, &raw mut flags) },
            // SAFETY: `argc` valid strings, at least one, which the server only reads.
            None => unsafe { api!(RedisModule_GetCommandKeys)(ctx, argv, argc, &raw mut count) },
        };
        // For a command without keys the server leaves the count at 0.
        Self { places, flags, count: usize::try_from(count).unwrap_or(0) }
    }

    fn each(&self) -> impl Iterator<Item = (usize, c_int)> {
        (0..self.count).filter_map(|index| {
            // SAFETY: each list is null, or has `count` numbers and is ours until it is freed.
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
            // SAFETY: the server allocated the list for us, and nothing else points to it.
            unsafe { api!(RedisModule_Free)(list.cast()) };
        }
    }
}
