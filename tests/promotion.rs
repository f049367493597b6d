//! Fences grow over failover, also onto a replica whose clock is wrong.

use redis::Value;
use testkit::clock::HOUR;
use testkit::{Client, Clock, Server, Setup, misplaces_clients, start_pair, wait_until_in_sync};

const LONG: u64 = 60_000;

/// Grants and releases, `count` times; the last fence.
fn churn(client: &mut Client, key: &str, count: u64) -> u64 {
    let mut last = 0;
    for _ in 0..count {
        last = client.grant(key, "churn", LONG);
        assert!(client.release(key, "churn"));
    }
    last
}

/// The setup of a server whose clock is an hour behind.
fn behind() -> (Setup, Clock) {
    let mut clock = Clock::new();
    clock.step_back(HOUR);
    (Server::builder().tcp().clock(&clock), clock)
}

/// The lock `k` on a promoted replica is granted with a fence above this one.
#[track_caller]
fn assert_goes_on_above(replica: &Server, fence: u64, what: &str) {
    replica.promote();
    let mut client = replica.client();
    if let Some(info) = client.info("k") {
        assert_eq!(client.acquire("k", "bob", LONG), None, "{what}: it is still held");
        assert!(client.release("k", info.owner), "{what}");
    }
    let next = client.grant("k", "bob", LONG);
    assert!(next > fence, "{what}: {fence} was followed by {next}");
    assert!(client.release("k", "bob"));
}

/// What a primary does for the lock `k`; the fence that it tells.
type Grant = fn(&mut Client) -> u64;

const GRANTS: [(&str, Grant); 4] = [
    ("held", |client| client.grant("k", "alice", LONG)),
    ("released", |client| churn(client, "k", 10)),
    ("in a transaction", |client| {
        let pair = ["LOCK.ACQUIRE k alice 60000", "LOCK.RELEASE k alice"];
        let Value::Int(fence) = client.transaction(&pair)[0] else { panic!("no fence") };
        fence.cast_unsigned()
    }),
    ("in a script", |client| {
        let script = "local fence = redis.call('LOCK.ACQUIRE', KEYS[1], 'alice', 60000)
            redis.call('LOCK.RELEASE', KEYS[1], 'alice')
            return fence";
        client.fence(["EVAL", script, "1", "k"]).unwrap()
    }),
];

/// With one in between or without; promoted and demoted again, it learns each time.
#[test]
fn a_replica_an_hour_behind_goes_on_above_whatever_its_primary_granted() {
    if misplaces_clients() {
        return;
    }
    let (setup, _clock) = behind();
    let (primary, middle) = start_pair(Server::builder(), Server::builder().tcp());
    let replica = setup.replica_of(&primary).start();
    wait_until_in_sync(&primary, &replica);
    let mut client = primary.client();
    assert!(client.now() > replica.client().now() + 3_000_000, "the replica is behind");
    for (what, grant) in GRANTS {
        for upstream in [&primary, &middle] {
            replica.follow(upstream);
            wait_until_in_sync(upstream, &replica);
            client.cmd("DEL k");
            let fence = grant(&mut client);
            wait_until_in_sync(&primary, &middle);
            wait_until_in_sync(upstream, &replica);
            assert_goes_on_above(&replica, fence, what);
        }
    }
}

#[test]
fn a_replica_an_hour_behind_goes_on_above_locks_that_were_held_when_it_joined() {
    let (setup, _clock) = behind();
    let primary = Server::builder().tcp().start();
    let mut client = primary.client();
    let deleted = client.grant("deleted", "alice", LONG);
    let released = client.grant("k", "alice", LONG);
    let replica = setup.replica_of(&primary).start();
    wait_until_in_sync(&primary, &replica);
    assert!(client.release("k", "alice"));
    wait_until_in_sync(&primary, &replica);
    assert_goes_on_above(&replica, released, "released");
    let mut client = replica.client();
    client.cmd("DEL deleted");
    assert!(client.grant("deleted", "bob", LONG) > deleted);
}

/// By one holder, and by many.
#[test]
fn a_replica_an_hour_behind_goes_on_above_a_lock_that_its_primary_was_brought_from_elsewhere() {
    if misplaces_clients() {
        return;
    }
    for holders in [1, 20] {
        let (setup, _clock) = behind();
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
        let brought = elsewhere.client().info("k").unwrap().fence + holders - 1;
        let Value::BulkString(dump) = elsewhere.cmd("DUMP k") else { panic!("no dump") };
        let (primary, replica) = start_pair(Server::builder(), setup);
        let restored = primary.cmd([b"RESTORE", &b"k"[..], b"60000", &dump]);
        assert_eq!(restored, Value::Okay);
        wait_until_in_sync(&primary, &replica);
        replica.promote();
        let mut client = replica.client();
        assert_eq!(client.cmd("DEL k"), Value::Int(1));
        assert!(client.grant("k", "bob", LONG) > brought, "{holders} holders");
    }
}

#[test]
fn a_stranger_who_may_do_nothing_teaches_a_replica_no_fence() {
    let (_primary, replica) = start_pair(Server::builder(), Server::builder());
    let (mut client, mut stranger) = (replica.client(), replica.user("stranger", "-@all"));
    let planted = u64::try_from(client.now()).unwrap() * 1_000 + 3_600_000_000;
    let reply = stranger.cmd(format!("SET k {planted}:stranger PXAT 9999999999999"));
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    replica.promote();
    assert!(client.grant("k", "bob", LONG) < planted);
}

#[test]
fn a_promotion_lifts_the_fences_by_the_margin() {
    let margin = Server::builder().module_args("fence-margin 600000");
    let (_primary, replica) = start_pair(Server::builder(), margin);
    let mut client = replica.client();
    // The start has lifted them too, but to less than this.
    let floor = u64::try_from(client.next_millisecond() + 600_000).unwrap() * 1_000;
    replica.promote();
    assert!(client.grant("k", "bob", LONG) > floor);
}
