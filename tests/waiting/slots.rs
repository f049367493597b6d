//! In a cluster: a lock whose slot leaves the node is not granted there, and its waiters are sent away; nor is
//! anybody left waiting on a node that became a replica.

use super::{LONG, Waiter, waiters};
use crate::support::{Server, error, eventually};
use redis::Value;

const TRYAGAIN: &str = "TRYAGAIN the slot of this lock is leaving the node, ask again";

struct Node {
    server: Server,
    id: String,
}

impl Node {
    fn start() -> Self {
        let server = Server::builder()
            .tcp()
            .config("cluster-enabled", "yes")
            .config("cluster-node-timeout", "2000")
            .config("cluster-require-full-coverage", "no")
            .start();
        let id = text(&server.cmd("CLUSTER MYID"));
        Self { server, id }
    }

    /// Makes the two know each other.
    fn meets(&self, other: &Self) {
        self.server.cmd(format!("CLUSTER MEET 127.0.0.1 {}", other.server.port()));
        for (one, other) in [(self, other), (other, self)] {
            eventually("the nodes know each other", || {
                let nodes = text(&one.server.cmd("CLUSTER NODES"));
                let line = nodes.lines().find(|line| line.starts_with(&other.id));
                match line {
                    Some(line) if line.contains("connected") && !line.contains("handshake") => {
                        Ok(())
                    }
                    _ => Err(nodes),
                }
            });
        }
    }

    fn takes_all_slots(&self) {
        let slots: Vec<_> = (0..16_384).map(|slot: u16| slot.to_string()).collect();
        assert_eq!(self.server.cmd(format!("CLUSTER ADDSLOTS {}", slots.join(" "))), Value::Okay);
    }

    fn is_up(&self) {
        eventually("the cluster is up", || {
            let info = text(&self.server.cmd("CLUSTER INFO"));
            if info.contains("cluster_state:ok") { Ok(()) } else { Err(info) }
        });
    }
}

fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn a_lock_whose_slot_leaves_the_node_is_not_granted_there() {
    let (from, to) = (Node::start(), Node::start());
    from.takes_all_slots();
    from.meets(&to);
    from.is_up();
    to.is_up();
    let mut client = from.server.client();
    // What frees each lock while its slot is on its way out.
    let migrate = format!("MIGRATE 127.0.0.1 {} moved 0 5000", to.server.port());
    for (key, free) in [
        ("moved", &*migrate),
        ("released", "LOCK.RELEASE released alice"),
        ("deleted", "DEL deleted"),
        ("ended", "PEXPIRE ended 30"),
    ] {
        client.grant(key, "alice", LONG);
        let mut bob = Waiter::of(&from.server, key, "bob");
        let Value::Int(slot) = client.cmd(format!("CLUSTER KEYSLOT {key}")) else {
            panic!("no slot")
        };
        to.server.cmd(format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id));
        client.cmd(format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id));
        bob.assert_waits(&from.server);
        let reply = client.cmd(free);
        assert!(!matches!(reply, Value::ServerError(_)), "{free}: {reply:?}");
        assert_eq!(bob.reply(), error(TRYAGAIN), "{free}");
        eventually("nothing of it is left", || {
            match client.cmd(format!("CLUSTER COUNTKEYSINSLOT {slot}")) {
                Value::Int(0) => Ok(()),
                left => Err((free, left)),
            }
        });
    }
    assert_eq!(waiters(&from.server), 0);
    let replies = to.server.client().pipeline(&["ASKING", "LOCK.CHECK moved alice"]);
    assert!(matches!(replies[1], Value::Int(1..)), "it is held there: {replies:?}");
}

#[test]
fn nobody_waits_on_at_a_node_that_became_a_replica() {
    let (primary, replica) = (Node::start(), Node::start());
    primary.takes_all_slots();
    primary.meets(&replica);
    primary.is_up();
    eventually("the replica follows", || {
        match replica.server.cmd(format!("CLUSTER REPLICATE {}", primary.id)) {
            Value::Okay => Ok(()),
            other => Err(other),
        }
    });
    eventually("the replica is in sync", || {
        let link = replica.server.client().info_field("replication", "master_link_status");
        if link.as_deref() == Some("up") { Ok(()) } else { Err(link) }
    });
    primary.server.client().grant("k", "alice", LONG);
    let mut queued = ["bob", "carol"].map(|owner| Waiter::of(&primary.server, "k", owner));
    eventually("the replica takes over", || {
        replica.server.cmd("CLUSTER FAILOVER");
        match replica.server.client().info_field("replication", "role").as_deref() {
            Some("master") => Ok(()),
            other => Err(other.map(str::to_owned)),
        }
    });
    for waiter in &mut queued {
        match waiter.client.try_receive() {
            Ok(Value::ServerError(told)) => {
                assert!(["UNBLOCKED", "TRYAGAIN", "MOVED"].contains(&told.code()), "{told}");
            }
            other => panic!("it was told {other:?}"),
        }
    }
    assert_eq!(waiters(&primary.server), 0);
}
