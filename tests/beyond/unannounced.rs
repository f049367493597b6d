//! Slots that come and go otherwise than the commands say when the module hears of them.

use super::{LONG, SOON, pass, two_clocks};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::{
    Client, Cluster, Slot, SlotMove, Stopwatch, Waiter, code, eventually, is_valkey_since, lacks,
    lacks_settings,
};

/// Waits until the node would send clients of this slot elsewhere; when that was.
fn wait_until_elsewhere(client: &mut Client, slot: &Slot) -> Stopwatch {
    // Not a key that somebody waits for: to name it is to have it looked at.
    let other = slot.key("other");
    eventually("the node knows that the slot has gone", || match client.cmd(["EXISTS", &other]) {
        Value::ServerError(told) if ["MOVED", "CLUSTERDOWN"].contains(&told.code()) => {
            Ok(Stopwatch::start())
        }
        other => Err(other),
    })
}

/// Makes the slot of the first node the second one's without telling the first. Returns when the first knows.
fn goes(cluster: &Cluster, slot: &Slot) -> Stopwatch {
    SlotMove { slot: slot.number, from: 0, to: 1 }.import(cluster);
    let us = &cluster.node(1).id;
    let given = cluster.node(1).cmd(format!("CLUSTER SETSLOT {} NODE {us}", slot.number));
    assert_eq!(given, Value::Okay);
    wait_until_elsewhere(&mut cluster.node(0).client(), slot)
}

#[track_caller]
fn assert_is_sent_away_soon(mut waiter: Waiter, since: &Stopwatch) {
    assert_eq!(code(waiter.reply()), "TRYAGAIN");
    assert!(since.elapsed() < SOON, "after {:?}", since.elapsed());
}

/// The server's routine runs so often in a second.
fn unhurried(nodes: usize, hz: u32) -> Cluster {
    Cluster::with(nodes, 0, |_, setup| {
        setup.config("hz", &hz.to_string()).config("cluster-require-full-coverage", "no")
    })
}

/// As often as it does unless told otherwise.
const USUAL_HZ: u32 = 10;

/// Too seldom to be of any help.
const SLOW_HZ: u32 = 1;

/// More locks than the module asks the server about at once. Others may stay, who came first.
#[test]
fn who_waits_where_a_slot_has_gone_without_a_word_is_sent_away_soon() {
    const LOCKS: usize = 300;
    let cluster = unhurried(3, USUAL_HZ);
    let (node, slot) = (cluster.node(0), cluster.slot_of(0));
    let mut client = node.client();
    let stays: Vec<_> = (0..20)
        .map(|_| {
            let key = cluster.slot_of(0).key("stays");
            client.acquire(&key, "alice", LONG);
            Waiter::of(node, &key, "bob")
        })
        .collect();
    let mut waiters = Crowd::of(node, LOCKS);
    for lock in 0..LOCKS {
        let key = slot.key(&lock.to_string());
        client.grant(&key, "alice", LONG);
        waiters.send(lock, format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 0"));
    }
    client.wait_until_waiters((stays.len() + LOCKS) as u64);
    let gone = goes(&cluster, &slot);
    let replies = waiters.one_reply_each();
    assert!(gone.elapsed() < SOON, "after {:?}", gone.elapsed());
    for reply in replies {
        assert_eq!(reply.map(code).as_deref(), Some("TRYAGAIN"));
    }
    stays.iter().for_each(|waiter| waiter.assert_waits(node));
}

#[test]
fn who_waits_where_a_slot_goes_is_sent_away_soon_also_while_writes_are_paused() {
    if lacks((7, 0), "CLIENT PAUSE that lets commands of the cluster pass") {
        return;
    }
    let cluster = unhurried(1, SLOW_HZ);
    let slot = cluster.slot_of(0);
    let (key, ends) = (slot.key("k"), slot.key("ends"));
    let mut client = cluster.node(0).client();
    client.grant(&key, "alice", LONG);
    client.grant(&ends, "alice", 300);
    let waiters = [&key, &ends].map(|key| Waiter::of(cluster.node(0), key, "bob"));
    assert_eq!(client.cmd("CLIENT PAUSE 60000 WRITE"), Value::Okay);
    pass(&mut client, 310);
    assert_eq!(client.cmd(format!("CLUSTER DELSLOTS {}", slot.number)), Value::Okay);
    let gone = Stopwatch::start();
    for waiter in waiters {
        assert_is_sent_away_soon(waiter, &gone);
    }
    client.cmd("CLIENT UNPAUSE");
}

/// The module hears of it when it is queued. Until it is executed, however long that takes, the other node goes on granting
/// locks.
#[test]
fn fences_grow_over_a_move_that_was_queued_in_a_transaction() {
    if lacks_settings() {
        return;
    }
    let (cluster, _behind) = two_clocks();
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    SlotMove { slot: slot.number, from: 0, to: 1 }.import(&cluster);
    let us = &cluster.node(1).id;
    to.cmd("MULTI");
    to.cmd(format!("CLUSTER SETSLOT {} NODE {us}", slot.number));
    pass(&mut from, 5_500);
    let before = from.grant(&key, "alice", LONG);
    assert!(from.release(&key, "alice"));
    assert_eq!(to.cmd("EXEC"), Value::Array(vec![Value::Okay]));
    let after = to.grant(&key, "bob", LONG);
    assert!(after > before, "{after} is not above {before}");
}

fn is_moved(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "MOVED")
}

/// Valkey tells its replicas first, and executes the command when they know.
#[test]
fn fences_grow_over_a_move_that_waits_for_a_slow_replica() {
    if !is_valkey_since((8, 0)) {
        return;
    }
    let (cluster, _behind) = super::two_clocks_and_replicas();
    let proxy = cluster.put_proxy_before(1);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    SlotMove { slot: slot.number, from: 0, to: 1 }.import(&cluster);
    proxy.slow(Duration::from_millis(1_200));
    let mut to = cluster.node(1).client();
    let us = &cluster.node(1).id;
    to.send(format!("CLUSTER SETSLOT {} NODE {us} TIMEOUT 15000", slot.number));
    let (mut from, mut observer) = (cluster.node(0).client(), cluster.node(1).client());
    let mut before = 0;
    let begun = Instant::now();
    while observer.cmd(["EXISTS", &key]) != Value::Int(0) {
        assert!(begun.elapsed() < Duration::from_secs(15), "it never came");
        match from.cmd(format!("LOCK.ACQUIRE {key} alice {LONG}")) {
            Value::Int(fence) => before = fence.try_into().unwrap(),
            // The former owner of the slot may hear of it before the observer asks again.
            reply => assert!(is_moved(&reply), "{reply:?}"),
        }
        let reply = from.cmd(format!("LOCK.RELEASE {key} alice"));
        assert!(reply == Value::Int(1) || is_moved(&reply), "{reply:?}");
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "it did not wait");
    assert_eq!(to.receive(), Value::Okay);
    let after = to.grant(&key, "bob", LONG);
    assert!(after > before, "{after} is not above {before}");
}

/// Who may do nothing can say the word all the same, and the module hears it.
#[test]
fn an_evicted_lock_is_not_given_away_because_somebody_speaks_of_slots() {
    let cluster = Cluster::with(1, 0, |_, setup| setup.config("maxmemory-policy", "volatile-ttl"));
    let node = cluster.node(0);
    let mut client = node.client();
    let alices = client.grant("k", "alice", LONG);
    let bob = Waiter::of(node, "k", "bob");
    client.cmd("SET filler x");
    let evict = ["CONFIG SET maxmemory 1mb", "GET filler", "GET filler", "EXISTS k"];
    let told =
        client.pipeline(&[&evict[..], &["CLUSTER SETSLOT", "CONFIG SET maxmemory 0"]].concat());
    assert_eq!(told[3], Value::Int(0), "it is evicted");
    assert!(matches!(&told[4], Value::ServerError(_)), "{told:?}");
    eventually("it is put back", || client.check("k", "alice").filter(|&f| f == alices).ok_or(()));
    bob.assert_waits(node);
}
