//! Mutexes whose data is whole whenever they are free: nothing here panics while it holds one.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn locked<T>(data: &Mutex<T>) -> MutexGuard<'_, T> {
    data.lock().unwrap_or_else(PoisonError::into_inner)
}
