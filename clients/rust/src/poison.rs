//! The poison of the standard library's `Mutex`, which nothing here cares for.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread that panicked while it held the lock stops no other thread.
pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
