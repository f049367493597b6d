//! Leasehold: locks as native commands for Redis and Valkey.
//!
//! This crate is the module, which hosts the core on a real server. Start reading at `core/src/lib.rs`, which says
//! what a lock is; then at the table below, which says when the server calls the module.
//!
//! ```text
//!   server         what the server tells the module as a whole
//!   commands       what a client sends, and the reply
//!   clients        who waits, and on which connection; the host of the engine
//!   keys           one key: opened, changed, watched, evicted, applied from elsewhere
//!   cluster        slots that come and go
//!   replication    who is told of changes; the fence clock, which is told to others
//!   files beside   clock, engine, timer, guard, …: what all of the above need
//!   ffi            the server's functions; knows nothing of locks
//! ```
//! Imports go down these lines, never up, and no files import each other in a circle. All but `ffi` import
//! `leasehold-core`: what a lock is, and in which order things happen, without Redis, clock and randomness.
//!
//! The server calls the module on its main thread, one call at a time, at these places:
//!
//! | the server                           | calls                     | which |
//! |--------------------------------------|---------------------------|-------------------------------------|
//! | loads the module, or is asked to unload it | `load::*`           | registers all the others, or refuses |
//! | gets a command                       | `entry::*`                | parse, let the engine decide, reply |
//! | wants to know which keys a `LOCK.GUARD` names | `getkeys::have_been_told` | tells the keys of the command behind it |
//! | gets a command, while somebody waits or in a cluster | `command_filter::filter` | suspects locks, sees slots move |
//! | is about to execute what the module calls | `command_filter::called` | checks that it is the right command |
//! | has the held-back reply of a guarded command | `held_reply::kept` | passes it on |
//! | accepts a replica                    | `fence_clock::joined`     | broadcasts the fence clock |
//! | forks, e.g. to rewrite a file        | `fence_clock::forked`     | broadcasts the fence clock |
//! | saves its data                       | `listeners::saving`       | tells every change from then on |
//! | moves slots at once                  | `slots::moved_at_once`    | lifts the fence clock, marks all |
//! | closes a connection, once a hold was bound to one | `connections::changed` | ends bound holds |
//! | evicts a key                         | `eviction::unlinked`, on older servers `eviction::evicted` | keeps a held lock |
//! | applies grants of other servers      | `fence_observer::key_event` | learns fences |
//! | flushes or swaps databases           | `flushes::*`              | marks contended locks |
//! | reaches the moment of the timer      | `cron::ring`              | settles locks, ends patience, rewrites evicted locks |
//! | sends a waiter its reply, or loses it | `wait::*`                | replies, leaves the queue, frees |
//! | changes its role                     | `lifecycle::role_changed` | lifts the fence clock, sends waiters away |
//! | loads its data                       | `lifecycle::loading`      | lifts the fence clock at the end |
//! | is about to end                      | `lifecycle::shutdown`     | allows an unload |
//! | answers INFO                         | `info::section`           |  |
//! | reads, sets or changes configuration | `config::*`, `settings::changed` |  |
//!
//! Each callback runs inside [`guard`], which stops panics, and at the end sets the timer if the call has changed what
//! is due next. Each file owns its state between two calls, as a [`MainThread`](ffi::main_thread::MainThread).
//!
//! Functions of the server are called through [`ffi::api::api!`]. One .so serves every server, so any function may be
//! missing. The indispensable ones are checked once, at load.

mod authority;
mod blocked_client;
mod clients;
mod clock;
mod cluster;
mod commands;
mod config;
mod engine;
mod ffi;
mod guard;
mod keys;
mod replication;
mod reply;
mod server;
mod throttle;
mod timer;

/// Allocates from the server, so that `used_memory` and `maxmemory` count the module's memory. Unit tests run without
/// a server and use the system's allocator.
#[cfg(not(test))]
#[global_allocator]
static MEMORY: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;
