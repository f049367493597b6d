//! A look at a lock, without asking for it.

use crate::scene::{LONG, both_kinds, eventually_waiting, locks, locks_with, millis, server, soon};
use leasehold_client::{Dialect, Error, Locks, Settings, Target};
use testkit::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_tells_who_has_it_for_how_long() {
    for server in both_kinds() {
        let locks = locks_with(&server, Settings::default().prefix("table:")).await;
        assert_eq!(locks.info("7").await.unwrap(), None);
        let guard = locks.lock("7").owner("a:b").ttl(LONG).await.unwrap();
        let info = soon(locks.info("7")).await.unwrap().unwrap();
        assert_eq!((info.holder.as_str(), info.fence), ("a:b", guard.fence()));
        assert!(info.ttl.unwrap() > LONG - millis(5_000) && info.ttl.unwrap() <= LONG);
        assert_eq!(info.waiters, (locks.dialect() == Dialect::Native).then_some(0));
        assert_eq!(i64::try_from(guard.fence()).unwrap(), guard.fence_i64());
        drop(guard);
        locks.settle().await;
        assert_eq!(locks.info("7").await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_tells_how_many_wait_for_it() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let request = locks.lock("printer");
    let waiter = tokio::spawn(async move { request.await });
    eventually_waiting(&server, "printer", 1).await;
    assert_eq!(locks.info("printer").await.unwrap().unwrap().waiters, Some(1));
    drop(guard);
    drop(soon(waiter).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_kind_of_client_is_shown_too() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        server.cmd("SET printer some-uuid");
        let info = locks.info("printer").await.unwrap().unwrap();
        assert_eq!((info.holder.as_str(), info.fence, info.ttl), ("some-uuid", 0, None));
        server.cmd("DEL printer");
        server.cmd("RPUSH printer x");
        let refused = locks.info("printer").await.unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_cluster_are_looked_at_where_they_are() {
    let cluster = Cluster::start();
    let urls = cluster.nodes().iter().map(|node| crate::scene::url(node.port()));
    let locks = Locks::connect_with(Target::cluster(urls), Settings::default()).await.unwrap();
    for number in 0..20 {
        let guard = locks.lock(number.to_string()).ttl(LONG).await.unwrap();
        let info = locks.info(guard.name()).await.unwrap().unwrap();
        assert_eq!((info.holder.as_str(), info.fence), (guard.owner(), guard.fence()));
    }
}
