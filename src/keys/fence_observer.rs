//! Learns fences from data that other servers wrote.
//!
//! A replica applies the grants of its primary, and a starting server loads the grants of its predecessor, as plain
//! `SET key value PXAT deadline` or as keys of a file. Neither involves the module. Yet the fences that this server
//! later issues must be above all of these fences (L2), even if its clock is an hour behind, and even if the lock was
//! released or deleted. So while the server applies grants of others, the module looks at every key that gets an
//! expiry, is restored, or is loaded:
//!
//! | while the server                | it hears of                      |
//! |---------------------------------|----------------------------------|
//! | loads an RDB file               | each key (`loaded`)              |
//! | loads an append-only file       | commands too (`expire`)          |
//! | is a replica                    | each key, and commands too       |
//!
//! On a primary that loads nothing, the module does not subscribe: events slow all commands by a few percent. Servers
//! that cannot unsubscribe (before Redis 8.2, and Valkey) keep a subscription until they end.
//!
//! Valkey 8.1 and 9.0 leave clients in the wrong database if a module subscribes to the events of commands, so this
//! module does not: see [`server_flavor::misplaces_clients`].
//!
//! A fence is learned only from applied changes. A command filter would be cheaper, but it sees commands before the
//! server checks their permissions.

use super::open_key::OpenKey;
use crate::engine::with_fences;
use crate::ffi::{
    CallReply, Ctx, MainThread, OwnedString, RawString, Subscription, api, bytes_of, server_flavor,
    status,
};
use crate::{authority, clock, guard};
use leasehold_core::engine::Key;
use leasehold_core::lock::{Stored, Value, learn_from};
use redis_module::raw;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

/// Longer strings are not moved when they are read in place. Servers move strings in a compact encoding, at most 44
/// bytes long in the sources that were read.
const LONGEST_MOVED: usize = 256;

/// What the server is loading.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    Nothing,
    /// Whole keys.
    Keys,
    /// Commands, and whole keys too.
    Commands,
}

/// Whether the server applies grants that other servers made.
static IS_LEARNING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// `expire` and `restore`, among many others.
static COMMANDS: MainThread<Subscription> =
    MainThread::new(Subscription::to_keys(raw::REDISMODULE_NOTIFY_GENERIC, Some(key_event)));

/// `loaded`.
static KEYS: MainThread<Subscription> =
    MainThread::new(Subscription::to_keys(raw::REDISMODULE_NOTIFY_LOADED, Some(key_event)));

pub(crate) fn reset() {
    IS_LEARNING.set(false);
    COMMANDS.reset();
    KEYS.reset();
}

/// Subscribes to keyspace events while the server applies grants of others, and only then.
pub(crate) fn update_subscriptions(ctx: Ctx, loading: Loading) {
    let is_told = authority::is_replica(ctx);
    IS_LEARNING.set(is_told || loading != Loading::Nothing);
    let by_commands = is_told || loading == Loading::Commands;
    // Learning fences protects against clocks that disagree. No data may be put at risk for it.
    keep(ctx, &COMMANDS, by_commands && !server_flavor::misplaces_clients(ctx));
    keep(ctx, &KEYS, is_told || loading != Loading::Nothing);
}

fn keep(ctx: Ctx, subscription: &Subscription, needed: bool) {
    if needed { subscription.take_out(ctx) } else { subscription.cancel(ctx) }
}

unsafe extern "C" fn key_event(
    ctx: Ctx,
    class: c_int,
    event: *const c_char,
    key: RawString,
) -> c_int {
    guard::event("key-event", ctx, || {
        if IS_LEARNING.get() {
            // SAFETY: the server names every event.
            let event = unsafe { CStr::from_ptr(event) };
            if class == raw::REDISMODULE_NOTIFY_LOADED || event == c"expire" {
                from_key(ctx, key);
            } else if event == c"restore" {
                from_restored(ctx, key);
            }
        }
    });
    status(true)
}

/// Learns the fence in a key that got an expiry or came from elsewhere.
fn from_key(ctx: Ctx, key: RawString) {
    // Copies the name: while loading, the server's string may be on its stack, and an open key must not outlive its
    // name.
    // SAFETY: the key's name lives as long as this callback.
    let name = OwnedString::new(ctx, unsafe { bytes_of(key) });
    let key = OpenKey::peek(ctx, name.string());
    // Reading a short string makes the server store it less compactly, so keys that cannot be locks are not read.
    if may_be_a_grant(&key) {
        read_in_place(&key);
    }
}

/// Learns the fence in a key right after a `RESTORE`. A short value is read with `GET`: reading a short string in
/// place moves it, and Redis 8.6 goes on to use the old address. If `GET` was renamed, nothing is learned. A long
/// value is read in place, without a copy.
fn from_restored(ctx: Ctx, key: RawString) {
    let opened = OpenKey::peek(ctx, key);
    if !may_be_a_grant(&opened) {
        return;
    }
    if opened.len() > LONGEST_MOVED {
        return read_in_place(&opened);
    }
    drop(opened);
    // SAFETY: the format takes one string. Nobody else gets the reply.
    let reply = unsafe {
        let call = || api!(RedisModule_Call)(ctx, c"GET".as_ptr(), c"s".as_ptr(), key);
        CallReply::of_call(ctx, c"GET", call)
    };
    if let Some(value) = reply.as_ref().and_then(CallReply::text) {
        take_note_of(value);
    }
}

fn read_in_place(key: &OpenKey<'_>) {
    if let Stored::Text { value, .. } = key.stored() {
        take_note_of(value);
    }
}

fn take_note_of(value: &[u8]) {
    with_fences(|fences| learn_from(value, clock::now(), fences));
}

/// Whether the key may be a lock, judged without reading its value.
fn may_be_a_grant(key: &OpenKey<'_>) -> bool {
    key.has_expiry() && key.len() >= Value::SHORTEST
}
