//! Clients of a cluster as applications have them: the library's, with its own view of the slots and its own retries.

use super::{LONG, fence};
use redis::cluster::{ClusterClient as Library, ClusterConnection};
use redis::{RedisResult, Value};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{
    Cluster, ClusterClient, SlotMove, Takeover, bulk_text, eventually, lacks, lacks_moves_at_once,
    wait_until_in_sync, wait_until_it_is,
};

/// How long it rests before it asks again. Its own default is above a second, which it waits after each TRYAGAIN.
const REST_MILLIS: u64 = 10;

/// A reply that takes longer never comes. By itself it would wait for ever.
const REPLY_DEADLINE: Duration = Duration::from_secs(20);

/// What an application notes that was told nothing.
const CLOSED: &str = "(closed)";

/// Longer than a takeover takes.
const GRANTED_BY_THEN: Duration = Duration::from_secs(15);

/// Either client, asked in the same words.
pub(super) enum Caller {
    Ours(ClusterClient),
    Library(Box<ClusterConnection>),
}

impl Caller {
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
    client_of(cluster).get_connection().unwrap()
}

fn client_of(cluster: &Cluster) -> Library {
    let ports = cluster.nodes().iter().map(|node| node.port());
    let nodes = ports.map(|port| format!("redis://127.0.0.1:{port}"));
    Library::builder(nodes)
        .min_retry_wait(REST_MILLIS)
        .max_retry_wait(REST_MILLIS)
        .response_timeout(REPLY_DEADLINE)
        .build()
        .unwrap()
}

fn ask(connection: &mut ClusterConnection, command: &str) -> RedisResult<Value> {
    let mut words = command.split(' ');
    let name = words.next().unwrap_or_default();
    redis::cmd(name).arg(words.collect::<Vec<_>>()).query(connection)
}

#[test]
fn the_client_of_a_library_finds_the_node_of_each_lock() {
    let cluster = Cluster::start();
    let mut client = library(&cluster);
    for index in 0..3 {
        let key = cluster.slot_of(index).key("k");
        let granted =
            fence(&ask(&mut client, &format!("LOCK.ACQUIRE {key} alice {LONG}")).unwrap());
        assert_eq!(cluster.node(index).client().check(&key, "alice"), Some(granted));
        let waits = ask(&mut client, &format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 1")).unwrap();
        assert_eq!(waits, Value::Nil);
        let released = ask(&mut client, &format!("LOCK.RELEASE {key} alice")).unwrap();
        assert_eq!(released, Value::Int(1));
    }
}

/// What it waits for at one node it is granted at the other, and all that time the application hears nothing.
fn is_granted_where_the_slot_goes(go: impl Fn(&Cluster, SlotMove)) {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let first = cluster.node(0).client().grant(&key, "alice", LONG);
    let mut client = library(&cluster);
    let request = format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 10000");
    let waits = thread::spawn(move || ask(&mut client, &request));
    cluster.node(0).client().wait_until_waiters(1);
    go(&cluster, SlotMove { slot: slot.number, from: 0, to: 1 });
    cluster.node(1).client().wait_until_waiters(1);
    cluster.node(0).client().wait_until_waiters(0);
    assert!(cluster.node(1).client().release(&key, "alice"));
    assert!(fence(&waits.join().unwrap().unwrap()) > first);
}

#[test]
fn the_client_of_a_library_goes_on_waiting_where_a_slot_is_moved_by_hand() {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    is_granted_where_the_slot_goes(|cluster, step| step.by_hand(cluster));
}

#[test]
fn the_client_of_a_library_goes_on_waiting_where_a_slot_is_moved_at_once() {
    if lacks_moves_at_once() {
        return;
    }
    is_granted_where_the_slot_goes(|cluster, step| step.at_once(cluster));
}

/// Asks until it gets the lock, as an application does. What it was told before, codes only, and the fence.
fn insists(client: &Library, request: &str) -> (Vec<String>, u64) {
    let mut connection = client.get_connection().unwrap();
    let mut told = Vec::new();
    let begun = Instant::now();
    loop {
        match ask(&mut connection, request) {
            Ok(granted) => return (told, fence(&granted)),
            Err(error) => told.push(error.code().unwrap_or(CLOSED).to_owned()),
        }
        assert!(begun.elapsed() < GRANTED_BY_THEN, "{told:?}");
        if told.last().is_some_and(|last| last == CLOSED) {
            // By itself it asks the one that is gone, for ever. While nobody has taken over, a new one fails too.
            thread::sleep(Duration::from_millis(REST_MILLIS));
            connection = client.get_connection().unwrap_or(connection);
        }
    }
}

/// Bob waits at node 0 until node 3 takes over, and is granted the lock there. What he was told before, codes only.
fn is_granted_after(take_over: impl FnOnce(&mut Cluster)) -> Vec<String> {
    let mut cluster = Cluster::of(3, 1);
    let key = cluster.slot_of(0).key("k");
    let first = cluster.node(0).client().grant(&key, "alice", LONG);
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    let client = client_of(&cluster);
    let request = format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 10000");
    let waits = thread::spawn(move || insists(&client, &request));
    cluster.node(0).client().wait_until_waiters(1);
    take_over(&mut cluster);
    cluster.node(3).client().wait_until_waiters(1);
    assert!(cluster.node(3).client().release(&key, "alice"));
    let (told, second) = waits.join().unwrap();
    assert!(second > first);
    told
}

#[test]
fn the_client_of_a_library_gets_its_lock_from_the_replica_that_took_over() {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    let told = is_granted_after(|cluster| cluster.take_over(3, Takeover::Agreed));
    // Redis itself says so, before the module can say what the library would heed.
    assert!(told.is_empty() || told == ["UNBLOCKED"], "{told:?}");
}

#[test]
fn the_client_of_a_library_gets_its_lock_from_the_successor_of_a_dead_primary_once_it_is_opened_anew()
 {
    if lacks((7, 0), "a cluster that answers as later ones do") {
        return;
    }
    let mut told = is_granted_after(|cluster| {
        cluster.node_mut(0).kill();
        wait_until_it_is(cluster.node(3), "master");
    });
    told.dedup();
    assert_eq!(told, [CLOSED]);
}

/// The library gives up on a reply, and asks again on the same connection: for one owner there is one grant.
#[test]
fn the_client_of_a_library_that_was_too_impatient_to_read_of_its_grant_is_told_of_it_again() {
    let cluster = Cluster::of(1, 0);
    let node = cluster.node(0);
    node.client().grant("k", "alice", LONG);
    let mut client = library(&cluster);
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let request = format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0");
    let waits = thread::spawn(move || ask(&mut client, &request));
    node.client().wait_until_waiters(1);
    let mut observer = node.client();
    eventually("it asks again, unread", || {
        let clients = bulk_text(&observer.cmd("CLIENT LIST"));
        let unread =
            |client: &&str| client.contains("cmd=lock.acquire") && !client.contains("qbuf=0");
        if clients.lines().any(|client| unread(&client)) { Ok(()) } else { Err(clients) }
    });
    assert!(observer.release("k", "alice"));
    let told = fence(&waits.join().unwrap().unwrap());
    assert_eq!(observer.check("k", "bob"), Some(told));
    assert_eq!(observer.counter("grants"), 2);
    assert!(observer.counter("retries") > 0, "it was told the first time");
}
