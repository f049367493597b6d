//! Leasehold: locks as native commands for Redis and Valkey.
//!
//! This crate is the module, which hosts the core on a real server. Start reading at `core/src/lib.rs`, which says
//! what a lock is; then at `server/mod.rs`, which says when the server calls the module.
//!
//! ```text
//!    lib        the allocator
//!     │
//!   server      everything that touches Redis; the only folder with unsafe code
//!     │
//!   leasehold-core    what a lock is, and in which order things happen: no Redis, no clock, no randomness
//! ```
//! Imports go down these lines, never up.

mod server;

/// Allocates from the server, so that `used_memory` and `maxmemory` count the module's memory. Unit tests run without
/// a server and use the system's allocator.
#[cfg(not(test))]
#[global_allocator]
static MEMORY: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;
