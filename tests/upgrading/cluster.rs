//! A cluster goes to another build shard by shard: its replica starts with it, takes over, and then the former primary
//! starts with it.

use super::{assert_sent_away, other_build};
use crate::waiting::first_owners;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use testkit::{
    Client, Cluster, Server, Slot, Takeover, Waiter, bulk_text, code, deadline, eventually, module,
    wait_until_in_sync,
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

/// Alice holds a lock, and bob waits for it.
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
        let bob = Waiter::of(primary, &key, "bob");
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
        assert_eq!(first_owners(primary, &self.held()), ["bob"]);
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
        assert_eq!(code(former.cmd(format!("LOCK.CHECK {held} alice"))), "MOVED");
        let bob = std::mem::replace(&mut self.bob, Waiter::of(successor, &held, "bob"));
        assert_sent_away([bob]);
    }

    fn hands_on(mut self, primary: &Server) {
        let mut client = primary.client();
        assert!(client.extend(self.held(), "alice", HOUR));
        assert!(client.release(self.held(), "alice"));
        assert!(self.bob.fence() > self.alices);
    }
}

/// No other shard notices.
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
    for node in 0..SHARDS {
        let replica = node + SHARDS;
        links.restart(&mut cluster, replica);
        wait_until_in_sync(cluster.node(node), cluster.node(replica));
        shards[node].goes_on(cluster.node(node));
        shards[node].moves(&cluster, node, replica);
        for (other, shard) in shards.iter_mut().enumerate().filter(|(other, _)| *other != node) {
            let primary = if other < node { other + SHARDS } else { other };
            shard.goes_on(cluster.node(primary));
        }
        links.restart(&mut cluster, node);
        wait_until_in_sync(cluster.node(replica), cluster.node(node));
        shards[node].goes_on(cluster.node(replica));
    }
    for (node, shard) in shards.into_iter().enumerate() {
        shard.hands_on(cluster.node(node + SHARDS));
    }
}
