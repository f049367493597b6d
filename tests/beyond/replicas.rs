//! What replicas say of locks.

use super::LONG;
use redis::Value;
use testkit::{
    Client, Proxy, Server, Snapshot, Waiter, Way, becomes, deadline, error, start_pair,
    wait_until_in_sync,
};

const READONLY: &str = "READONLY You can't write against a read only replica.";

/// What changes a lock, and waiting for it.
const CHANGES: [&str; 5] = [
    "LOCK.ACQUIRE free bob 60000",
    "LOCK.ACQUIRE k alice 90000",
    "LOCK.ACQUIRE k carol 60000 BLOCK 0",
    "LOCK.RELEASE k alice",
    "LOCK.EXTEND k alice 90000",
];

fn empty() -> Value {
    Value::Array(Vec::new())
}

/// What a replica says of a lock that the primary gave to alice, and for which somebody waits there.
#[track_caller]
fn assert_tells_of_alice(client: &mut Client, primary: &mut Client, key: &str) {
    let there = primary.info(key).unwrap();
    let here = client.info(key).unwrap();
    assert_eq!(
        (here.owner, here.fence, here.deadline),
        (b"alice".into(), there.fence, there.deadline)
    );
    assert!((1..=there.ttl).contains(&here.ttl), "{} of {}", here.ttl, there.ttl);
    assert_eq!((there.waiters, here.waiters), (1, 0));
    assert_eq!(client.cmd(format!("LOCK.WAITERS {key}")), empty());
    assert_eq!(client.check(key, "alice"), Some(there.fence));
    assert_eq!(client.check(key, "bob"), None);
}

/// What it says of itself: nothing that happened at its primary.
#[track_caller]
fn assert_tells_of_itself(client: &mut Client) {
    assert_eq!(client.cmd("LOCK.TOP"), empty());
    assert_eq!(client.cmd("LOCK.LOG"), empty());
    for counter in ["held", "waiters", "grants"] {
        assert_eq!(client.counter(counter), 0, "{counter}");
    }
}

#[test]
fn a_replica_tells_who_holds_a_lock_and_nothing_of_who_waits() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    primary.client().grant("k", "alice", LONG);
    let _bob = Waiter::of(&primary, "k", "bob");
    wait_until_in_sync(&primary, &replica);
    let (mut client, before) = (replica.client(), Snapshot::of(&replica));
    assert_tells_of_alice(&mut client, &mut primary.client(), "k");
    assert_eq!(client.info("free"), None);
    assert_tells_of_itself(&mut client);
    for change in CHANGES {
        assert_eq!(client.cmd(change), error(READONLY), "{change}");
    }
    assert_eq!(Snapshot::of(&replica), before);
}

/// The lease has run out, and the primary, which alone deletes keys, has not said so.
fn is_free_although_its_key_is_there(replica: &Server, deadline: i64) {
    let mut client = replica.client();
    // Long enough for the primary to have said so, if it could.
    client.wait_until_past(deadline + 200);
    assert_eq!(client.cmd("GET k"), Value::Nil);
    assert_eq!(client.cmd("DBSIZE"), Value::Int(1), "its key is in memory");
    assert_eq!(client.info("k"), None);
    assert_eq!(client.check("k", "alice"), None);
    assert_eq!(client.cmd("LOCK.WAITERS k"), empty());
    assert_eq!(client.cmd("DBSIZE"), Value::Int(1), "nobody deleted it");
}

/// Its primary cannot reach the replica, or stands still.
#[test]
fn a_lock_whose_lease_ran_out_is_free_on_a_replica_whose_primary_has_not_said_so() {
    let mut primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    let lease = |primary: &Server| {
        primary.client().grant("k", "alice", 100);
        let deadline = deadline(&mut primary.client(), b"k");
        wait_until_in_sync(primary, &replica);
        deadline
    };
    let end = lease(&primary);
    proxy.cut_one_way(Way::FromServer);
    is_free_although_its_key_is_there(&replica, end);
    proxy.heal();
    let mut client = replica.client();
    becomes("how many keys there are", Value::Int(0), || client.cmd("DBSIZE"));
    wait_until_in_sync(&primary, &replica);
    let end = lease(&primary);
    primary.freeze();
    is_free_although_its_key_is_there(&replica, end);
    primary.thaw();
}
