//! A proxy that delivers late what a client sent before it gave the connection up.

use crate::scene::{LONG, both_kinds, eventually, locks, millis, soon, url};
use crate::support::{Proxy, Server};
use leasehold_client::{Extended, Guard, Locks, Loss, Request, Settings};

/// That of the extension which arrives late.
const SHORT: u64 = 1_000;

/// A guard that was extended for long, after a shorter extension got stuck in the proxy.
async fn extended_past_a_stuck_one(proxy: &Proxy, lock: impl Fn(&Locks) -> Request) -> Guard {
    let locks = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
    let guard = lock(&locks).await.unwrap();
    proxy.hold();
    // Its first try goes unanswered, and the next one takes another connection.
    assert_eq!(guard.extend(millis(SHORT)).await.unwrap(), Extended::Extended);
    assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
    guard
}

/// What is left of the lease on the server, in milliseconds.
fn left(server: &Server) -> i64 {
    match server.cmd("PTTL printer") {
        redis::Value::Int(left) => left,
        other => panic!("{other:?}"),
    }
}

async fn delivered(proxy: &Proxy, server: &Server) {
    assert!(left(server) > 2 * SHORT.cast_signed(), "{}", left(server));
    proxy.deliver();
    eventually("the lease is cut on the server", || match left(server) {
        left if left <= SHORT.cast_signed() => Ok(()),
        left => Err(left),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_lost_before_an_extension_that_arrives_late_frees_its_lock() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let lock = |locks: &Locks| locks.lock("printer").fixed_ttl(LONG);
        let guard = extended_past_a_stuck_one(&proxy, lock).await;
        assert!(guard.valid_for() <= millis(SHORT), "{:?}", guard.valid_for());
        let next = locks(&server).await.lock("printer").ttl(LONG);
        let next = tokio::spawn(next.into_future());
        delivered(&proxy, &server).await;
        let next = soon(next).await.unwrap().unwrap();
        assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Expired), millis(0)));
        assert!(next.fence() > guard.fence());
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_renewed_outlives_an_extension_that_arrives_late() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let guard = extended_past_a_stuck_one(&proxy, |locks| locks.lock("printer")).await;
        // So that the next renewal does not hide what arrives late.
        eventually("it was renewed just now", || match left(&server) {
            left if millis(left.cast_unsigned()) > LONG - millis(50) => Ok(()),
            left => Err(left),
        })
        .await;
        delivered(&proxy, &server).await;
        eventually("it is extended again on the server", || match left(&server) {
            left if left > 2 * SHORT.cast_signed() => Ok(()),
            left => Err(left),
        })
        .await;
        assert_eq!(guard.loss(), None);
        assert!(guard.valid_for() <= millis(SHORT), "{:?}", guard.valid_for());
    }
}
