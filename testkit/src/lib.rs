//! The harness: real servers, connections, and ways to see what a server holds.
//!
//! ```text
//!   Server::start()                    one process, one temporary directory, one unix socket
//!     .client()                        a connection that speaks RESP2; .client_resp3() for RESP3
//!        .cmd("LOCK.INFO k")           any command, the reply as the server sent it
//!        .acquire("k", "alice", 5_000) a lock command, the reply as a Rust type
//!     .line_client()                   a connection without a parser: see `line_client.rs`
//!   Server::builder() … .start()       with configuration, a primary, another clock, no module
//!     .clients_over_tls() .password(…) how .client() connects; .stranger() gives no password
//!   Cluster::start()                   servers that share the keys: see `cluster.rs`
//!   Sentinels::start()                 a primary, replicas and sentinels: see `sentinel.rs`
//!   Traffic::on(&server, …)            pipelined clients in the background: see `traffic.rs`
//!   Proxy::to(server.port())           a link that can be cut: see `proxy.rs`
//!   Snapshot::of(&server)              every key, value and deadline
//!   power::fail(&mut server)           kills it, and drops what was not forced to disk
//!   aof::lines(&server)                what a restart would replay
//!   ReplicationStream::of(&server)     what replicas receive
//!   unchanged(&server, || …)           checks that neither data nor file changes
//!   Stopwatch::start()                 time in which this machine ran, for short bounds
//! ```
//!
//! A server that died, stopped answering or logged a panic fails its test when the server is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a test stops at the first surprise"
)]

pub mod aof;
mod cli;
mod client;
pub mod clock;
mod cluster;
mod cluster_client;
mod command_reader;
pub mod contended;
pub mod crowd;
mod ending;
pub mod errors;
mod eventually;
mod library;
mod line_client;
pub mod module;
mod ports;
pub mod power;
mod proxy;
pub mod replica;
mod replication_stream;
mod reply;
mod request;
mod seed;
mod sentinel;
mod server;
mod session;
mod setup;
mod signal;
mod slot_move;
mod snapshot;
mod soak;
mod stopwatch;
mod terminal;
mod tls;
pub mod traffic;
mod transport;
mod unchanged;
mod version;
pub mod waiter;
mod wall_clock;

pub use cli::{Rebalance, find as find_cli};
pub use client::{Client, LockInfo};
pub use clock::Clock;
pub use cluster::{Cluster, Node, Slot, Takeover};
pub use cluster_client::ClusterClient;
pub use ending::End;
pub use eventually::{PATIENCE, becomes, eventually, until};
pub use library::CALLER;
pub use line_client::LineClient;
pub use ports::{free_port, free_port_of_a_node};
pub use proxy::{Proxy, Way};
pub use replica::{fences_become_known, role_of, start_pair, wait_until_in_sync, wait_until_it_is};
pub use replication_stream::ReplicationStream;
pub use reply::{bulk, bulk_text, code, error, field, int, items, micros, number, strings};
pub use request::{Words, encoded};
pub use seed::Seed;
pub use sentinel::{Pace, Sentinels};
pub use server::{Crash, Server, UNLOAD};
pub use session::{Row, Session, stories};
pub use setup::Setup;
pub use signal::signal;
pub use slot_move::{SlotMove, lacks_moves_at_once};
pub use snapshot::{Snapshot, deadline};
pub use soak::{figure, short_or_long};
pub use stopwatch::Stopwatch;
pub use terminal::Terminal;
pub use unchanged::{assert_each_is_refused, unchanged};
pub use version::{
    NEVER, announce, full_version, is_older_than, is_valkey_since, lacks_either,
    may_crash_when_a_paused_client_is_unblocked,
};
pub use version::{
    lacks, lacks_notify, lacks_setting, lacks_settings, lacks_tls, lacks_vector_sets,
    misplaces_clients, server_binary, server_name,
};
pub use waiter::Waiter;
pub use wall_clock::{today, unix_micros};
