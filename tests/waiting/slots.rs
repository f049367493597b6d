//! In a cluster: a lock whose slot leaves the node is not granted there, and its waiters are sent away. What
//! becomes of the locks then is in `tests/beyond/`.

use super::{LONG, Waiter, waiters};
use redis::Value;
use testkit::contended::Contended;
use testkit::traffic::Traffic;
use testkit::{Cluster, NEVER, Seed, SlotMove, Stopwatch, becomes, code, error, lacks_either};

const TRYAGAIN: &str = "TRYAGAIN this node does not grant the lock any more, ask again";

#[test]
fn a_lock_whose_slot_leaves_the_node_is_not_granted_there() {
    let cluster = Cluster::of(2, 0);
    let (from, to) = (cluster.node(0), cluster.node(1));
    let mut client = from.client();
    let migrate = format!("MIGRATE 127.0.0.1 {} {{}} 0 5000", to.port());
    // What frees each lock while its slot is on its way out.
    for free in [&*migrate, "LOCK.RELEASE {} alice", "DEL {}", "PEXPIRE {} 30"] {
        let slot = cluster.slot_of(0);
        let key = slot.key("k");
        let fence = client.grant(&key, "alice", LONG);
        let mut bob = Waiter::of(from, &key, "bob");
        let step = SlotMove { slot: slot.number, from: 0, to: 1 };
        step.import(&cluster);
        step.migrate(&cluster);
        bob.assert_waits(from);
        let reply = client.cmd(free.replace("{}", &key));
        assert!(!matches!(reply, Value::ServerError(_)), "{free}: {reply:?}");
        assert_eq!(bob.reply(), error(TRYAGAIN), "{free}");
        becomes(&format!("nothing is left after {free}"), Value::Int(0), || {
            client.cmd(format!("CLUSTER COUNTKEYSINSLOT {}", slot.number))
        });
        let there = to.client().pipeline(&["ASKING", &format!("LOCK.CHECK {key} alice")]);
        let moved = free == migrate;
        assert_eq!(there[1], if moved { Value::Int(fence as i64) } else { Value::Nil }, "{free}");
    }
    assert_eq!(waiters(from), 0);
}

#[test]
fn a_lock_whose_slot_is_emptied_is_handed_on() {
    if lacks_either(NEVER, (9, 0), "CLUSTER FLUSHSLOT") {
        return;
    }
    let cluster = Cluster::of(1, 0);
    let slot = cluster.slot_of(0);
    let node = cluster.node(0);
    let mut client = node.client();
    client.grant(slot.key("k"), "alice", LONG);
    let mut bob = Waiter::of(node, &slot.key("k"), "bob");
    let flush = format!("CLUSTER FLUSHSLOT {}", slot.number);
    assert_eq!(client.cmd(flush), Value::Okay);
    // It is noticed by the look each second.
    bob.fence();
}

#[test]
fn who_waits_for_a_lock_whose_slot_leaves_is_sent_away_although_other_contended_locks_are_named() {
    let cluster = Cluster::of(2, 0);
    let node = cluster.node(0);
    // More than are looked at in one turn of the server.
    let contended = Contended::hold(node, &cluster.slot_of(0).key("lock:"), 1_500);
    let _traffic = Traffic::on(node, 50, "", contended.polls(&mut Seed::announced()));
    let mut seen = [(); 3].map(|()| {
        let slot = cluster.slot_of(0);
        let key = slot.key("victim");
        node.client().grant(&key, "alice", LONG);
        let mut bob = Waiter::of(node, &key, "bob");
        let step = SlotMove { slot: slot.number, from: 0, to: 1 };
        step.import(&cluster);
        step.migrate(&cluster);
        let moved = Stopwatch::start();
        step.move_keys(&cluster);
        let told = code(bob.reply());
        assert!(["TRYAGAIN", "MOVED", "ASK"].contains(&&*told), "{told}");
        moved.elapsed().as_millis()
    });
    seen.sort_unstable();
    // Where the machine is busy too, within the second after which all locks are looked at anyway.
    assert!(seen[1] <= 200 && seen[2] <= 800, "sent away after {seen:?} ms");
}
