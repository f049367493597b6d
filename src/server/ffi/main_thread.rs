//! What the module remembers between two calls of the server.

use std::ops::Deref;

/// A static that only the server's main thread uses. Each file owns those that it needs.
pub(crate) struct MainThread<T>(T);

impl<T> MainThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }
}

// SAFETY: the server calls every entry of a module on its main thread (with io-threads too: those read and write sockets,
// they do not execute commands), and the module starts no thread. A forked child has its own copy.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> Deref for MainThread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
