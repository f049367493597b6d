//! Leasehold: locks as native commands for Redis and Valkey.
//!
//! A lock is a lease on a key: it has one holder, an end, and a fence, a number that only ever grows.
//! Start reading at [`lock`], which says what must hold, then at one page of `command`.
//!
//! ```text
//!    lib        the modules, and the allocator
//!     │
//!   server      everything that touches Redis; the only folder with unsafe code
//!     │    ├──────────┬────────────┐
//!   command        observe      cluster     bytes in, reply out │ what an operator sees │ slots
//!     │               │
//!   lock ─────────────┘         the domain: no Redis, no clock, no randomness
//! ```
//! Imports go down these lines, never up.

#[forbid(unsafe_code)]
mod cluster;
#[forbid(unsafe_code)]
mod command;
#[forbid(unsafe_code)]
mod lock;
#[forbid(unsafe_code)]
mod observe;
#[forbid(unsafe_code)]
mod plant;
mod server;

/// Memory comes from the server, so that `used_memory` and `maxmemory` see it. Unit tests run without
/// a server and keep the system's allocator.
#[cfg(not(test))]
#[global_allocator]
static MEMORY: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;
