//! A client that asks the wrong node is told where to go, in the words of the server.

use testkit::{Client, Cluster, SlotMove, code, lacks};

/// Every command that has a key, which is to be answered as one of the server's own.
const COMMANDS: [&str; 7] = [
    "LOCK.ACQUIRE {} alice 60000",
    "LOCK.ACQUIRE {} alice 60000 BLOCK 0",
    "LOCK.RELEASE {} alice",
    "LOCK.EXTEND {} alice 60000",
    "LOCK.CHECK {} alice",
    "LOCK.INFO {}",
    "LOCK.WAITERS {}",
];

#[track_caller]
fn assert_redirected_like_core(client: &mut Client, key: &str, expected: &str) {
    let core = client.cmd(format!("SET {key} v"));
    assert_eq!(code(core.clone()), expected);
    for command in COMMANDS {
        assert_eq!(client.cmd(command.replace("{}", key)), core, "{command}");
    }
}

#[test]
fn who_asks_a_node_that_has_not_the_slot_is_redirected() {
    if lacks((7, 0), "a cluster with these ports") {
        return;
    }
    let cluster = Cluster::of(2, 1);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    // Another primary, and the replica of the right one.
    assert_redirected_like_core(&mut to, &key, "MOVED");
    assert_redirected_like_core(&mut cluster.node(2).client(), &key, "MOVED");
    step.import(&cluster);
    assert_redirected_like_core(&mut to, &key, "MOVED");
    step.migrate(&cluster);
    assert_redirected_like_core(&mut from, &key, "ASK");
    step.give(&cluster);
    assert_redirected_like_core(&mut from, &key, "MOVED");
}
