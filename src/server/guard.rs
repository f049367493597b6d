//! The panic barrier. Every function that the server calls begins here.
//!
//! A panic that left an `extern "C"` function would abort the server and everybody's data with it (L6).
//! Here it becomes `-ERR internal error` where there is a client, a line in the log, and a count in
//! INFO. Decisions are pure and come before the first change to the keyspace, so what panics has
//! changed nothing or everything.
//!
//! The barrier is also where the [alarm] is set, if the call has changed what is due next.
//!
//! The literal that names each entry is also the name under which a debug build can be told to panic
//! there: `LEASEHOLD_PANIC_AT=lock.acquire`.

use super::alarm;
use super::ffi::log;
use super::ffi::main_thread::MainThread;
use leasehold_core::command::Error;
use redis_module::raw::RedisModuleCtx;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

thread_local! {
    /// What the last panic said and where, kept by the hook for the guard to log.
    static LAST_WORDS: Cell<String> = const { Cell::new(String::new()) };
}

static PANICS_CAUGHT: MainThread<Cell<u64>> = MainThread::new(Cell::new(0));

pub(super) fn panics_caught() -> u64 {
    PANICS_CAUGHT.get()
}

/// Runs one callback whose client gets a reply, also if that is an error.
pub(super) fn answer(
    entry: &'static str,
    ctx: *mut RedisModuleCtx,
    body: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    and_set_the_alarm(entry, ctx, body).unwrap_or(Err(Error::Internal))
}

/// Runs one callback that has nobody to answer to.
pub(super) fn event(entry: &'static str, ctx: *mut RedisModuleCtx, body: impl FnOnce()) {
    and_set_the_alarm(entry, ctx, body);
}

/// Runs one callback that answers with a value, and makes nothing due; `fallback` stands for it after a panic.
pub(super) fn value<T>(entry: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    caught(entry, body).unwrap_or(fallback)
}

/// A panic while the alarm is set takes nothing back: the client may have its reply already.
fn and_set_the_alarm<T>(
    entry: &'static str,
    ctx: *mut RedisModuleCtx,
    body: impl FnOnce() -> T,
) -> Option<T> {
    let outcome = caught(entry, body)?;
    if alarm::is_to_be_set() {
        caught(entry, || alarm::set(ctx));
    }
    Some(outcome)
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
            PANICS_CAUGHT.set(PANICS_CAUGHT.get().saturating_add(1));
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
