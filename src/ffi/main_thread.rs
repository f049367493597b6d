//! State of the module between two calls of the server.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A static that only the server's main thread uses. Each file has its own.
pub(crate) struct MainThread<T>(T);

impl<T> MainThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }
}

// SAFETY: the server calls every entry of the module on its main thread, and the module starts no thread. I/O threads
// read and write sockets, and execute no commands. Servers that would ask for keys in such threads are not given the
// chance: see `asks_for_keys_in_threads`. A forked child has its own copy. There is one exception: a crash report is
// written by the thread that crashed. Its callback asks `is_current` before it reads anything.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> Deref for MainThread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

static MAIN: AtomicUsize = AtomicUsize::new(0);

/// The thread that loads the module is the main thread.
pub(crate) fn remember() {
    MAIN.store(current(), Ordering::Relaxed);
}

/// Whether this is the main thread. Safe to call in a signal handler.
pub(crate) fn is_current() -> bool {
    MAIN.load(Ordering::Relaxed) == current()
}

#[expect(
    clippy::as_conversions,
    reason = "a pointer on some systems, and a number of its size on others"
)]
fn current() -> usize {
    // SAFETY: takes no arguments, and never fails.
    let thread = unsafe { libc::pthread_self() };
    thread as usize
}
