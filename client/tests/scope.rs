//! `with_lock`: the lock is released however the work ends.

use crate::scene::{LONG, eventually, held, locks, server};
use crate::support::Server;
use leasehold_client::{Error, Locks, Options};
use std::future::pending;
use std::time::Duration;

async fn scene() -> (Server, Locks) {
    let server = server();
    let locks = locks(&server).await;
    (server, locks)
}

fn options() -> Options {
    Options::new().ttl(LONG)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_held_during_the_work_and_released_after_it() {
    let (server, locks) = scene().await;
    let fence = locks.with_lock("printer", options(), async |guard| {
        assert!(held(&server, "printer").unwrap().ends_with(guard.owner()));
        guard.fence()
    });
    assert!(fence.await.unwrap() > 0);
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_released_when_the_work_fails() {
    let (server, locks) = scene().await;
    let failed = locks.with_lock("printer", options(), async |_| Err::<(), _>("out of paper"));
    assert_eq!(failed.await.unwrap(), Err("out of paper"));
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_released_when_the_work_panics() {
    let (server, locks) = scene().await;
    let theirs = locks.clone();
    let work = tokio::spawn(async move {
        theirs
            .with_lock("printer", options(), async |guard| {
                assert!(guard.fence() == 0, "as a bug would");
            })
            .await
    });
    assert!(work.await.unwrap_err().is_panic());
    locks.settle().await;
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_released_when_the_work_is_dropped_half_way() {
    let (server, locks) = scene().await;
    let theirs = locks.clone();
    let work = tokio::spawn(async move {
        theirs.with_lock("printer", options(), async |_| pending::<()>().await).await
    });
    eventually("it is held", || held(&server, "printer").ok_or(())).await;
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    locks.settle().await;
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_is_not_begun_without_the_lock() {
    let (_server, locks) = scene().await;
    let _guard = locks.try_lock("printer").await.unwrap().expect("it is free");
    let impatient = options().wait(Duration::from_millis(50));
    let refused = locks.with_lock("printer", impatient, async |_| panic!("it was begun"));
    assert!(matches!(refused.await, Err(Error::Busy { ref name, .. }) if name == "printer"));
}
