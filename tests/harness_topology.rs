//! The harness beyond one server: clusters, sentinels, links that can be cut, servers that are frozen.

use redis::Value;
use std::time::{Duration, Instant};
use testkit::{
    Cluster, Proxy, Sentinels, Server, SlotMove, Takeover, Way, bulk, eventually, int, lacks,
    lacks_moves_at_once, wait_until_in_sync, wait_until_it_is,
};

/// How long a topology may take to be up. Servers themselves make a cluster wait for two seconds.
const SECONDS_TO_BE_UP: u64 = 15;

fn started<T>(what: &str, start: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let started = start();
    println!("{what} was up after {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(SECONDS_TO_BE_UP), "{what} takes long");
    started
}

#[test]
fn a_cluster_of_three_primaries_with_a_replica_each_is_up_in_seconds() {
    let cluster = started("a cluster of six", Cluster::start);
    for index in 0..3 {
        let slot = cluster.slot_of(index);
        let key = slot.key("k");
        assert_eq!(cluster.owner(slot.number), index);
        assert_eq!(cluster.client().cmd(["SET", &key, "v"]), Value::Okay);
        assert_eq!(cluster.client_for(&key).cmd(["GET", &key]), bulk("v"));
        wait_until_in_sync(cluster.node(index), cluster.node(index + 3));
        let replies =
            cluster.node(index + 3).client().pipeline(&["READONLY", &format!("GET {key}")]);
        assert_eq!(replies[1], bulk("v"));
    }
}

#[test]
fn a_client_of_a_cluster_follows_a_slot_that_moves() {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let (key, absent) = (slot.key("k"), slot.key("absent"));
    let mut client = cluster.client();
    client.cmd(["SET", &key, "v"]);
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.import(&cluster);
    step.migrate(&cluster);
    assert_eq!(client.cmd(["GET", &key]), bulk("v"));
    assert_eq!(client.cmd(["GET", &absent]), Value::Nil);
    assert_eq!(client.detours, ["ASK"]);
    step.move_keys(&cluster);
    assert_eq!(client.cmd(["GET", &key]), bulk("v"));
    step.give(&cluster);
    assert_eq!(client.cmd(["GET", &key]), bulk("v"));
    assert_eq!(client.detours, ["ASK", "ASK", "MOVED"]);
}

#[test]
fn a_slot_that_was_to_move_by_hand_stays_when_that_is_cancelled() {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.import(&cluster);
    step.migrate(&cluster);
    step.cancel(&cluster);
    let mut client = cluster.client();
    assert_eq!(client.cmd(["SET", &slot.key("k"), "v"]), Value::Okay);
    assert_eq!(client.detours, [""; 0]);
}

#[test]
fn a_slot_moves_at_once_with_its_keys() {
    if lacks_moves_at_once() {
        return;
    }
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    cluster.client().cmd(["SET", &key, "v"]);
    SlotMove { slot: slot.number, from: 0, to: 1 }.at_once(&cluster);
    assert_eq!(cluster.owner(slot.number), 1);
    assert_eq!(cluster.client_for(&key).cmd(["GET", &key]), bulk("v"));
}

#[test]
fn a_replica_takes_over_in_each_way_a_cluster_knows() {
    let cluster = Cluster::of(3, 1);
    for (index, how) in [Takeover::Agreed, Takeover::Forced, Takeover::Unasked].iter().enumerate() {
        let slot = cluster.slot_of(index);
        cluster.take_over(index + 3, *how);
        wait_until_it_is(cluster.node(index), "slave");
        cluster.wait_until_owned_by(slot.number, index + 3);
    }
    cluster.wait_until_ok();
}

#[test]
fn a_cluster_fails_without_most_of_its_primaries_and_recovers_with_them() {
    let mut cluster = Cluster::of(3, 0);
    cluster.node_mut(1).kill();
    cluster.node_mut(2).freeze();
    cluster.node(0).wait_until("fail");
    cluster.node_mut(1).start_again();
    cluster.node_mut(2).thaw();
    cluster.wait_until_ok();
}

#[test]
fn sentinels_promote_a_replica_when_the_primary_dies_and_the_old_one_follows_it() {
    let mut sentinels = started("three servers and three sentinels", Sentinels::start);
    assert_eq!(sentinels.primary(), Ok(0));
    sentinels.server_mut(0).kill();
    let begin = Instant::now();
    let primary = sentinels.wait_for_another_primary_than(0);
    println!("another primary after {:?}", begin.elapsed());
    sentinels.server_mut(0).start_again();
    sentinels.wait_until_follows(0, primary);
}

#[test]
fn a_proxy_passes_everything_until_it_is_cut_and_again_when_it_is_healed() {
    let primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let setup = Server::builder().replica_through(proxy.port());
    let replica = setup.config("repl-timeout", "60").start();
    wait_until_in_sync(&primary, &replica);
    let mut client = primary.client();
    client.cmd("SET k before");
    wait_until_in_sync(&primary, &replica);

    proxy.cut();
    client.cmd("SET k during");
    assert_eq!(client.cmd("WAIT 1 100"), int(0));
    assert_eq!(replica.cmd("GET k"), bulk("before"));
    proxy.heal();
    wait_until_in_sync(&primary, &replica);
    assert_eq!(replica.cmd("GET k"), bulk("during"));
}

#[test]
fn a_proxy_can_be_cut_one_way() {
    let primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    proxy.cut_one_way(Way::ToServer);
    let mut client = primary.client();
    client.cmd("SET k v");
    eventually("the replica has it", || match replica.cmd("GET k") {
        Value::BulkString(_) => Ok(()),
        other => Err(other),
    });
    assert_eq!(client.cmd("WAIT 1 100"), int(0), "it cannot say so");
}

#[test]
fn a_slow_proxy_is_slow() {
    let primary = Server::builder().tcp().start();
    let proxy = Proxy::to(primary.port());
    let replica = Server::builder().replica_through(proxy.port()).start();
    wait_until_in_sync(&primary, &replica);
    proxy.slow(Duration::from_millis(100));
    let mut client = primary.client();
    client.cmd("SET k v");
    let begin = Instant::now();
    assert_eq!(client.cmd("WAIT 1 10000"), int(1));
    // There and back.
    assert!(begin.elapsed() >= Duration::from_millis(200), "after {:?}", begin.elapsed());
}

#[test]
fn a_frozen_server_answers_when_it_is_thawed() {
    let mut server = Server::start();
    let mut client = server.client();
    server.freeze();
    client.send("PING");
    server.thaw();
    assert_eq!(client.receive(), Value::SimpleString("PONG".to_owned()));
    server.freeze();
}

#[test]
fn what_is_cut_off_and_what_is_frozen_is_not_what_is_down() {
    if lacks((7, 0), "replicas that sentinels know under another address") {
        return;
    }
    let mut sentinels = Sentinels::start();
    sentinels.proxy.cut();
    let second = sentinels.wait_for_another_primary_than(0);
    let role = sentinels.server(0).client().info_field("replication", "role");
    assert_eq!(role.as_deref(), Some("master"), "it does not know");
    sentinels.proxy.heal();
    sentinels.wait_until_follows(0, second);
    sentinels.server_mut(second).freeze();
    let third = sentinels.wait_for_another_primary_than(second);
    sentinels.server_mut(second).thaw();
    sentinels.wait_until_follows(second, third);
}
