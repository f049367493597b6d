//! `health` is certain, or an error.

use crate::scene::{both_kinds, locks, millis, server};
use leasehold_client::Error;
use redis::Value;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_is_shown_by_a_lock_that_leaves_nothing_behind() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let health = locks.health(millis(5_000)).await.unwrap();
        assert_eq!(health.dialect, locks.dialect());
        let Value::Array(keys) = server.cmd("KEYS *") else { panic!("no keys") };
        let locks = keys.iter().filter(|key| !format!("{key:?}").contains(":fence"));
        assert_eq!(locks.count(), 0, "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_an_error_in_time() {
    let mut server = server();
    let locks = locks(&server).await;
    server.freeze();
    let begun = Instant::now();
    assert!(matches!(locks.health(millis(300)).await, Err(Error::Unreachable { .. })));
    assert!(begun.elapsed() < millis(1_000), "{:?}", begun.elapsed());
    server.thaw();
    locks.health(millis(5_000)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_take_writes_is_an_error() {
    let server = server();
    let locks = locks(&server).await;
    server.cmd("CONFIG SET min-replicas-to-write 1");
    assert!(locks.health(millis(300)).await.is_err());
    server.cmd("CONFIG SET min-replicas-to-write 0");
    locks.health(millis(5_000)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_an_error() {
    let mut server = server();
    let locks = locks(&server).await;
    server.kill();
    assert!(locks.health(millis(300)).await.is_err());
}
