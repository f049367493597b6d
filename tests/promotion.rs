//! Fences grow over failover, also onto a replica whose clock is wrong.

use redis::Value;
use std::time::Duration;
use testkit::clock::HOUR;
use testkit::{
    Client, Clock, Server, eventually, misplaces_clients, start_pair, wait_until_in_sync,
};

const LONG: u64 = 60_000;

fn promote(replica: &Server) {
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    let role = replica.client().info_field("replication", "role");
    assert_eq!(role.as_deref(), Some("master"));
}

fn demote(server: &Server, primary: &Server) {
    assert_eq!(server.cmd(format!("REPLICAOF 127.0.0.1 {}", primary.port())), Value::Okay);
}

/// Grants and releases, `count` times; the last fence.
fn churn(client: &mut Client, key: &str, count: u64) -> u64 {
    let mut last = 0;
    for _ in 0..count {
        last = client.grant(key, "churn", LONG);
        assert!(client.release(key, "churn"));
    }
    last
}

#[test]
fn a_promoted_replica_goes_on_above_its_primary() {
    let (mut primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut client = primary.client();
    let held = client.grant("held", "alice", LONG);
    let released = churn(&mut client, "released", 10);
    wait_until_in_sync(&primary, &replica);
    primary.kill();
    promote(&replica);
    let mut client = replica.client();
    assert_eq!(client.check("held", "alice"), Some(held), "the lock is still held");
    assert_eq!(client.acquire("held", "bob", LONG), None);
    assert!(client.grant("released", "bob", LONG) > released);
    assert!(client.release("held", "alice"));
    assert!(client.grant("held", "bob", LONG) > held);
}

#[test]
fn a_replica_that_missed_the_last_grants_goes_on_above_them() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    // Cut off first, so that it misses them for certain.
    promote(&replica);
    let missed = churn(&mut primary.client(), "k", 100);
    assert!(replica.client().grant("k", "bob", LONG) > missed);
}

#[test]
fn a_replica_an_hour_behind_goes_on_above_locks_held_and_released() {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(HOUR);
    let (primary, replica) = start_pair(Server::builder(), Server::builder().clock(&behind));
    let mut client = primary.client();
    let held = client.grant("held", "alice", LONG);
    let released = churn(&mut client, "released", 10);
    assert!(client.now() > replica.client().now() + 3_000_000, "the replica is behind");
    wait_until_in_sync(&primary, &replica);
    promote(&replica);
    let mut client = replica.client();
    assert!(client.grant("released", "bob", LONG) > released);
    assert!(client.release("held", "alice"));
    assert!(client.grant("held", "bob", LONG) > held);
}

#[test]
fn a_replica_an_hour_behind_goes_on_above_what_transactions_and_scripts_granted() {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(HOUR);
    let (primary, replica) = start_pair(Server::builder(), Server::builder().clock(&behind));
    let mut client = primary.client();
    let pair = ["LOCK.ACQUIRE k alice 60000", "LOCK.RELEASE k alice"];
    let in_transaction = client.transaction(&pair)[0].clone();
    let script = "local fence = redis.call('LOCK.ACQUIRE', KEYS[1], 'alice', 60000)
        redis.call('LOCK.RELEASE', KEYS[1], 'alice')
        return fence";
    let in_script = client.cmd(["EVAL", script, "1", "k"]);
    wait_until_in_sync(&primary, &replica);
    promote(&replica);
    let after = i64::try_from(replica.client().grant("k", "bob", LONG)).unwrap();
    for fence in [in_transaction, in_script] {
        assert!(matches!(fence, Value::Int(before) if before < after), "{fence:?} {after}");
    }
}

#[test]
fn a_replica_an_hour_behind_goes_on_above_locks_that_were_held_when_it_joined() {
    let mut behind = Clock::new();
    behind.step_back(HOUR);
    let primary = Server::builder().tcp().start();
    let mut client = primary.client();
    let deleted = client.grant("deleted", "alice", LONG);
    let released = client.grant("released", "alice", LONG);
    let replica = Server::builder().clock(&behind).replica_of(&primary).start();
    wait_until_in_sync(&primary, &replica);
    assert!(client.release("released", "alice"));
    wait_until_in_sync(&primary, &replica);
    promote(&replica);
    let mut client = replica.client();
    client.cmd("DEL deleted");
    assert!(client.grant("released", "bob", LONG) > released);
    assert!(client.grant("deleted", "bob", LONG) > deleted);
}

#[test]
fn a_replica_an_hour_behind_goes_on_above_a_lock_that_its_primary_was_brought_from_elsewhere() {
    goes_on_above_a_lock_brought_from_elsewhere(1);
}

#[test]
fn a_replica_an_hour_behind_goes_on_above_a_lock_of_many_that_its_primary_was_brought() {
    goes_on_above_a_lock_brought_from_elsewhere(20);
}

#[track_caller]
fn goes_on_above_a_lock_brought_from_elsewhere(holders: usize) {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(HOUR);
    let elsewhere = Server::start();
    // Far above what its primary tells of its own fences.
    let far = elsewhere.client().grant("k", "alice", LONG) + 3 * 3_600_000_000;
    let raised = elsewhere.cmd(format!("LOCK.RAISE k alice {far}"));
    assert_eq!(raised, Value::Int(far.try_into().unwrap()));
    assert_eq!(elsewhere.cmd(format!("LOCK.ACQUIRE k alice {LONG} SHARE 0")), raised);
    for number in 1..holders {
        let reply = elsewhere.cmd(format!("LOCK.ACQUIRE k reader{number} {LONG} SHARE 0"));
        assert!(matches!(reply, Value::Int(_)), "{reply:?}");
    }
    let brought = elsewhere.client().info("k").unwrap().fence + holders as u64 - 1;
    let Value::BulkString(dump) = elsewhere.cmd("DUMP k") else { panic!("no dump") };
    let (primary, replica) = start_pair(Server::builder(), Server::builder().clock(&behind));
    let restored = primary.cmd([b"RESTORE", &b"k"[..], b"60000", &dump]);
    assert_eq!(restored, Value::Okay);
    wait_until_in_sync(&primary, &replica);
    promote(&replica);
    let mut client = replica.client();
    assert_eq!(client.cmd("DEL k"), Value::Int(1));
    assert!(client.grant("k", "bob", LONG) > brought);
}

#[test]
fn a_stranger_who_may_do_nothing_teaches_a_replica_no_fence() {
    let (_primary, replica) = start_pair(Server::builder(), Server::builder());
    let (mut client, mut stranger) = (replica.client(), replica.client());
    client.cmd("ACL SETUSER stranger on nopass -@all");
    assert_eq!(stranger.cmd("AUTH stranger x"), Value::Okay);
    let planted = u64::try_from(client.now()).unwrap() * 1_000 + 3_600_000_000;
    let reply = stranger.cmd(format!("SET k {planted}:stranger PXAT 9999999999999"));
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    promote(&replica);
    assert!(client.grant("k", "bob", LONG) < planted);
}

#[test]
fn a_replica_of_a_replica_an_hour_behind_goes_on_above_both() {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(HOUR);
    let (primary, middle) = start_pair(Server::builder(), Server::builder().tcp());
    let last = Server::builder().clock(&behind).replica_of(&middle).start();
    wait_until_in_sync(&middle, &last);
    let fence = churn(&mut primary.client(), "k", 10);
    wait_until_in_sync(&primary, &middle);
    wait_until_in_sync(&middle, &last);
    promote(&last);
    assert!(last.client().grant("k", "bob", LONG) > fence);
}

#[test]
fn a_server_promoted_demoted_and_promoted_again_learns_each_time() {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(HOUR);
    let (primary, replica) = start_pair(Server::builder(), Server::builder().clock(&behind));
    for _ in 0..3 {
        let before = churn(&mut primary.client(), "k", 10);
        wait_until_in_sync(&primary, &replica);
        promote(&replica);
        assert!(churn(&mut replica.client(), "k", 1) > before);
        demote(&replica, &primary);
        eventually("the replica follows again", || {
            let link = replica.client().info_field("replication", "master_link_status");
            if link.as_deref() == Some("up") { Ok(()) } else { Err(link) }
        });
    }
}

#[test]
fn a_promotion_lifts_the_fences_by_the_margin() {
    let margin = Server::builder().module_args("fence-margin 600000");
    let (_primary, replica) = start_pair(Server::builder(), margin);
    let mut client = replica.client();
    // The start has lifted them too, but to less than this.
    let floor = u64::try_from(client.next_millisecond() + 600_000).unwrap() * 1_000;
    promote(&replica);
    assert!(client.grant("k", "bob", LONG) > floor);
}

#[test]
fn a_former_primary_follows_the_new_one() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder().tcp());
    primary.client().grant("lost", "alice", LONG);
    promote(&replica);
    let fence = replica.client().grant("k", "bob", LONG);
    demote(&primary, &replica);
    wait_until_in_sync(&replica, &primary);
    let mut client = primary.client();
    assert_eq!(client.check("k", "bob"), Some(fence));
    assert!(matches!(client.cmd("LOCK.RELEASE k bob"), Value::ServerError(_)), "it is read-only");
}

/// The old primary began above its clock, as every server does, and goes on from there.
#[test]
fn a_new_primary_begins_above_the_grants_that_never_reached_it() {
    if misplaces_clients() {
        return;
    }
    let mut behind = Clock::new();
    behind.step_back(Duration::from_secs(3));
    let (primary, replica) = start_pair(Server::builder(), Server::builder().clock(&behind));
    let mut old = primary.client();
    old.grant("known", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    promote(&replica);
    let unknown = (0..100).map(|number| old.grant(format!("k{number}"), "alice", LONG)).max();
    assert!(replica.client().grant("k99", "bob", LONG) > unknown.unwrap());
}
