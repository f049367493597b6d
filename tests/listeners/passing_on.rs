//! Replicas of replicas, and servers that change their roles.

use super::joining::{follow, primary, wait_until_linked};
use super::load::{Load, assert_same};
use super::{is_always_told, wait_until_nobody_listens};
use redis::Value;
use testkit::{short_or_long, wait_until_in_sync};

#[test]
fn a_replica_of_a_replica_misses_no_change() {
    let [primary, middle, last] = [(); 3].map(|()| primary().start());
    let load = Load::on(&primary);
    wait_until_nobody_listens(&primary);
    follow(&middle, &primary);
    wait_until_linked(&middle);
    follow(&last, &middle);
    wait_until_linked(&last);
    load.paused(|| {
        assert_same(&primary, &middle, "the middle");
        assert_same(&middle, &last, "the last");
    });
    load.finish();
}

/// The former primary and a sibling go on with the one that is promoted, each by the part of the stream that it lacks, if
/// that is to be had.
#[test]
fn whoever_follows_a_server_that_was_promoted_misses_no_change() {
    let [first, second, third] = [(); 3].map(|()| primary().start());
    let load = Load::on(&first);
    wait_until_nobody_listens(&first);
    follow(&second, &first);
    follow(&third, &first);
    wait_until_linked(&second);
    wait_until_linked(&third);
    let (mut old, mut new, sibling) = (&first, &second, &third);
    for _ in 0..short_or_long(3, 30) {
        load.moved(|| {
            wait_until_in_sync(old, new);
            assert_eq!(new.cmd("REPLICAOF NO ONE"), Value::Okay);
            new.socket()
        });
        follow(sibling, new);
        follow(old, new);
        for replica in [old, sibling] {
            wait_until_linked(replica);
            load.paused(|| assert_same(new, replica, "after a promotion"));
        }
        (old, new) = (new, old);
    }
    load.finish();
}

/// The backlog is gone before the former replicas come back.
#[test]
fn a_promoted_server_without_replicas_comes_to_have_no_listeners() {
    if is_always_told() {
        return;
    }
    let [first, second] = [(); 2].map(|()| primary().start());
    follow(&second, &first);
    wait_until_linked(&second);
    assert_eq!(second.cmd("REPLICAOF NO ONE"), Value::Okay);
    let load = Load::on(&second);
    wait_until_nobody_listens(&second);
    follow(&first, &second);
    wait_until_linked(&first);
    load.paused(|| assert_same(&second, &first, "the former primary"));
    load.finish();
}
