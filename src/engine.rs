//! What the module remembers about locks between two calls.
//!
//! The keyspace is the only state of a lock: nothing here is needed to know who holds it.

use crate::blocked_client::BlockedClient;
use crate::clock;
use crate::ffi::MainThread;
use leasehold_core::engine::Memory;
use leasehold_core::lock::FenceClock;

pub(crate) static ENGINE: MainThread<Memory<BlockedClient>> = MainThread::new(Memory::new());

/// A copy of the fence clock, to read.
pub(crate) fn fences() -> FenceClock {
    ENGINE.fences(clock::monotonic)
}

/// Lends the fence clock to `body`.
pub(crate) fn with_fences<T>(body: impl FnOnce(&mut FenceClock) -> T) -> T {
    ENGINE.with_fences(clock::monotonic, body)
}
