//! The last grants of a primary that is lost are not known to its successor, which gives their locks again while the
//! first leases run. With a quarantine as long as the longest lease it does not.

use super::LONG;
use std::time::{Duration, Instant};
use testkit::{
    Client, Cluster, Proxy, Sentinels, Server, Setup, Takeover, eventually, lacks, short_or_long,
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
        client.cmd(format!("LOCK.ACQUIRE {} bob {LONG} BLOCK {}", self.key, LONG));
        Instant::now() < self.ends
    }
}

/// A quarantine takes place in the new server's start too.
fn wait_until_it_grants(server: &Server) {
    eventually("the server grants locks", || match server.client().counter("quarantine_left_us") {
        0 => Ok(()),
        left => Err(left),
    });
}

fn is_given_again_after_a_promotion_by_hand(setup: impl Fn(Setup) -> Setup) -> bool {
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

#[test]
fn a_replica_that_is_promoted_gives_a_lock_again_of_whose_grant_it_has_not_heard() {
    assert!(is_given_again_after_a_promotion_by_hand(|setup| setup));
}

#[test]
fn a_replica_that_is_promoted_waits_until_what_it_has_not_heard_of_is_over() {
    assert!(!is_given_again_after_a_promotion_by_hand(with_a_quarantine));
}

fn is_given_again_when_sentinels_replace_a_primary(setup: impl Fn(Setup) -> Setup) -> bool {
    let mut sentinels = Sentinels::with(|_, server| setup(server));
    wait_until_it_grants(sentinels.server(0));
    sentinels.proxy.cut();
    let unheard = Unheard::on(&mut sentinels.server(0).client(), "k");
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    unheard.is_given_again_by(sentinels.server(primary))
}

#[test]
fn sentinels_choose_a_primary_that_waits_until_what_it_has_not_heard_of_is_over() {
    assert!(!is_given_again_when_sentinels_replace_a_primary(with_a_quarantine));
    if short_or_long(false, true) {
        assert!(is_given_again_when_sentinels_replace_a_primary(|setup| setup));
    }
}

fn is_given_again_in_a_cluster(how: Option<Takeover>, setup: impl Fn(Setup) -> Setup) -> bool {
    let mut cluster = Cluster::with(3, 1, |_, node| setup(node));
    let key = cluster.slot_of(0).key("k");
    wait_until_it_grants(cluster.node(0));
    let proxy = cluster.put_proxy_before(0);
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    proxy.cut();
    let unheard = Unheard::on(&mut cluster.node(0).client(), &key);
    match how {
        Some(how) => cluster.take_over(3, how),
        None => {
            cluster.node_mut(0).kill();
            wait_until_it_is(cluster.node(3), "master");
            cluster.wait_until_ok();
        }
    }
    unheard.is_given_again_by(cluster.node(3))
}

fn nodes_wait_until_it_is_over(how: Option<Takeover>) {
    if lacks((7, 0), "ports that are announced later") {
        return;
    }
    assert!(!is_given_again_in_a_cluster(how, with_a_quarantine));
    if short_or_long(false, true) {
        assert!(is_given_again_in_a_cluster(how, |setup| setup));
    }
}

#[test]
fn a_node_that_replaces_one_that_died_waits_until_what_it_has_not_heard_of_is_over() {
    nodes_wait_until_it_is_over(None);
}

#[test]
fn a_node_that_takes_over_by_force_waits_until_what_it_has_not_heard_of_is_over() {
    nodes_wait_until_it_is_over(Some(Takeover::Forced));
}

#[test]
fn a_node_that_takes_over_without_asking_waits_until_what_it_has_not_heard_of_is_over() {
    nodes_wait_until_it_is_over(Some(Takeover::Unasked));
}
