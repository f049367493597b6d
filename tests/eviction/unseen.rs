//! Locks that the module has not seen before the server evicts them, because they did not come by a command of its
//! own.

use super::{EVICT, LONG, evict_and, evicting, is_back, tells_too_late};
use redis::Value;
use testkit::{
    Client, Cluster, Server, SlotMove, becomes, bulk, deadline, start_pair, wait_until_in_sync,
    wait_until_it_is,
};

/// Alice's lock `k` is here and is evicted: it is still hers.
#[track_caller]
fn stays_held(client: &mut Client, key: &str, fence: u64) {
    let end = deadline(client, key.as_bytes());
    let gone = evict_and(client, &[&format!("GET {key}")]);
    assert_eq!(gone, [Value::Nil], "it was not evicted");
    is_back(client, key);
    assert_eq!(client.cmd(["GET", key]), bulk(format!("{fence}:alice")));
    assert_eq!(deadline(client, key.as_bytes()), end);
    assert_eq!(client.check(key, "alice"), Some(fence));
    assert_eq!(client.acquire(key, "bob", LONG), None);
}

/// Valkey 8.1 and 9.0 do not let the module see what their primaries grant, or what they load from a file of commands.
#[test]
fn a_lock_from_elsewhere_is_held_after_its_eviction() {
    if tells_too_late() {
        return;
    }
    let (primary, replica) = start_pair(Server::builder(), evicting("volatile-ttl"));
    let fence = primary.client().grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    replica.promote();
    wait_until_it_is(&replica, "master");
    stays_held(&mut replica.client(), "k", fence);

    let Value::BulkString(dump) = primary.cmd("DUMP k") else { panic!("no dump") };
    let server = evicting("volatile-ttl").start();
    let mut client = server.client();
    assert_eq!(client.cmd([b"RESTORE", &b"k"[..], b"60000", &dump]), Value::Okay);
    stays_held(&mut client, "k", fence);

    let server = evicting("volatile-ttl").without_module().start();
    let mut client = server.client();
    client.cmd(format!("SET k {fence}:alice PX {LONG}"));
    server.load(&[]);
    stays_held(&mut client, "k", fence);

    let mut server = evicting("volatile-ttl").aof().start();
    let fence = server.client().grant("k", "alice", LONG);
    server.kill();
    server.start_again();
    stays_held(&mut server.client(), "k", fence);
}

#[test]
fn a_lock_that_came_with_its_slot_is_held_after_its_eviction() {
    if tells_too_late() {
        return;
    }
    let cluster = Cluster::with(2, 0, |_, setup| setup.config("maxmemory-policy", "volatile-ttl"));
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let fence = cluster.node(0).client().grant(&key, "alice", LONG);
    SlotMove { slot: slot.number, from: 0, to: 1 }.by_hand(&cluster);
    stays_held(&mut cluster.node(1).client(), &key, fence);
}

#[test]
fn keys_that_are_no_locks_stay_evicted() {
    if tells_too_late() {
        return;
    }
    let server = evicting("allkeys-lru").start();
    let mut client = server.client();
    let others = ["SET a 1", "SET b x PX 60000", "SET c 12345:alice", "RPUSH d 1795233601234567:e"];
    client.pipeline(&others);
    client.pipeline(&EVICT);
    becomes("all are evicted", Value::Int(0), || client.cmd("DBSIZE"));
    assert_eq!(client.counter("evictions_pending"), 0);
    assert_eq!(client.counter("evictions_restored"), 0);
}
