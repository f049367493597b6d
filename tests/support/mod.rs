//! The harness: real servers, connections of our own, and ways to see what a server holds.
//!
//! ```text
//!   Server::start()                    one process, one temporary directory, one unix socket
//!     .client()                        a connection that speaks RESP2; .client_resp3() for RESP3
//!        .cmd("LOCK.INFO k")           any command, the reply as the server sent it
//!        .acquire("k", "alice", 5_000) a lock command, the reply as a Rust type
//!   Server::builder() … .start()       with configuration, a primary, another clock, no module
//!     .clients_over_tls() .password(…) what .client() does to be let in; .stranger() does not
//!   Snapshot::of(&server)              every key, value and deadline
//!   aof::lines(&server)                what a restart would replay
//!   unchanged(&server, || …)           neither of the two may differ afterwards
//! ```
//!
//! A server that died, stopped answering or logged a panic fails its test when it is dropped.

pub(crate) mod aof;
mod caller;
mod client;
pub(crate) mod clock;
pub(crate) mod crowd;
pub(crate) mod errors;
mod eventually;
pub(crate) mod module;
mod prompt;
mod replica;
mod reply;
mod seed;
mod server;
mod setup;
mod snapshot;
mod tls;
mod unchanged;
mod version;

pub(crate) use client::{Client, LockInfo, Words};
pub(crate) use clock::Clock;
pub(crate) use eventually::eventually;
pub(crate) use replica::{start_pair, wait_until_in_sync};
pub(crate) use reply::{bulk, error, field, int, strings};
pub(crate) use seed::Seed;
pub(crate) use server::Server;
pub(crate) use setup::Setup;
pub(crate) use snapshot::{Snapshot, deadline};
pub(crate) use unchanged::{assert_each_is_refused, unchanged};
pub(crate) use version::{announce, is_older_than, is_valkey_since};
pub(crate) use version::{lacks, lacks_setting, lacks_tls, misplaces_clients};
