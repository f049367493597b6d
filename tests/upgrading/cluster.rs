//! A cluster goes to another build shard by shard: its replica starts with it, takes over, and then the former primary
//! starts with it.

use super::{assert_sent_away, has_shares_and_tickets, other_build};
use crate::waiting::first_owners;
use redis::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use testkit::{
    Client, Cluster, Server, Slot, Takeover, Waiter, becomes, bulk_text, code, deadline, eventually,
    lacks_settings, module, wait_until_in_sync,
};

const SHARDS: usize = 3;

/// In milliseconds: longer than any test.
const HOUR: u64 = 3_600_000;

/// What the `loadmodule` line of each node names: a link, which leads to one build and then to the other.
struct Links(tempfile::TempDir);

impl Links {
    fn of(&self, node: usize) -> PathBuf {
        self.0.path().join(format!("{node}.so"))
    }

    fn restart(&self, cluster: &mut Cluster, node: usize) {
        cluster.node_mut(node).stop();
        fs::remove_file(self.of(node)).unwrap();
        symlink(other_build(), self.of(node)).unwrap();
        cluster.node_mut(node).start_again();
        cluster.wait_until_ok();
        // Whoever is not connected to it has no vote when it is to take over.
        for other in cluster.nodes() {
            eventually("all nodes are connected", || {
                let nodes = bulk_text(&other.cmd("CLUSTER NODES"));
                let is_well = |line: &str| line.contains(" connected") && !line.contains("fail");
                if nodes.lines().all(is_well) { Ok(()) } else { Err(nodes) }
            });
        }
    }
}

/// Alice holds a lock, bob waits for it on a connection, and carol by a ticket, if the build has tickets.
struct Shard {
    slot: Slot,
    alices: u64,
    ends: i64,
    bob: Waiter,
    /// The last fence of another lock.
    last: u64,
}

impl Shard {
    fn on(primary: &Server, slot: Slot) -> Self {
        let (mut client, key) = (primary.client(), slot.key("held"));
        let alices = client.grant(&key, "alice", HOUR);
        let ends = deadline(&mut client, key.as_bytes());
        let bob = bob_and_carol_ask(primary, &key);
        let mut shard = Self { slot, alices, ends, bob, last: 0 };
        shard.grants(&mut client);
        shard
    }

    fn held(&self) -> String {
        self.slot.key("held")
    }

    fn free(&self) -> String {
        self.slot.key("free")
    }

    fn grants(&mut self, client: &mut Client) {
        let fence = client.grant(self.free(), "dave", HOUR);
        assert!(fence > self.last, "{fence} after {}", self.last);
        assert!(client.release(self.free(), "dave"));
        self.last = fence;
    }

    /// Nobody notices anything.
    fn goes_on(&mut self, primary: &Server) {
        let mut client = primary.client();
        assert_eq!(client.check(self.held(), "alice"), Some(self.alices));
        self.bob.assert_waits(primary);
        let queue = if has_shares_and_tickets(primary) { &["bob", "carol"][..] } else { &["bob"] };
        assert_eq!(first_owners(primary, &self.held()), queue);
        assert_eq!(client.counter("quarantine_left_us"), 0);
        self.grants(&mut client);
    }

    /// The replica takes over. Who waited is sent away, and asks again.
    fn moves(&mut self, cluster: &Cluster, from: usize, to: usize) {
        cluster.take_over(to, Takeover::Agreed);
        // If the former primary is restarted before that, the cluster may be down for a second or two.
        cluster.wait_until_all_agree();
        let (former, successor) = (cluster.node(from), cluster.node(to));
        wait_until_in_sync(successor, former);
        let (mut client, held) = (successor.client(), self.held());
        assert_eq!(client.check(&held, "alice"), Some(self.alices));
        assert_eq!(deadline(&mut client, held.as_bytes()), self.ends);
        assert_eq!(client.counter("fences_refused"), 0);
        assert!(first_owners(successor, &held).is_empty(), "queues stay behind");
        if has_shares_and_tickets(former) {
            becomes("what tickets are left", 0, || former.client().counter("tickets"));
        }
        assert_eq!(code(former.cmd(format!("LOCK.CHECK {held} alice"))), "MOVED");
        let bob = std::mem::replace(&mut self.bob, bob_and_carol_ask(successor, &held));
        assert_sent_away([bob]);
    }

    /// Nothing is granted, and alice goes on. Then who waits has the lock.
    fn waits_for_the_end_of_the_quarantine(&mut self, primary: &Server) {
        let (mut client, free) = (primary.client(), self.free());
        assert!(client.counter("quarantine_left_us") > 0);
        assert_eq!(client.acquire(&free, "dave", HOUR), None);
        let mut erin = Waiter::of(primary, &free, "erin");
        assert!(client.extend(self.held(), "alice", HOUR));
        assert_eq!(client.check(self.held(), "alice"), Some(self.alices));
        erin.assert_waits(primary);
        assert_eq!(client.cmd(quarantine(0)), Value::Okay);
        let fence = erin.fence();
        assert!(fence > self.last, "{fence} after {}", self.last);
        assert!(client.release(&free, "erin"));
        self.last = fence;
        // It is set again, and begins with the next promotion.
        assert_eq!(client.cmd(quarantine(HOUR)), Value::Okay);
    }

    fn hands_on(mut self, primary: &Server) {
        let mut client = primary.client();
        assert!(client.extend(self.held(), "alice", HOUR));
        assert!(client.release(self.held(), "alice"));
        let bobs = self.bob.fence();
        assert!(bobs > self.alices);
        if !has_shares_and_tickets(primary) {
            return;
        }
        assert_eq!(first_owners(primary, &self.held()), ["carol"]);
        assert!(client.release(self.held(), "bob"));
        assert!(client.check(self.held(), "carol").unwrap() > bobs);
    }
}

fn bob_and_carol_ask(primary: &Server, key: &str) -> Waiter {
    let bob = Waiter::of(primary, key, "bob");
    if has_shares_and_tickets(primary) {
        let ticket = format!("LOCK.ACQUIRE {key} carol {HOUR} TICKET {HOUR}");
        assert_eq!(primary.cmd(ticket), Value::Nil);
    }
    bob
}

/// The replica of the first shard takes over without a quarantine, the others with one, which no other shard notices.
#[test]
fn a_cluster_goes_to_another_build_shard_by_shard_with_its_locks_and_fences() {
    let links = Links(tempfile::tempdir().unwrap());
    let mut cluster = Cluster::with(SHARDS, 1, |index, setup| {
        symlink(module::path(), links.of(index)).unwrap();
        // Longer than it takes to restart a node, as the usual one is.
        let setup = setup.config("cluster-node-timeout", "15000");
        setup.without_module().config("loadmodule", links.of(index).to_str().unwrap())
    });
    let on = |node| Shard::on(cluster.node(node), cluster.slot_of(node));
    let mut shards: Vec<_> = (0..SHARDS).map(on).collect();
    let has_settings = !lacks_settings();
    for node in 0..SHARDS {
        let (replica, has_quarantine) = (node + SHARDS, has_settings && node > 0);
        links.restart(&mut cluster, replica);
        wait_until_in_sync(cluster.node(node), cluster.node(replica));
        shards[node].goes_on(cluster.node(node));
        if has_quarantine {
            assert_eq!(cluster.node(replica).cmd(quarantine(HOUR)), Value::Okay);
        }
        shards[node].moves(&cluster, node, replica);
        for (other, shard) in shards.iter_mut().enumerate().filter(|(other, _)| *other != node) {
            let primary = if other < node { other + SHARDS } else { other };
            shard.goes_on(cluster.node(primary));
        }
        if has_quarantine {
            shards[node].waits_for_the_end_of_the_quarantine(cluster.node(replica));
        }
        links.restart(&mut cluster, node);
        wait_until_in_sync(cluster.node(replica), cluster.node(node));
        shards[node].goes_on(cluster.node(replica));
    }
    for (node, shard) in shards.into_iter().enumerate() {
        shard.hands_on(cluster.node(node + SHARDS));
    }
}

fn quarantine(millis: u64) -> String {
    format!("CONFIG SET leasehold.quarantine-ms {millis}")
}
