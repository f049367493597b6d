//! The panic barrier. Every function that the server calls begins here.
//!
//! A panic that leaves an `extern "C"` function would abort the server, with everybody's data (L6). Here it becomes
//! `-ERR internal error` if there is a client, a line in the log, and a count in INFO. Decisions are pure and come
//! before the first change to the keyspace, so a call that panics has changed nothing or everything.
//!
//! The barrier also sets the [timer], if the call has changed what is due next.
//!
//! A debug build can be told to panic at an entry, by the entry's name: `LEASEHOLD_PANIC_AT=lock.acquire`.

use crate::ffi::{Ctx, MainThread, log};
use crate::timer;
use leasehold_core::command::Error;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

thread_local! {
    /// The message and place of the last panic, kept by the hook until the guard logs it.
    static LAST_WORDS: Cell<String> = const { Cell::new(String::new()) };
}

static PANICS_CAUGHT: MainThread<Cell<u64>> = MainThread::new(Cell::new(0));

pub(crate) fn panics_caught() -> u64 {
    PANICS_CAUGHT.get()
}

/// Runs a callback whose client gets a reply, even if the reply is an error.
pub(crate) fn answer(
    entry: &'static str,
    ctx: Ctx,
    body: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    and_set_the_alarm(entry, ctx, body).unwrap_or(Err(Error::Internal))
}

/// Runs a callback that has no one to reply to.
pub(crate) fn event(entry: &'static str, ctx: Ctx, body: impl FnOnce()) {
    and_set_the_alarm(entry, ctx, body);
}

/// Runs a callback that returns a value and changes nothing that is due. After a panic it returns `fallback`.
pub(crate) fn value<T>(entry: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    caught(entry, body).unwrap_or(fallback)
}

/// A panic while setting the alarm does not change the result: the client may have its reply already.
fn and_set_the_alarm<T>(entry: &'static str, ctx: Ctx, body: impl FnOnce() -> T) -> Option<T> {
    let outcome = caught(entry, body)?;
    if timer::is_to_be_set() {
        caught(entry, || timer::set(ctx));
    }
    Some(outcome)
}

/// Keeps panic messages for the log. The default hook writes to standard error.
pub(crate) fn listen_to_panics() {
    std::panic::set_hook(Box::new(|panic| LAST_WORDS.set(panic.to_string())));
}

pub(crate) fn stop_listening() {
    drop(std::panic::take_hook());
}

fn caught<T>(entry: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    // No state is left half-changed behind the barrier: the state is a few cells, each set as a whole.
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

/// A panic on demand, in debug builds only. The tests use it to show that every entry survives a panic.
#[cfg(debug_assertions)]
mod injected {
    use std::sync::OnceLock;

    static ENTRY: OnceLock<Option<String>> = OnceLock::new();

    #[expect(clippy::panic, reason = "what it is for")]
    pub(crate) fn panic_if_told(entry: &str) {
        let told = ENTRY.get_or_init(|| std::env::var("LEASEHOLD_PANIC_AT").ok());
        if told.as_deref() == Some(entry) {
            panic!("told to");
        }
    }
}
