//! The harness beyond one server: what would let other tests pass though nothing was cut or frozen.

use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Proxy, Sentinels, Server, Way, bulk, eventually, int, lacks, wait_until_in_sync};

#[test]
fn a_proxy_passes_nothing_while_it_is_cut_everything_when_healed_and_one_way_or_late_if_told() {
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

    proxy.slow(Duration::from_millis(100));
    client.cmd("SET k slow");
    let begin = Instant::now();
    assert_eq!(client.cmd("WAIT 1 10000"), int(1));
    // There and back.
    assert!(begin.elapsed() >= Duration::from_millis(200), "after {:?}", begin.elapsed());
    proxy.slow(Duration::ZERO);

    proxy.cut_one_way(Way::ToServer);
    client.cmd("SET k v");
    eventually("the replica has it", || match replica.cmd("GET k") {
        Value::BulkString(value) if value == b"v" => Ok(()),
        other => Err(other),
    });
    assert_eq!(client.cmd("WAIT 1 100"), int(0), "it cannot say so");
}

#[test]
fn what_is_cut_off_and_what_is_frozen_is_not_what_is_down() {
    if lacks((7, 0), "replicas that sentinels know under another address") {
        return;
    }
    let mut sentinels = Sentinels::start();
    assert_eq!(sentinels.primary(), Ok(0));
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
