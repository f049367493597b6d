//! Replicas that join a server without listeners, while it is written to.

use super::load::{Load, assert_same};
use super::{is_always_told, wait_until_nobody_listens};
use redis::Value;
use testkit::{
    Server, Setup, Snapshot, becomes, is_older_than, is_valkey_since, short_or_long,
    wait_until_in_sync,
};

/// Settings by which data is copied in another way, of the primary and of the replica.
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) primary: &'static [&'static str],
    pub(super) replica: &'static [&'static str],
}

const SOCKETS: [&str; 2] = ["repl-diskless-sync yes", "repl-diskless-sync-delay 0"];
const SOCKETS_LATER: [&str; 2] = ["repl-diskless-sync yes", "repl-diskless-sync-delay 1"];
const TWO_CHANNELS_OF_VALKEY: [&str; 3] = [
    "repl-diskless-sync yes",
    "repl-diskless-sync-delay 0",
    "dual-channel-replication-enabled yes",
];
const TWO_CHANNELS_OF_REDIS: [&str; 3] =
    ["repl-diskless-sync yes", "repl-diskless-sync-delay 0", "repl-rdb-channel yes"];

/// The ways that this server knows.
pub(super) fn ways() -> Vec<Way> {
    let swap = &["repl-diskless-load swapdb"][..];
    let mut ways = vec![
        Way { name: "disk", primary: &["repl-diskless-sync no"], replica: &[] },
        Way { name: "sockets", primary: &SOCKETS, replica: &[] },
        Way { name: "sockets, later", primary: &SOCKETS_LATER, replica: &[] },
        Way { name: "beside the old data", primary: &SOCKETS, replica: swap },
    ];
    if is_valkey_since((8, 0)) {
        let all = &TWO_CHANNELS_OF_VALKEY[..];
        ways.push(Way { name: "two channels", primary: all, replica: all });
    } else if !is_older_than((8, 0)) {
        let all = &TWO_CHANNELS_OF_REDIS[..];
        ways.push(Way { name: "two channels", primary: all, replica: all });
    }
    ways
}

pub(super) fn set(server: &Server, settings: &[&str]) {
    for setting in settings {
        assert_eq!(server.cmd(format!("CONFIG SET {setting}")), Value::Okay, "{setting}");
    }
}

/// A server that others can follow, and that holds on to its backlog for a second only.
pub(super) fn primary() -> Setup {
    Server::builder().tcp().config("repl-backlog-ttl", "1")
}

pub(super) fn wait_until_linked(replica: &Server) {
    becomes("the replica is linked", Some("up".to_owned()), || {
        replica.client().info_field("replication", "master_link_status")
    });
}

#[test]
fn a_replica_that_joins_in_any_way_misses_no_change() {
    for way in ways() {
        for _ in 0..short_or_long(2, 20) {
            let (primary, replica) = (primary().start(), primary().start());
            set(&primary, way.primary);
            set(&replica, way.replica);
            let load = Load::on(&primary);
            wait_until_nobody_listens(&primary);
            replica.follow(&primary);
            wait_until_linked(&replica);
            load.paused(|| assert_same(&primary, &replica, way.name));
            load.finish();
        }
    }
}

/// What is saved between the request of a replica and the fork for it has the same place in the stream as the fork.
#[test]
fn a_primary_that_was_saved_while_a_replica_waited_for_its_data_agrees_with_it_after_a_restart() {
    if is_always_told() {
        return;
    }
    let settings = |setup: Setup| setup.config("repl-ping-replica-period", "3600");
    let mut primary = settings(primary()).start();
    let replica = settings(self::primary()).start();
    set(&primary, &SOCKETS_LATER);
    set(&primary, &["repl-backlog-ttl 3600"]);
    wait_until_nobody_listens(&primary);
    let mut client = primary.client();
    // The module has counted the last changes.
    let quiet_since = client.now();
    client.wait_until_past(quiet_since + 300);
    replica.follow(&primary);
    becomes("the replica waits", 1, || client.info_number("replication", "connected_slaves"));
    let replies = client.pipeline(&["SAVE", "LOCK.ACQUIRE after alice 60000000"]);
    assert!(matches!(replies[..], [Value::Okay, Value::Int(_)]), "{replies:?}");
    wait_until_in_sync(&primary, &replica);
    assert_eq!(Snapshot::of(&primary), Snapshot::of(&replica));
    primary.kill();
    primary.start_again();
    wait_until_in_sync(&primary, &replica);
    assert_eq!(Snapshot::of(&primary), Snapshot::of(&replica));
}
