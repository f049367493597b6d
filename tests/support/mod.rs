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

pub(crate) mod aof;
mod caller;
mod cli;
mod client;
pub(crate) mod clock;
mod cluster;
mod cluster_client;
pub(crate) mod contended;
pub(crate) mod crowd;
mod ending;
pub(crate) mod errors;
mod eventually;
mod library;
pub(crate) mod module;
mod ports;
pub(crate) mod power;
mod prompt;
mod proxy;
pub(crate) mod replica;
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
pub(crate) mod traffic;
mod unchanged;
mod version;
pub(crate) mod waiter;

pub(crate) use caller::library as caller_library;
pub(crate) use cli::{Rebalance, find as find_cli};
pub(crate) use client::{Client, LockInfo, Words};
pub(crate) use clock::Clock;
pub(crate) use cluster::{Cluster, Node, Slot, Takeover};
pub(crate) use cluster_client::ClusterClient;
pub(crate) use ending::End;
pub(crate) use eventually::eventually;
pub(crate) use ports::free_port_of_a_node;
pub(crate) use proxy::{Proxy, Way};
pub(crate) use replica::{
    fences_become_known, role_of, start_pair, wait_until_in_sync, wait_until_it_is,
};
pub(crate) use reply::{bulk, bulk_text, error, field, int, micros, strings};
pub(crate) use seed::Seed;
pub(crate) use sentinel::{Pace, Sentinels};
pub(crate) use server::{Server, UNLOAD};
pub(crate) use setup::Setup;
pub(crate) use slot_move::{SlotMove, lacks_moves_at_once};
pub(crate) use snapshot::{Snapshot, deadline};
pub(crate) use soak::{figure, short_or_long};
pub(crate) use stream::Stream;
pub(crate) use unchanged::{assert_each_is_refused, unchanged};
pub(crate) use version::{NEVER, announce, is_older_than, is_valkey_since, lacks_either};
pub(crate) use version::{
    lacks, lacks_setting, lacks_tls, misplaces_clients, server_binary, server_name,
};
pub(crate) use waiter::Waiter;
