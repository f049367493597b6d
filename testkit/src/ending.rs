//! Threads that work until they are told to end.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Says when it is dropped that it is over, also where a test fails: the threads of a scope would work on otherwise,
/// and nobody would hear of the failure.
pub struct End<'o>(pub &'o AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
