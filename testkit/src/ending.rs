//! Ends threads that run until a flag is set.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Sets the flag when it is dropped, even when a test fails. Otherwise the threads of a scope would
/// go on, and the failure would never be reported.
pub struct End<'o>(pub &'o AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
