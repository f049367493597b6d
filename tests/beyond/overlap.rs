//! The last grants of a primary that is lost are not known to its successor, which gives their locks again while the
//! first leases run. With a quarantine as long as the longest lease it does not.

use super::LONG;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{
    Client, Cluster, Proxy, Sentinels, Server, Setup, Takeover, becomes, lacks, short_or_long,
    wait_until_in_sync, wait_until_it_is,
};

/// Longer than it takes to replace a primary, or there would be nothing to overlap.
const TTL: Duration = Duration::from_secs(4);

/// How long a primary that was replaced may go on granting: see `both.rs`.
const WINDOW: Duration = Duration::from_millis(500);

fn with_a_quarantine(setup: Setup) -> Setup {
    setup.module_args(&format!("quarantine-ms {}", (TTL + WINDOW).as_millis()))
}

/// A grant of which no replica heard. Its holder counts on it from the moment it is told until a lease after it asked.
struct Unheard {
    key: String,
    ends: Instant,
}

impl Unheard {
    fn on(primary: &mut Client, key: &str) -> Self {
        let asked = Instant::now();
        primary.grant(key, "alice", TTL.as_millis().try_into().unwrap());
        Self { key: key.to_owned(), ends: asked + TTL }
    }

    /// Whether the successor gives the lock to another one while the first counts on it.
    fn is_given_again_by(&self, successor: &Server) -> bool {
        let mut client = successor.client();
        let reply = client.cmd(format!("LOCK.ACQUIRE {} bob {LONG} BLOCK {}", self.key, LONG));
        assert!(matches!(reply, Value::Int(1..)), "after the quarantine, bob is told {reply:?}");
        Instant::now() < self.ends
    }
}

/// A quarantine takes place in the new server's start too.
fn wait_until_it_grants(server: &Server) {
    becomes("what is left", 0, || server.client().counter("quarantine_left_us"));
}

/// Who takes over from a primary whose last grant nobody heard of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Successor {
    /// A replica that is promoted by hand.
    ByHand,
    /// A replica that sentinels choose.
    OfSentinels,
    /// A replica in a cluster, where its primary has died.
    OfADeadNode,
    /// A replica in a cluster that takes over without asking.
    OfANode,
}

fn is_given_again_by(successor: Successor, setup: fn(Setup) -> Setup) -> bool {
    match successor {
        Successor::ByHand => {
            let mut primary = setup(Server::builder().tcp()).start();
            let proxy = Proxy::to(primary.port());
            let replica = setup(Server::builder()).replica_through(proxy.port()).start();
            wait_until_it_grants(&primary);
            wait_until_in_sync(&primary, &replica);
            proxy.cut();
            let unheard = Unheard::on(&mut primary.client(), "k");
            primary.kill();
            replica.cmd("REPLICAOF NO ONE");
            unheard.is_given_again_by(&replica)
        }
        Successor::OfSentinels => {
            let mut sentinels = Sentinels::with(|_, server| setup(server));
            wait_until_it_grants(sentinels.server(0));
            sentinels.proxy.cut();
            let unheard = Unheard::on(&mut sentinels.server(0).client(), "k");
            sentinels.server_mut(0).kill();
            let primary = sentinels.wait_for_another_primary_than(0);
            unheard.is_given_again_by(sentinels.server(primary))
        }
        Successor::OfADeadNode | Successor::OfANode => {
            let mut cluster = Cluster::with(3, 1, |_, node| setup(node));
            let key = cluster.slot_of(0).key("k");
            wait_until_it_grants(cluster.node(0));
            let proxy = cluster.put_proxy_before(0);
            wait_until_in_sync(cluster.node(0), cluster.node(3));
            proxy.cut();
            let unheard = Unheard::on(&mut cluster.node(0).client(), &key);
            if successor == Successor::OfANode {
                cluster.take_over(3, Takeover::Unasked);
            } else {
                cluster.node_mut(0).kill();
                wait_until_it_is(cluster.node(3), "master");
                cluster.wait_until_ok();
            }
            unheard.is_given_again_by(cluster.node(3))
        }
    }
}

#[track_caller]
fn assert_rests(successor: Successor, shows_without: bool) {
    assert!(!is_given_again_by(successor, with_a_quarantine));
    if short_or_long(shows_without, true) {
        assert!(is_given_again_by(successor, |setup| setup));
    }
}

/// Without a quarantine it gives the lock again.
#[test]
fn a_replica_that_is_promoted_waits_until_what_it_has_not_heard_of_is_over() {
    assert_rests(Successor::ByHand, true);
}

#[test]
fn sentinels_choose_a_primary_that_waits_until_what_it_has_not_heard_of_is_over() {
    assert_rests(Successor::OfSentinels, false);
}

/// And one that replaces one that died.
#[test]
fn a_node_that_takes_over_without_asking_waits_until_what_it_has_not_heard_of_is_over() {
    if !lacks((7, 0), "ports that are announced later") {
        assert_rests(Successor::OfANode, false);
        assert_rests(Successor::OfADeadNode, false);
    }
}
