//! What the module remembers about locks between two calls.
//!
//! The keyspace is the only state of a lock: nothing here is needed to know who holds it.

use super::blocked_client::BlockedClient;
use super::clock;
use super::ffi::main_thread::MainThread;
use leasehold_core::engine::Engine;
use leasehold_core::lock::FenceClock;

pub(super) static LOCKS: MainThread<Engine<BlockedClient>> = MainThread::new(Engine::new());

/// A copy of the fence clock, to read.
pub(super) fn fences() -> FenceClock {
    LOCKS.fences(clock::monotonic)
}

/// Lends the fence clock to `body`.
pub(super) fn with_fences<T>(body: impl FnOnce(&mut FenceClock) -> T) -> T {
    LOCKS.with_fences(clock::monotonic, body)
}
