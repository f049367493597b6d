//! Clients of a cluster as applications have them: the library's, with its own view of the slots and its own retries.

use super::{LONG, fence};
use redis::cluster::{ClusterClient as Library, ClusterConnection};
use redis::{RedisResult, Value};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Cluster, ClusterClient, SlotMove, lacks};

/// How long it rests before it asks again. Its own default is above a second, which it waits after each TRYAGAIN.
const REST_MILLIS: u64 = 10;

/// A reply that takes longer never comes. By itself it would wait for ever.
const REPLY_DEADLINE: Duration = Duration::from_secs(20);

/// Either client, asked in the same words.
pub(super) enum Caller {
    Ours(ClusterClient),
    Library(Box<ClusterConnection>),
}

impl Caller {
    /// The error replies that it was told on its way; a library keeps them to itself.
    pub(super) fn detours(&self) -> &[String] {
        match self {
            Self::Ours(client) => &client.detours,
            Self::Library(_) => &[],
        }
    }

    /// The reply, and when it was asked for, or earlier.
    pub(super) fn cmd(&mut self, command: &str) -> (Instant, Value) {
        match self {
            Self::Ours(client) => {
                let reply = client.cmd(command);
                (client.asked, reply)
            }
            Self::Library(connection) => {
                let asked = Instant::now();
                let reply = ask(connection, command);
                (asked, reply.unwrap_or_else(|error| panic!("{command}: {error}")))
            }
        }
    }
}

pub(super) fn library(cluster: &Cluster) -> ClusterConnection {
    let ports = cluster.nodes().iter().map(|node| node.port());
    let nodes = ports.map(|port| format!("redis://127.0.0.1:{port}"));
    Library::builder(nodes)
        .min_retry_wait(REST_MILLIS)
        .max_retry_wait(REST_MILLIS)
        .response_timeout(REPLY_DEADLINE)
        .build()
        .unwrap()
        .get_connection()
        .unwrap()
}

fn ask(connection: &mut ClusterConnection, command: &str) -> RedisResult<Value> {
    let mut words = command.split(' ');
    let name = words.next().unwrap_or_default();
    redis::cmd(name).arg(words.collect::<Vec<_>>()).query(connection)
}

/// What it waits for at one node it is granted at the other, and all that time the application hears nothing.
fn is_granted_where_the_slot_goes(moves: fn(SlotMove, &Cluster)) {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let first = cluster.node(0).client().grant(&key, "alice", LONG);
    let mut client = library(&cluster);
    let request = format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 10000");
    let waits = thread::spawn(move || ask(&mut client, &request));
    cluster.node(0).client().wait_until_waiters(1);
    moves(SlotMove { slot: slot.number, from: 0, to: 1 }, &cluster);
    cluster.node(1).client().wait_until_waiters(1);
    cluster.node(0).client().wait_until_waiters(0);
    assert!(cluster.node(1).client().release(&key, "alice"));
    assert!(fence(&waits.join().unwrap().unwrap()) > first);
}

#[test]
fn the_client_of_a_library_goes_on_waiting_where_a_slot_is_moved() {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    SlotMove::ways().for_each(is_granted_where_the_slot_goes);
}
