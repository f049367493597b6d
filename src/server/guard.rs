//! The panic barrier. Every function that the server calls begins here.
//!
//! A panic that left an `extern "C"` function would abort the server and everybody's data with it (L6).
//! Here it becomes `-ERR internal error` where there is a client, a line in the log, and a count in
//! INFO. Decisions are pure and come before the first change to the keyspace, so what panics has
//! changed nothing or everything.
//!
//! The literal that names each entry is also the name under which a debug build can be told to panic
//! there: `LEASEHOLD_PANIC_AT=lock.acquire`.

use super::call::Call;
use super::log;
use super::respond::respond;
use super::state::STATE;
use leasehold_core::command::{Error, Reply};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};
use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

thread_local! {
    /// What the last panic said and where, kept by the hook for the guard to log.
    static LAST_WORDS: Cell<String> = const { Cell::new(String::new()) };
}

/// Runs one command. Whatever becomes of `body`, the client gets exactly one reply.
pub(super) fn command(
    entry: &'static str,
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    body: impl FnOnce(&Call) -> Result<(), Error>,
) -> c_int {
    let call = Call::new(ctx, argv, argc);
    let outcome = caught(entry, || body(&call)).unwrap_or(Err(Error::Internal));
    if let Err(error) = outcome
        && !call.is_answered()
    {
        call.reply(&Reply::Error(error));
    }
    // The reply has told the client; any other status would only be logged by nobody.
    status(true)
}

/// Runs one callback that answers a client that was blocked. `body` replies last of all.
pub(super) fn reply(entry: &'static str, ctx: *mut RedisModuleCtx, body: impl FnOnce()) -> c_int {
    if caught(entry, body).is_none() {
        respond(ctx, &Reply::Error(Error::Internal));
    }
    status(true)
}

/// Runs one callback that has nobody to answer to.
pub(super) fn event(entry: &'static str, body: impl FnOnce()) {
    caught(entry, body);
}

/// Runs one callback that answers with a value; `fallback` stands for it after a panic.
pub(super) fn value<T>(entry: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    caught(entry, body).unwrap_or(fallback)
}

/// What the server takes for success and failure.
pub(super) const fn status(ok: bool) -> c_int {
    let status = if ok { raw::REDISMODULE_OK } else { raw::REDISMODULE_ERR };
    #[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "it is 0 or 1")]
    return status as c_int;
}

/// A flag of the bindings, which have them as unsigned, for the functions, which take them as signed.
pub(super) const fn flag(bits: u32) -> c_int {
    bits.cast_signed()
}

/// Keeps what panics say for the log, in place of the default, which writes to standard error.
pub(super) fn listen_to_panics() {
    std::panic::set_hook(Box::new(|panic| LAST_WORDS.set(panic.to_string())));
}

pub(super) fn stop_listening() {
    drop(std::panic::take_hook());
}

fn caught<T>(entry: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    // Nothing of ours is left half-done behind the barrier: the state is a few cells, each set whole.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(debug_assertions)]
        injected::panic_if_told(entry);
        body()
    }));
    outcome
        .inspect_err(|_| {
            STATE.panics_caught.set(STATE.panics_caught.get().saturating_add(1));
            let words = LAST_WORDS.take();
            log::warning(ptr::null_mut(), &format!("panic in {entry}: {words}"));
        })
        .ok()
}

/// A panic on demand, in debug builds only: how the tests show that every entry survives one.
#[cfg(debug_assertions)]
mod injected {
    use std::sync::OnceLock;

    static ENTRY: OnceLock<Option<String>> = OnceLock::new();

    #[expect(clippy::panic, reason = "what it is for")]
    pub(super) fn panic_if_told(entry: &str) {
        let told = ENTRY.get_or_init(|| std::env::var("LEASEHOLD_PANIC_AT").ok());
        if told.as_deref() == Some(entry) {
            panic!("told to");
        }
    }
}
