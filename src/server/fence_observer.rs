//! Learning fences from data that is not this server's own doing.
//!
//! A replica applies its primary's grants, and a server that starts loads those of its predecessor, as plain
//! `SET key value PXAT deadline` and as keys of a file: nobody asks the module. Yet when its time comes, its
//! fences must be above all of them (L2), also with a clock that is an hour behind, and also for locks that
//! were released or deleted since. So while others' grants are being applied, the module looks at every key that
//! is given an expiry, restored, or loaded:
//!
//! | while the server                | it hears of                      |
//! |---------------------------------|----------------------------------|
//! | loads an RDB file               | each key (`loaded`)              |
//! | loads an append-only file       | commands too (`expire`)          |
//! | is a replica                    | the same                         |
//!
//! A primary that does none of this is not listened to: events cost everybody's commands some percent. Where the
//! server knows no way to stop listening (before Redis 8.2, and Valkey), one that once began to is listened to
//! until it ends.
//!
//! Valkey 8.1 and 9.0 leave clients in the wrong database if somebody listens to commands there, so nobody does: see
//! [`server_flavor::misplaces_clients`].
//!
//! Only what was really applied teaches anything. A filter on commands would be cheaper, but it sees them
//! before the server asks whether their sender may run them.

use super::ffi::api::{api, status};
use super::ffi::call_reply::CallReply;
use super::ffi::main_thread::MainThread;
use super::ffi::server_flavor;
use super::ffi::string::{OwnedString, bytes_of};
use super::ffi::subscription::Subscription;
use super::key::OpenKey;
use super::locks::with_fences;
use super::{authority, clock, guard};
use leasehold_core::engine::Key;
use leasehold_core::lock::{Stored, Value, learn_from};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

/// No longer string is moved when it is read in place. Servers move strings that they store more compactly, which are much
/// shorter: 44 bytes at most in the sources that were read.
const LONGEST_MOVED: usize = 256;

/// What is being loaded, if anything is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loading {
    Nothing,
    /// Whole keys.
    Keys,
    /// Commands, and whole keys too.
    Commands,
}

/// Whether grants are being applied here that others made.
static IS_LEARNING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// `expire` and `restore`, among much else.
static COMMANDS: MainThread<Subscription> =
    MainThread::new(Subscription::new(raw::REDISMODULE_NOTIFY_GENERIC, Some(key_event)));

/// `loaded`.
static KEYS: MainThread<Subscription> =
    MainThread::new(Subscription::new(raw::REDISMODULE_NOTIFY_LOADED, Some(key_event)));

pub(super) fn reset() {
    IS_LEARNING.set(false);
    COMMANDS.reset();
    KEYS.reset();
}

/// Subscribes to key events while others' grants are being applied, and only then.
pub(super) fn update_subscriptions(ctx: *mut RedisModuleCtx, loading: Loading) {
    let is_told = authority::is_replica(ctx);
    IS_LEARNING.set(is_told || loading != Loading::Nothing);
    let by_commands = is_told || loading == Loading::Commands;
    // Fences are learned to survive clocks that disagree; nobody's data may be put at risk for that.
    keep(ctx, &COMMANDS, by_commands && !server_flavor::misplaces_clients(ctx));
    keep(ctx, &KEYS, is_told || loading != Loading::Nothing);
}

fn keep(ctx: *mut RedisModuleCtx, subscription: &Subscription, needed: bool) {
    if needed { subscription.take_out(ctx) } else { subscription.cancel(ctx) }
}

unsafe extern "C" fn key_event(
    ctx: *mut RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut RedisModuleString,
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

/// Takes note of the fence in a key that was given an expiry, or came from elsewhere.
fn from_key(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString) {
    // A string of our own: while loading, the server's may lie on its stack, which an opened key must not
    // outlive.
    // SAFETY: the key's name lives as long as this callback.
    let name = OwnedString::new(ctx, unsafe { bytes_of(key) });
    let key = OpenKey::peek(ctx, name.string());
    // Reading a short string makes the server store it less compactly, so others' keys are left alone as far
    // as can be told from outside.
    if may_be_a_grant(&key) {
        read_in_place(&key);
    }
}

/// The same right after a `RESTORE`. A short value is asked for and not read in place: reading a short string in place
/// moves it, and Redis 8.6 goes on with where it was. Under another name than `GET` nothing is learned then. A long one
/// is not copied.
fn from_restored(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString) {
    let opened = OpenKey::peek(ctx, key);
    if !may_be_a_grant(&opened) {
        return;
    }
    if opened.len() > LONGEST_MOVED {
        return read_in_place(&opened);
    }
    drop(opened);
    // SAFETY: the format takes one string; the reply goes nowhere else.
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

/// As far as can be told without reading the value.
fn may_be_a_grant(key: &OpenKey<'_>) -> bool {
    key.has_expiry() && key.len() >= Value::SHORTEST
}
