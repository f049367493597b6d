//! A cluster on this machine: primaries that share the slots, and their replicas.
//!
//! ```text
//!   Cluster::start()              nodes 0, 1, 2 are primaries; 3 is a replica of 0, 4 of 1, 5 of 2
//!   Cluster::of(2, 0)             two primaries without replicas
//!     .node(3)                    a server like any other
//!     .slot_of(0)                 a slot of node 0, and names of keys in it
//!     .client()                   follows redirections, as clients of clusters do
//!   SlotMove                      moves a slot, step by step or at once: see `slot_move.rs`
//! ```
//!
//! A node keeps its index: node 0 stays node 0 after it was killed, and when it comes back as a replica.

use super::cluster_client::ClusterClient;
use super::replica::{wait_until_in_sync, wait_until_it_is};
use super::version::is_older_than;
use super::{Client, Proxy, Server, Setup, bulk_text, eventually};
use redis::Value;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::thread;
use std::time::{Duration, Instant};

const SLOTS: usize = 16_384;

/// Longer than a node tries to meet another. On a busy machine, CLUSTER MEET may have to be repeated.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Servers that share the slots of a cluster.
pub struct Cluster {
    nodes: Vec<Node>,
    primaries: usize,
}

/// A server, and its name in the cluster.
pub struct Node {
    server: Server,
    /// The id of the node in the cluster.
    pub id: String,
}

/// A slot, and a way to name keys in it.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The number of the slot.
    pub number: u16,
    tag: String,
}

/// How one node sees another: a line of `CLUSTER NODES`.
#[derive(Debug)]
struct Seen {
    id: String,
    port: String,
    flags: String,
    /// The primary of this replica, or `-`.
    primary: String,
    epoch: String,
    link: String,
    slots: Vec<(u16, u16)>,
}

/// How a replica takes over from its primary.
#[derive(Clone, Copy, Debug)]
pub enum Takeover {
    /// With the primary's consent: it stops writing until the replica has everything.
    Agreed,
    /// Without asking the primary, by a vote of the other primaries.
    Forced,
    /// Without a vote.
    Unasked,
}

impl Cluster {
    /// A cluster of three primaries with a replica each.
    pub fn start() -> Self {
        Self::of(3, 1)
    }

    /// A cluster of this many primaries with this many replicas each. It is up when this returns.
    pub fn of(primaries: usize, replicas_of_each: usize) -> Self {
        Self::with(primaries, replicas_of_each, |_, setup| setup)
    }

    /// A cluster where `setup` changes the setup of the node with that index.
    pub fn with(
        primaries: usize,
        replicas_of_each: usize,
        setup: impl Fn(usize, Setup) -> Setup,
    ) -> Self {
        let setups = (0..primaries * (1 + replicas_of_each)).map(|index| {
            let node = Server::builder().node().config("cluster-node-timeout", "1000");
            setup(index, node)
        });
        let starting: Vec<_> = setups.map(|setup| thread::spawn(|| Node::start(setup))).collect();
        let nodes = starting.into_iter().map(|node| node.join().unwrap()).collect();
        let cluster = Self { nodes, primaries };
        cluster.assign_slots();
        cluster.introduce();
        cluster.attach_replicas();
        cluster.wait_until_ok();
        for (index, replica) in cluster.nodes.iter().enumerate().skip(primaries) {
            wait_until_in_sync(&cluster.nodes[index % primaries], replica);
        }
        cluster
    }

    /// A node, primaries first.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// A node, to be killed, stopped or started.
    pub fn node_mut(&mut self, index: usize) -> &mut Node {
        &mut self.nodes[index]
    }

    /// All nodes, primaries first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A connection that follows redirections.
    pub fn client(&self) -> ClusterClient {
        ClusterClient::of(self.nodes.iter().map(|node| node.port()).collect())
    }

    /// A connection to the node that has this key's slot.
    pub fn client_for(&self, key: &str) -> Client {
        let asked = self.nodes.iter().find(|node| node.is_up()).expect("every node is down");
        let Value::Int(slot) = asked.cmd(["CLUSTER", "KEYSLOT", key]) else { panic!("no slot") };
        self.node(self.owner(slot.try_into().unwrap())).client()
    }

    /// The index of the node that says it has the slot.
    pub fn owner(&self, slot: u16) -> usize {
        eventually("a node has the slot", || {
            let owns = |node: &Node| node.is_up() && node.has(slot);
            self.nodes.iter().position(owns).ok_or(slot)
        })
    }

    /// A slot of this node. Each call returns another slot, as long as the node has enough of them.
    pub fn slot_of(&self, index: usize) -> Slot {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let slot = Slot::tagged(self.node(index), format!("t{number}"));
            if self.node(index).has(slot.number) {
                return slot;
            }
        }
    }

    /// Waits until every node that is up sees all slots served.
    pub fn wait_until_ok(&self) {
        self.nodes.iter().filter(|node| node.is_up()).for_each(|node| node.wait_until("ok"));
    }

    /// Waits until every node that is up knows the owner of the slot and the owner's epoch. If the
    /// slot moved again before that, two nodes would claim it.
    pub fn wait_until_owned_by(&self, slot: u16, owner: usize) {
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            eventually("the node knows who has the slot", || {
                let wanted = self.nodes[owner].sees_owner(slot);
                let seen = node.sees_owner(slot);
                let is_owner = seen.as_ref().is_some_and(|(id, _)| *id == self.nodes[owner].id);
                if is_owner && seen == wanted { Ok(()) } else { Err((seen, wanted)) }
            });
        }
    }

    /// The owner of the slot and its epoch, if every node that is up says the same.
    pub fn owner_of(&self, slot: u16) -> Option<usize> {
        let up = self.nodes.iter().filter(|node| node.is_up());
        let mut seen = up.map(|node| node.sees_owner(slot));
        let owner = seen.next()??;
        if seen.all(|another| another.as_ref() == Some(&owner)) {
            self.nodes.iter().position(|node| node.id == owner.0)
        } else {
            None
        }
    }

    /// Waits until all nodes that are up agree on the owner of each slot.
    pub fn wait_until_all_agree(&self) {
        let owners = |node: &Node| {
            let mut seen = node.sees();
            seen.retain(|seen| !seen.slots.is_empty());
            seen.sort_unstable_by(|one, other| one.id.cmp(&other.id));
            seen.into_iter().map(|seen| (seen.id, seen.slots)).collect::<Vec<_>>()
        };
        eventually("all nodes agree", || {
            let up = self.nodes.iter().filter(|node| node.is_up());
            let said: Vec<_> = up.map(owners).collect();
            if said.windows(2).all(|pair| pair[0] == pair[1]) { Ok(()) } else { Err(said) }
        });
    }

    /// Makes the replica take over, and waits until it has.
    pub fn take_over(&self, replica: usize, how: Takeover) {
        let option = match how {
            Takeover::Agreed => "",
            Takeover::Forced => " FORCE",
            Takeover::Unasked => " TAKEOVER",
        };
        self.wait_until_known(replica);
        let node = self.node(replica);
        assert_eq!(node.cmd(format!("CLUSTER FAILOVER{option}")), Value::Okay);
        wait_until_it_is(node, "master");
    }

    /// Waits until every node that is up knows this replica. Its primary would ignore the replica before that.
    fn wait_until_known(&self, replica: usize) {
        let id = &self.node(replica).id;
        let primary = |node: &Node| {
            let seen = node.sees().into_iter().find(|seen| seen.id == *id)?;
            seen.flags.contains("slave").then_some(seen.primary)
        };
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            eventually("the node knows the replica", || {
                let seen = (primary(node), primary(self.node(replica)));
                if seen.0.is_some() && seen.0 == seen.1 { Ok(()) } else { Err(seen) }
            });
        }
    }

    /// Puts a proxy before this node, for its replicas and for redirected clients. The bus between
    /// the nodes bypasses it.
    pub fn put_proxy_before(&self, index: usize) -> Proxy {
        let node = self.node(index);
        let proxy = Proxy::to(node.port());
        let port = proxy.port().to_string();
        assert_eq!(node.cmd(format!("CONFIG SET cluster-announce-port {port}")), Value::Okay);
        for other in &self.nodes {
            eventually("the node knows the proxy", || {
                let seen = other.sees();
                let knows = seen.iter().any(|seen| seen.id == node.id && seen.port == port);
                if knows { Ok(()) } else { Err(seen) }
            });
        }
        for replica in self.nodes.iter().filter(|other| other.follows(node)) {
            eventually("the replica follows through the proxy", || {
                match replica.client().info_field("replication", "master_port") {
                    Some(seen) if seen == port => Ok(()),
                    seen => Err(seen),
                }
            });
            wait_until_in_sync(node, replica);
        }
        proxy
    }

    fn assign_slots(&self) {
        let edge = |index: usize| SLOTS * index / self.primaries;
        for (index, node) in self.nodes.iter().take(self.primaries).enumerate() {
            let (first, last) = (edge(index), edge(index + 1) - 1);
            let command = if is_older_than((7, 0)) {
                let slots: Vec<_> = (first..=last).map(|slot| slot.to_string()).collect();
                format!("CLUSTER ADDSLOTS {}", slots.join(" "))
            } else {
                format!("CLUSTER ADDSLOTSRANGE {first} {last}")
            };
            assert_eq!(node.cmd(command), Value::Okay);
        }
    }

    /// Introduces all nodes to each other, because gossip would take longer.
    fn introduce(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            // Primaries with equal epochs would have to resolve that conflict first.
            node.cmd(format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            for other in &self.nodes[..index] {
                node.cmd(format!("CLUSTER MEET 127.0.0.1 {}", other.port()));
            }
        }
        for node in &self.nodes {
            let mut asked = Instant::now();
            eventually("the nodes know each other", || {
                let seen = node.sees();
                let met = seen.iter().filter(|other| other.is_met()).count();
                if met == self.nodes.len() {
                    return Ok(());
                }
                if asked.elapsed() > HANDSHAKE {
                    asked = Instant::now();
                    for other in self.nodes.iter().filter(|other| other.id != node.id) {
                        node.cmd(format!("CLUSTER MEET 127.0.0.1 {}", other.port()));
                    }
                }
                Err(seen)
            });
        }
    }

    fn attach_replicas(&self) {
        for (index, replica) in self.nodes.iter().enumerate().skip(self.primaries) {
            let primary = &self.nodes[index % self.primaries].id;
            eventually("the replica follows", || {
                match replica.cmd(format!("CLUSTER REPLICATE {primary}")) {
                    Value::Okay => Ok(()),
                    other => Err(other),
                }
            });
        }
    }
}

impl Node {
    fn start(setup: Setup) -> Self {
        let server = setup.start();
        let id = bulk_text(&server.cmd("CLUSTER MYID"));
        Self { server, id }
    }

    /// Waits until the cluster is `ok`, or `fail`, as this node sees it.
    pub fn wait_until(&self, state: &str) {
        eventually(&format!("the cluster is {state}"), || {
            let info = bulk_text(&self.cmd("CLUSTER INFO"));
            if info.contains(&format!("cluster_state:{state}")) { Ok(()) } else { Err(info) }
        });
    }

    fn follows(&self, primary: &Self) -> bool {
        self.sees().iter().any(|seen| seen.is_the_asked() && seen.primary == primary.id)
    }

    /// The slots that the node says it has.
    pub fn slots(&self) -> BTreeSet<u16> {
        let mine = self.sees().into_iter().find(Seen::is_the_asked);
        let ranges = mine.into_iter().flat_map(|seen| seen.slots);
        ranges.flat_map(|(first, last)| first..=last).collect()
    }

    fn has(&self, slot: u16) -> bool {
        self.sees().iter().any(|seen| seen.is_the_asked() && seen.has(slot))
    }

    /// The owner of the slot and its epoch.
    fn sees_owner(&self, slot: u16) -> Option<(String, String)> {
        let owner = self.sees().into_iter().find(|seen| seen.has(slot))?;
        Some((owner.id, owner.epoch))
    }

    fn sees(&self) -> Vec<Seen> {
        bulk_text(&self.cmd("CLUSTER NODES")).lines().map(Seen::parse).collect()
    }
}

impl Seen {
    /// Parses `id ip:port@bus flags primary ping pong epoch link slot slot …`, and ignores slots that are moving.
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        Self {
            id: words[0].to_owned(),
            port: words[1].split([':', '@']).nth(1).unwrap_or_default().to_owned(),
            flags: words[2].to_owned(),
            primary: words[3].to_owned(),
            epoch: words[6].to_owned(),
            link: words[7].to_owned(),
            slots: words[8..].iter().filter_map(range).collect(),
        }
    }

    fn is_the_asked(&self) -> bool {
        self.flags.contains("myself")
    }

    fn is_met(&self) -> bool {
        self.link == "connected" && !self.flags.contains("handshake")
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }
}

impl Slot {
    fn tagged(node: &Node, tag: String) -> Self {
        match node.cmd(["CLUSTER", "KEYSLOT", &tag]) {
            Value::Int(number) => Self { number: number.try_into().unwrap(), tag },
            other => panic!("no slot: {other:?}"),
        }
    }

    /// The name of a key in this slot.
    pub fn key(&self, name: &str) -> String {
        format!("{{{}}}{name}", self.tag)
    }
}

impl Deref for Node {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
