//! The keys of a command that is to be guarded.
//!
//! Servers that ask the module for the keys of a command in a thread die of it. They are told of the lock alone; what they then
//! cannot look at, [`Call`](super::call::Call) looks at when the command is run.

use super::authority;
use super::ffi::api::{api, optional};
use super::ffi::main_thread::MainThread;
use super::ffi::string::bytes_of;
use super::ffi::{log, server_flavor};
use leasehold_core::command::guard;
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr;

/// Of a key of which nothing is said but that it is one. The server then checks no more than that the user may use it at all.
pub(super) const NO_FLAGS: c_int = 0;

/// Whether the server may ask for them, or has to do without.
static ARE_TOLD: MainThread<Cell<bool>> = MainThread::new(Cell::new(true));

/// Decides that before the command is registered.
pub(super) fn decide_whether_to_tell(ctx: *mut RedisModuleCtx) {
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

pub(super) fn are_told() -> bool {
    ARE_TOLD.get()
}

/// The keys of a command that is to be guarded.
pub(super) fn of(
    ctx: *mut RedisModuleCtx,
    command: &[*mut RedisModuleString],
) -> Vec<*mut RedisModuleString> {
    let places = places(ctx, command);
    places.into_iter().filter_map(|(at, _)| command.get(at).copied()).collect()
}

/// Where a command that is to be guarded has keys, and what becomes of each.
pub(super) fn places(
    ctx: *mut RedisModuleCtx,
    command: &[*mut RedisModuleString],
) -> Vec<(usize, c_int)> {
    // SAFETY: a word of the command that is being executed, or that the server asks about.
    let bytes = |&string: &*mut RedisModuleString| unsafe { bytes_of(string) };
    let Some(name) = command.first().map(bytes).filter(|name| !guard::is_itself(name)) else {
        return Vec::new();
    };
    let Some(_asking) = Asking::begin() else { return Vec::new() };
    let mut places: Vec<_> = Found::in_words(ctx, command).each().collect();
    if guard::may_have_hidden_keys(name) {
        let words: Vec<_> = command.iter().map(bytes).collect();
        // A request can have half a million of them.
        let found: BTreeSet<_> = places.iter().map(|&(at, _)| at).collect();
        let hidden = guard::hidden_keys(&words).filter(|at| !found.contains(at));
        places.extend(hidden.map(|at| (at, NO_FLAGS)));
    }
    places
}

static IS_ASKING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// The server is being asked for the keys of a command. If it asks us in turn, whatever the command is called, it is
/// told no more: each level would take some of the stack, and a request can have a quarter of a million.
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
