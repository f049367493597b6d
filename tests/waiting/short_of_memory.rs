//! Eviction: a lock that is held and waited for is put back when the server evicts it, not given away.

use super::{LONG, Waiter, owners};
use redis::Value;
use testkit::{
    Client, Server, Setup, Snapshot, bulk, deadline, eventually, lacks, start_pair,
    wait_until_in_sync,
};

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
    eventually("the lock is restored", || match client.cmd("EXISTS k") {
        Value::Int(1) => Ok(()),
        other => Err(other),
    });
}

#[test]
fn an_evicted_lock_that_somebody_waits_for_is_restored_and_not_granted() {
    let server = evicting().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let end = deadline(&mut client, b"k");
    let mut bob = Waiter::of(&server, "k", "bob");
    assert_eq!(client.counter("evictions_restored"), 0);
    evict(&mut client);
    wait_until_restored(&mut client);
    assert_eq!(client.cmd("GET k"), bulk(format!("{fence}:alice")), "the same grant");
    assert_eq!(deadline(&mut client, b"k"), end, "for what is left of the lease");
    bob.assert_waits(&server);
    assert_ne!(client.counter("evictions_restored"), 0);
    assert!(client.release("k", "alice"));
    bob.fence();
}

#[test]
fn a_restored_lock_ends_when_it_would_have_ended() {
    let server = evicting().module_args("fence-margin 0").start();
    let mut client = server.client();
    client.grant("k", "alice", 500);
    let end = deadline(&mut client, b"k");
    let mut bob = Waiter::of(&server, "k", "bob");
    evict(&mut client);
    let granted = super::granted_at(bob.fence());
    assert!((end..end + 500).contains(&granted), "granted at {granted}, the lease ended at {end}");
}

#[test]
fn a_foreign_lock_and_each_new_grant_are_restored_too() {
    let server = evicting().start();
    let mut client = server.client();
    client.cmd("SET k stranger PX 60000");
    let mut bob = Waiter::of(&server, "k", "bob");
    let carol = Waiter::of(&server, "k", "carol");
    evict(&mut client);
    wait_until_restored(&mut client);
    assert_eq!(client.cmd("GET k"), bulk("stranger"));
    assert!(client.release("k", "stranger"));
    let fence = bob.fence();
    evict(&mut client);
    wait_until_restored(&mut client);
    assert_eq!(client.check("k", "bob"), Some(fence));
    assert_eq!(owners(&server, "k"), ["carol"]);
    carol.assert_waits(&server);
}

#[test]
fn a_lock_that_is_deleted_after_it_was_restored_is_handed_on() {
    let server = evicting().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    evict(&mut client);
    wait_until_restored(&mut client);
    client.cmd("DEL k");
    bob.fence();
}

#[test]
fn a_lock_that_was_evicted_in_a_pause_is_restored_after_it() {
    let server = evicting().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.pipeline(&["CONFIG SET maxmemory 1", "SET filler x", "CLIENT PAUSE 60000 WRITE"]);
    client.pipeline(&["CONFIG SET maxmemory 0", "CLIENT UNPAUSE"]);
    eventually("the lock is there", || client.info("k").ok_or(()));
    bob.assert_waits(&server);
    assert!(client.release("k", "alice"));
    bob.fence();
}

#[test]
fn the_replica_and_the_file_have_the_restored_lock() {
    let (mut primary, replica) = start_pair(evicting(), Server::builder());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    let _bob = Waiter::of(&primary, "k", "bob");
    evict(&mut client);
    wait_until_restored(&mut client);
    client.cmd("DEL filler");
    wait_until_in_sync(&primary, &replica);
    let live = Snapshot::of(&primary);
    assert_eq!(live.size(), 1);
    assert_eq!(Snapshot::of(&replica), live);
    primary.kill();
    primary.start_again();
    assert_eq!(Snapshot::of(&primary), live);
}

#[test]
fn waiters_that_use_up_the_memory_do_not_make_the_server_give_their_lock_away() {
    // Every waiter costs the server some memory of its own, for which it evicts what it can.
    let server = evicting().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    let used: u64 = client.info_number("memory", "used_memory");
    client.cmd(format!("CONFIG SET maxmemory {}", used + 1_000_000));
    let mut queued = Vec::new();
    for number in 0..200 {
        let mut waiter = server.client();
        waiter.send(format!("LOCK.ACQUIRE k w{number} 60000 BLOCK 0"));
        queued.push(waiter);
    }
    eventually("the server is short of memory", || match client.counter("evictions_restored") {
        0 => {
            client.cmd("SET filler x");
            Err(())
        }
        _ => Ok(()),
    });
    // It has nothing else to evict, so it takes no more in.
    let Value::ServerError(told) = client.cmd("LOCK.ACQUIRE k late 60000 BLOCK 0") else {
        panic!("not refused")
    };
    assert_eq!(told.code(), "OOM");
    client.cmd("CONFIG SET maxmemory 0");
    eventually("the lock is there", || client.info("k").ok_or(()));
    assert_eq!(client.check("k", "alice"), Some(fence));
    assert_eq!(owners(&server, "k")[0], "bob");
    bob.assert_waits(&server);
}

#[test]
fn a_lock_is_not_evicted_and_restored_over_and_over_for_one_command() {
    let server = evicting().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let _bob = Waiter::of(&server, "k", "bob");
    client.cmd("CONFIG SET maxmemory 1");
    let commands = 20;
    for _ in 0..commands {
        client.cmd("SET filler x");
    }
    client.cmd("CONFIG SET maxmemory 0");
    let restored = client.counter("evictions_restored");
    assert!(restored > 0, "nothing was evicted");
    // Each is told to replicas and the append-only file, twice.
    assert!(restored <= commands * 5, "{restored} times for {commands} commands");
}

/// How often the log warns that locks may be evicted.
fn warnings(server: &Server) -> usize {
    server.log().matches("may evict locks that are held").count()
}

#[test]
fn the_log_warns_once_at_load_if_the_policy_evicts() {
    for (policy, warned) in [("noeviction", 0), ("volatile-ttl", 1), ("allkeys-lru", 1)] {
        let server = Server::builder().config("maxmemory-policy", policy).start();
        assert_eq!(warnings(&server), warned, "{policy}");
        server.client().grant("k", "alice", LONG);
        let _bob = Waiter::of(&server, "k", "bob");
        assert_eq!(warnings(&server), warned, "{policy}: and not again");
    }
}

#[test]
fn the_log_warns_once_when_the_policy_is_changed_to_one_that_evicts() {
    if lacks((7, 0), "to be told of a change of the configuration") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.cmd("CONFIG SET maxmemory-policy volatile-lru"), Value::Okay);
    assert_eq!(warnings(&server), 1);
    client.cmd("CONFIG SET maxmemory 0");
    client.cmd("CONFIG SET hz 50");
    assert_eq!(warnings(&server), 1, "other settings do not matter");
    client.cmd("CONFIG SET maxmemory-policy noeviction");
    assert_eq!(warnings(&server), 1, "this one keeps locks");
    client.cmd("CONFIG SET maxmemory-policy allkeys-random");
    assert_eq!(warnings(&server), 2);
}

#[test]
fn where_memory_is_out_a_wait_is_refused_and_waiters_are_granted_all_the_same() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 50 BLOCK 0");
    client.cmd("CONFIG SET maxmemory 1");
    let Value::ServerError(told) = client.cmd("LOCK.ACQUIRE k dave 60000 BLOCK 0") else {
        panic!("not refused")
    };
    assert_eq!(told.code(), "OOM");
    assert_eq!(owners(&server, "k"), ["bob", "carol"]);
    assert!(client.release("k", "alice"));
    bob.fence();
    assert!(client.release("k", "bob"));
    carol.fence();
}
