//! What the module remembers of locks between two calls.
//!
//! The keyspace is the only state of a lock; nothing here is needed to know who holds one.

use super::blocked_client::BlockedClient;
use super::clock;
use super::ffi::main_thread::MainThread;
use leasehold_core::engine::Engine;
use leasehold_core::lock::FenceClock;

pub(super) static LOCKS: MainThread<Engine<BlockedClient>> = MainThread::new(Engine::new());

/// The fence clock, to look at.
pub(super) fn fences() -> FenceClock {
    LOCKS.fences(clock::monotonic)
}

/// Lends the fence clock out.
pub(super) fn with_fences<T>(body: impl FnOnce(&mut FenceClock) -> T) -> T {
    LOCKS.with_fences(clock::monotonic, body)
}
