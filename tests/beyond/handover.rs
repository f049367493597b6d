//! One server hands locks over to another, and stops writing for a moment to do so. Leases end before, during and after.

use super::LONG;
use redis::Value;
use std::time::Duration;
use testkit::{
    Cluster, Proxy, Server, SlotMove, Waiter, becomes, lacks_moves_at_once, wait_until_in_sync,
    wait_until_it_is,
};

/// So many locks, whose leases end one after another.
const LOCKS: u64 = 60;
const MILLIS_BETWEEN_ENDS: u64 = 20;

/// So slow a link that leases end while writes are paused.
const SLOW: Duration = Duration::from_millis(50);

/// Locks with a waiter each, and what became of it.
struct Leases {
    prefix: String,
    /// By number: the fence of the first holder, and the waiter.
    locks: Vec<(u64, Waiter)>,
}

impl Leases {
    /// A third of them has ended when this returns.
    fn on(primary: &Server, prefix: &str) -> Self {
        let mut client = primary.client();
        let lock = |number| {
            let key = format!("{prefix}{number}");
            let ttl = 100 + number * MILLIS_BETWEEN_ENDS;
            let fence = client.grant(&key, "first", ttl);
            (fence, Waiter::of(primary, &key, "next"))
        };
        let leases = Self { prefix: prefix.to_owned(), locks: (0..LOCKS).map(lock).collect() };
        leases.wait_until_they_are(LOCKS * 2 / 3, primary);
        leases
    }

    /// Waits until some of them do not wait any more.
    fn wait_until_they_are(&self, waiting: u64, primary: &Server) {
        let mut client = primary.client();
        becomes("whether leases have ended", true, || client.counter("waiters") <= waiting);
    }

    /// Whoever was told that it has a lock has it there. Everybody else gets it there, with a higher fence, when they
    /// ask again.
    fn continue_on(self, primary: &Server) {
        let mut granted = 0;
        for (number, (first, mut waiter)) in self.locks.into_iter().enumerate() {
            let key = format!("{}{number}", self.prefix);
            let told = match waiter.client.try_receive() {
                Ok(Value::Int(fence)) => Some(u64::try_from(fence).unwrap()),
                Ok(Value::ServerError(_)) | Err(_) => None,
                Ok(other) => panic!("{key}: {other:?}"),
            };
            let mut client = primary.client();
            let again = format!("LOCK.ACQUIRE {key} next {LONG} BLOCK 10000");
            let fence = client.fence(again).unwrap();
            assert!(fence > first, "{key}: {fence} is not above {first}");
            if let Some(told) = told {
                assert_eq!(fence, told, "{key} was granted twice");
                granted += 1;
            }
            assert_eq!(client.acquire(&key, "other", LONG), None, "{key}");
        }
        println!("{granted} of {LOCKS} were granted by the former primary");
        assert!(granted > 0, "the handover came before all of them");
        assert!(granted < LOCKS, "the handover came after all of them");
    }
}

#[test]
fn no_lease_that_ends_while_a_primary_hands_over_to_its_replica_gives_two_grants() {
    let primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().tcp().replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    let leases = Leases::on(&primary, "k");
    proxy.slow(SLOW);
    assert_eq!(primary.cmd("FAILOVER"), Value::Okay);
    wait_until_it_is(&replica, "master");
    leases.continue_on(&replica);
}

#[test]
fn no_lease_that_ends_while_its_slot_moves_at_once_gives_two_grants() {
    if lacks_moves_at_once() {
        return;
    }
    let cluster = Cluster::of(2, 0);
    let slow = [cluster.put_proxy_before(0), cluster.put_proxy_before(1)];
    let slot = cluster.slot_of(0);
    let leases = Leases::on(cluster.node(0), &slot.key(""));
    slow.iter().for_each(|proxy| proxy.slow(SLOW));
    SlotMove { slot: slot.number, from: 0, to: 1 }.at_once(&cluster);
    leases.continue_on(cluster.node(1));
}
