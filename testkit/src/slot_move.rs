//! Moves a slot of a cluster.
//!
//! By hand, in the steps and the order of redis-cli. A test may stop after any step:
//!
//! ```text
//!            import          migrate            move_keys             give
//!   to       expects it  ┊   expects it     ┊   has its keys      ┊   has the slot
//!   from     has the slot┊   redirects for  ┊   redirects for all ┊   says MOVED
//!                        ┊   keys that have ┊                     ┊
//!                        ┊   left already   ┊                     ┊
//! ```
//!
//! Or at once, on servers that can: Redis 8.4, Valkey 9.

use super::version::lacks_either;
use super::{Cluster, Node, eventually, role_of};
use redis::Value;

/// A move of a slot from one node to another.
#[derive(Clone, Copy, Debug)]
pub struct SlotMove {
    /// The slot.
    pub slot: u16,
    /// The index of the node that has it.
    pub from: usize,
    /// The index of the node that gets it.
    pub to: usize,
}

impl SlotMove {
    /// The ways in which the server can move a slot.
    pub fn ways() -> impl Iterator<Item = fn(Self, &Cluster)> {
        let ways: [fn(Self, &Cluster); 2] = [Self::by_hand, Self::at_once];
        ways.into_iter().take(if lacks_moves_at_once() { 1 } else { 2 })
    }

    /// Takes all steps by hand.
    pub fn by_hand(self, cluster: &Cluster) {
        self.import(cluster);
        self.migrate(cluster);
        self.move_keys(cluster);
        self.give(cluster);
    }

    /// `CLUSTER SETSLOT IMPORTING` on the new owner.
    pub fn import(self, cluster: &Cluster) {
        let from = &cluster.node(self.from).id;
        self.set(cluster, self.to, &format!("IMPORTING {from}"));
    }

    /// `CLUSTER SETSLOT MIGRATING` on the present owner.
    pub fn migrate(self, cluster: &Cluster) {
        let to = &cluster.node(self.to).id;
        self.set(cluster, self.from, &format!("MIGRATING {to}"));
    }

    /// `MIGRATE` of every key in the slot.
    pub fn move_keys(self, cluster: &Cluster) {
        send_keys(self.slot, cluster.node(self.from), cluster.node(self.to));
    }

    /// Gives the slot to its new owner. Returns when all nodes that are up agree.
    pub fn give(self, cluster: &Cluster) {
        self.say_given(cluster);
        cluster.wait_until_owned_by(self.slot, self.to);
    }

    /// Tells the new owner first, then the old owner, then the others.
    pub fn say_given(self, cluster: &Cluster) {
        let to = &cluster.node(self.to).id;
        let others = (0..cluster.nodes().len()).filter(|node| ![self.to, self.from].contains(node));
        for node in [self.to, self.from].into_iter().chain(others) {
            // Replicas learn the change from their primaries.
            let is_primary = |node: &Node| role_of(node).as_deref() == Some("master");
            if cluster.node(node).is_up() && is_primary(cluster.node(node)) {
                self.set(cluster, node, &format!("NODE {to}"));
            }
        }
    }

    /// Cancels the move. Keys that have moved go back.
    pub fn cancel(self, cluster: &Cluster) {
        self.close(cluster, self.from);
        send_keys(self.slot, cluster.node(self.to), cluster.node(self.from));
        self.close(cluster, self.to);
    }

    /// Makes this node forget the move.
    pub fn close(self, cluster: &Cluster, node: usize) {
        self.set(cluster, node, "STABLE");
    }

    /// Starts a move at once, by one command of the server.
    pub fn begin_at_once(self, cluster: &Cluster) {
        let Self { slot, from, to } = self;
        let (asked, command) = if is_exported(cluster) {
            let to = &cluster.node(to).id;
            (from, format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {to}"))
        } else {
            (to, format!("CLUSTER MIGRATION IMPORT {slot} {slot}"))
        };
        let reply = cluster.node(asked).cmd(&*command);
        assert!(!matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
    }

    /// Waits until both ends work on the move at once.
    pub fn wait_until_both_are_at_it(self, cluster: &Cluster) {
        let question = if is_exported(cluster) {
            "CLUSTER GETSLOTMIGRATIONS"
        } else {
            "CLUSTER MIGRATION STATUS ALL"
        };
        for node in [self.from, self.to] {
            eventually("the node is at it", || match cluster.node(node).cmd(question) {
                Value::Array(tasks) if !tasks.is_empty() => Ok(()),
                other => Err(other),
            });
        }
    }

    /// Moves the slot by one command of the server, and waits for the end of the move.
    pub fn at_once(self, cluster: &Cluster) {
        self.begin_at_once(cluster);
        cluster.wait_until_owned_by(self.slot, self.to);
    }

    /// Cancels the move at once.
    pub fn cancel_at_once(self, cluster: &Cluster) {
        let (asked, command) = if is_exported(cluster) {
            (self.from, "CLUSTER CANCELSLOTMIGRATIONS")
        } else {
            (self.to, "CLUSTER MIGRATION CANCEL ALL")
        };
        let reply = cluster.node(asked).cmd(command);
        assert!(!matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
    }

    /// The move back.
    pub fn back(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }

    fn set(self, cluster: &Cluster, node: usize, what: &str) {
        let command = format!("CLUSTER SETSLOT {} {what}", self.slot);
        // Valkey tells its replicas first, and fails if one of them is slow.
        eventually(&command, || match cluster.node(node).cmd(&*command) {
            Value::Okay => Ok(()),
            other => Err(other),
        });
    }
}

fn send_keys(slot: u16, from: &Node, to: &Node) {
    let (mut client, port) = (from.client(), to.port().to_string());
    let Value::Array(keys) = client.cmd(format!("CLUSTER GETKEYSINSLOT {slot} 1000")) else {
        panic!("no list of keys")
    };
    for key in keys {
        let Value::BulkString(key) = key else { panic!("{key:?} is no key") };
        let migrate = [&b"MIGRATE"[..], b"127.0.0.1", port.as_bytes(), &key, b"0", b"5000"];
        // A node that the busy machine has delayed takes other nodes for dead for a moment.
        eventually("the node takes the key", || match client.cmd(migrate) {
            // NOKEY: the lease of the key has ended meanwhile.
            Value::Okay | Value::SimpleString(_) => Ok(()),
            refused => match format!("MIGRATE {}: {refused:?}", key.escape_ascii()) {
                refused if refused.contains("CLUSTERDOWN") => Err(refused),
                refused => panic!("{refused}"),
            },
        });
    }
}

/// Whether the server cannot move slots at once. If so, prints what goes untested.
pub fn lacks_moves_at_once() -> bool {
    lacks_either((8, 4), (9, 0), "slots that are moved at once")
}

/// On Valkey the old owner performs the move, on Redis the new one.
fn is_exported(cluster: &Cluster) -> bool {
    matches!(cluster.node(0).cmd("COMMAND INFO cluster|migrateslots"), Value::Array(known)
        if known.iter().any(|entry| *entry != Value::Nil))
}
