//! A client that asks the wrong node is told where to go, in the words of the server.

use super::LONG;
use redis::Value;
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

#[test]
fn a_transaction_or_a_script_has_the_locks_of_one_slot() {
    if lacks((7, 0), "a cluster with these ports") {
        return;
    }
    let cluster = Cluster::of(2, 0);
    let [one, other] = [cluster.slot_of(0), cluster.slot_of(0)].map(|slot| slot.key("k"));
    let elsewhere = cluster.slot_of(1).key("k");
    let mut client = cluster.node(0).client();
    let mut exec = |commands: [String; 2]| {
        let [first, second] = &commands;
        client.pipeline(&["MULTI", first, second, "EXEC"])
    };
    let core = exec([format!("SET {one} v"), format!("SET {other} v")]);
    assert_eq!(code(core[3].clone()), "CROSSSLOT");
    let locks = [&one, &other].map(|key| format!("LOCK.ACQUIRE {key} alice {LONG}"));
    assert_eq!(exec(locks), core);

    let calls = |command: &str, client: &mut Client| {
        let script = format!("return redis.call('{command}', ARGV[1], 'alice', 60000)");
        let reply = client.cmd(["EVAL", &script, "1", &one, &elsewhere]);
        match reply {
            Value::ServerError(told) => {
                told.details().unwrap().split(" script").next().unwrap().to_owned()
            }
            other => panic!("{other:?}"),
        }
    };
    let core = calls("PSETEX", &mut client);
    assert_eq!(calls("LOCK.ACQUIRE", &mut client), core);
    assert_eq!(cluster.node(0).cmd("DBSIZE"), Value::Int(0), "nothing was changed");
}
