//! Mutexes without poisoning: no code panics while it holds one, so the data is always consistent.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn locked<T>(data: &Mutex<T>) -> MutexGuard<'_, T> {
    data.lock().unwrap_or_else(PoisonError::into_inner)
}
