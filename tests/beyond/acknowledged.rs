//! What `WAIT` after a grant is worth: it says how many replicas have heard of it, and not who takes over.

use super::{LONG, fence};
use redis::Value;
use testkit::{Proxy, Server, Waiter, int, is_older_than, wait_until_in_sync};

/// How long `WAIT` waits for what will not come.
const NOT_LONG: u64 = 50;

/// A primary with one replica that can be cut off.
fn start_with_a_proxy() -> (Server, Proxy, Server) {
    let primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().tcp().replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    (primary, proxy, replica)
}

/// Asks for the lock and says how many replicas have heard of it then.
fn acquire_and_wait(primary: &Server, owner: &str, replicas: u64, millis: u64) -> (u64, i64) {
    let acquire = format!("LOCK.ACQUIRE k {owner} {LONG}");
    let replies = primary.client().pipeline(&[&acquire, &format!("WAIT {replicas} {millis}")]);
    match replies[1] {
        Value::Int(heard) => (fence(&replies[0]), heard),
        ref other => panic!("WAIT: {other:?}"),
    }
}

/// ```text
///   primary    ACQUIRE k alice ─► fence 1, WAIT 1 ─► 1        killed
///   replica a       └── heard ──► acknowledged                          (cannot be promoted)
///   replica b            ╳ cut off                             promoted: ACQUIRE k bob ─► fence 2
/// ```
#[test]
fn a_grant_that_one_replica_has_acknowledged_is_given_again_when_another_one_takes_over() {
    let (mut primary, proxy, b) = start_with_a_proxy();
    let mut a = Server::builder().replica_of(&primary).start();
    wait_until_in_sync(&primary, &a);
    proxy.cut();
    let (alices, heard) = acquire_and_wait(&primary, "alice", 1, LONG);
    assert_eq!(heard, 1, "as many as were asked for");
    // In the same millisecond a retry would change nothing, so there would be nothing to hear of.
    primary.client().next_millisecond();
    let (again, heard) = acquire_and_wait(&primary, "alice", 2, NOT_LONG);
    assert_eq!((again, heard), (alices, 1), "the other one has not heard");
    primary.kill();
    assert_eq!(a.client().check("k", "alice"), Some(alices));
    a.freeze();
    b.cmd("REPLICAOF NO ONE");
    let bobs = b.client().grant("k", "bob", LONG);
    assert!(bobs > alices, "two hold the lock, and the store can tell who came later");
}

/// The grant was made on behalf of whoever released the lock.
#[test]
fn who_was_granted_a_lock_while_waiting_learns_as_well_whether_a_replica_has_heard_of_it() {
    let (primary, proxy, replica) = start_with_a_proxy();
    let wait = |waiter: &mut Waiter, millis: u64| {
        if is_older_than((7, 0)) {
            // There `WAIT` is about what was done when the client's last command began, not when it was answered.
            waiter.client.cmd("LOCK.INFO k");
        }
        waiter.client.cmd(format!("WAIT 1 {millis}"))
    };
    primary.client().grant("k", "alice", LONG);
    let mut bob = Waiter::of(&primary, "k", "bob");
    let mut carol = Waiter::of(&primary, "k", "carol");
    assert!(primary.client().release("k", "alice"));
    let bobs = bob.fence();
    assert_eq!(wait(&mut bob, LONG), int(1));
    assert_eq!(replica.client().check("k", "bob"), Some(bobs));
    proxy.cut();
    assert!(primary.client().release("k", "bob"));
    carol.fence();
    assert_eq!(wait(&mut carol, NOT_LONG), int(0));
}
