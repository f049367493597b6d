//! The harness: real servers, connections of our own, and ways to see what a server holds.
//!
//! ```text
//!   Server::start()                    one process, one temporary directory, one unix socket
//!     .client()                        a connection that speaks RESP2; .client_resp3() for RESP3
//!        .cmd("LOCK.INFO k")           any command, the reply as the server sent it
//!        .acquire("k", "alice", 5_000) a lock command, the reply as a Rust type
//!   Server::builder() … .start()       with configuration, a primary, another clock, no module
//!     .clients_over_tls() .password(…) what .client() does to be let in; .stranger() does not
//!   Cluster::start()                   several of them, which share the keys: see `cluster.rs`
//!   Sentinels::start()                 several of them, with sentinels: see `sentinel.rs`
//!   Traffic::on(&server, …)           pipelined clients in the background: see `traffic.rs`
//!   Proxy::to(server.port())           a link that can be cut: see `proxy.rs`
//!   Snapshot::of(&server)              every key, value and deadline
//!   power::fail(&mut server)           kills it, and takes what was not forced to disk
//!   aof::lines(&server)                what a restart would replay
//!   Stream::of(&server)                what replicas are told
//!   unchanged(&server, || …)           neither of the two may differ afterwards
//! ```
//!
//! A server that died, stopped answering or logged a panic fails its test when it is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::undocumented_unsafe_blocks,
    reason = "a test stops at the first surprise"
)]

pub mod aof;
mod caller;
mod cli;
mod client;
pub mod clock;
mod cluster;
mod cluster_client;
pub mod contended;
pub mod crowd;
mod ending;
pub mod errors;
mod eventually;
mod library;
pub mod module;
mod ports;
pub mod power;
mod prompt;
mod proxy;
pub mod replica;
mod reply;
mod seed;
mod sentinel;
mod server;
mod setup;
mod slot_move;
mod snapshot;
mod soak;
mod stream;
mod tls;
pub mod traffic;
mod unchanged;
mod version;
pub mod waiter;

pub use caller::library as caller_library;
pub use cli::{Rebalance, find as find_cli};
pub use client::{Client, LockInfo, Words};
pub use clock::Clock;
pub use cluster::{Cluster, Node, Slot, Takeover};
pub use cluster_client::ClusterClient;
pub use ending::End;
pub use eventually::eventually;
pub use ports::free_port_of_a_node;
pub use proxy::{Proxy, Way};
pub use replica::{fences_become_known, role_of, start_pair, wait_until_in_sync, wait_until_it_is};
pub use reply::{bulk, bulk_text, error, field, int, micros, strings};
pub use seed::Seed;
pub use sentinel::{Pace, Sentinels};
pub use server::{Crash, Server, UNLOAD};
pub use setup::Setup;
pub use slot_move::{SlotMove, lacks_moves_at_once};
pub use snapshot::{Snapshot, deadline};
pub use soak::{figure, short_or_long};
pub use stream::Stream;
pub use unchanged::{assert_each_is_refused, unchanged};
pub use version::{NEVER, announce, is_older_than, is_valkey_since, lacks_either};
pub use version::{lacks, lacks_setting, lacks_tls, misplaces_clients, server_binary, server_name};
pub use waiter::Waiter;
