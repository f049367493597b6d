//! Eviction: a lock that is held and waited for is put back when the server evicts it, not given away.

use super::play;
use super::{LONG, Waiter};
use redis::Value;
use testkit::{Client, Server, Setup, becomes, deadline, eventually, lacks};

/// A server that evicts keys with an expiry when it is short of memory.
fn evicting() -> Setup {
    Server::builder().config("maxmemory-policy", "volatile-lru").aof()
}

/// Takes the memory away until the server has evicted something, and gives it back.
pub(crate) fn evict(client: &mut Client) {
    let evicted = |client: &mut Client| -> u64 { client.info_number("stats", "evicted_keys") };
    let before = evicted(client);
    client.cmd("CONFIG SET maxmemory 1");
    eventually("a key is evicted", || {
        // A command that may need memory makes the server look for some.
        client.cmd("SET filler x");
        if evicted(client) > before { Ok(()) } else { Err(before) }
    });
    client.cmd("CONFIG SET maxmemory 0");
}

/// The commands tell of a lock that was evicted before it is back in its key.
fn wait_until_restored(client: &mut Client) {
    becomes("the lock is restored", Value::Int(1), || client.cmd("EXISTS k"));
}

/// Also one of another client.
#[test]
fn an_evicted_lock_that_somebody_waits_for_is_restored_and_not_granted() {
    for (owner, request) in
        [("alice", "LOCK.ACQUIRE k alice 60000"), ("uuid", "SET k uuid PX 60000")]
    {
        let server = evicting().start();
        let mut client = server.client();
        client.cmd(request);
        let (value, end) = (client.cmd("GET k"), deadline(&mut client, b"k"));
        let mut bob = Waiter::of(&server, "k", "bob");
        assert_eq!(client.counter("evictions_restored"), 0);
        evict(&mut client);
        wait_until_restored(&mut client);
        assert_eq!(client.cmd("GET k"), value, "the same grant");
        assert_eq!(deadline(&mut client, b"k"), end, "for what is left of the lease");
        bob.assert_waits(&server);
        assert_ne!(client.counter("evictions_restored"), 0);
        assert!(client.release("k", owner));
        bob.fence();
    }
}

/// How often the log warns that locks may be evicted.
fn warnings(server: &Server) -> usize {
    server.log().matches("may evict locks that are held").count()
}

#[test]
fn the_log_warns_once_at_load_and_at_each_change_to_a_policy_that_evicts() {
    for (policy, warned) in [("noeviction", 0), ("volatile-ttl", 1), ("allkeys-lru", 1)] {
        let server = Server::builder().config("maxmemory-policy", policy).start();
        assert_eq!(warnings(&server), warned, "{policy}");
        server.client().grant("k", "alice", LONG);
        let _bob = Waiter::of(&server, "k", "bob");
        assert_eq!(warnings(&server), warned, "{policy}: and not again");
        if lacks((7, 0), "to be told of a change of the configuration") {
            continue;
        }
        for (setting, warns) in
            [("hz 50", 0), ("maxmemory-policy noeviction", 0), ("maxmemory-policy volatile-lru", 1)]
        {
            let before = warnings(&server);
            assert_eq!(server.cmd(format!("CONFIG SET {setting}")), Value::Okay);
            assert_eq!(warnings(&server), before + warns, "{policy}, then {setting}");
        }
    }
}

#[test]
fn where_memory_is_out_a_wait_is_refused_and_waiters_are_granted_all_the_same() {
    play(
        Server::builder,
        "# out of memory
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
        CONFIG SET maxmemory 1 -> OK
        LOCK.ACQUIRE k dave 60000 BLOCK 0 -> -OOM
        LOCK.WAITERS k -> bob carol
        LOCK.RELEASE k alice -> 1
        bob: -> B
        LOCK.RELEASE k bob -> 1
        carol: -> C",
    );
}
