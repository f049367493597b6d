//! A proxy that delivers late what a client sent before it gave the connection up.

use crate::scene::{LONG, both_kinds, eventually, held, locks, millis, soon, url};
use leasehold_client::{Extended, Guard, Locks, Loss, Request, Settings};
use std::time::{Duration, Instant};
use testkit::{Proxy, Server};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

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
    left_of(server, "printer")
}

fn left_of(server: &Server, key: &str) -> i64 {
    match server.cmd(["PTTL", key]) {
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

#[tokio::test(flavor = "multi_thread")]
async fn the_next_guard_of_an_owner_allows_for_an_extension_of_the_last_one_that_arrives_late() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let ours = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
        let alice = || ours.lock("printer").owner("alice").fixed_ttl(LONG);
        let last = alice().await.unwrap();
        proxy.hold();
        // Its first try goes unanswered, and the next one takes another connection.
        assert_eq!(last.extend(millis(SHORT)).await.unwrap(), Extended::Extended);
        let fence = last.fence();
        last.keep();
        let guard = alice().await.unwrap();
        assert_eq!(guard.fence(), fence, "the server knows the owner");
        assert!(guard.valid_for() <= millis(SHORT), "{:?}", guard.valid_for());
        let next = tokio::spawn(locks(&server).await.lock("printer").ttl(LONG).into_future());
        delivered(&proxy, &server).await;
        let next = soon(next).await.unwrap().unwrap();
        assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Expired), millis(0)));
        assert!(next.fence() > guard.fence());
    }
}

/// The connection on which it was sent is gone before it arrives, and so is its runtime.
#[test]
fn a_release_that_arrives_late_does_not_free_the_lock_of_the_next_guard_of_its_owner() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let locks = Locks::new(url(proxy.port())).unwrap();
        let alice = || locks.lock("printer").owner("alice").ttl(LONG).into_future();
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (first, ours) = (runtime(), runtime());
        first.block_on(async {
            let guard = soon(alice()).await.unwrap();
            proxy.hold();
            assert!(timeout(millis(200), guard.release()).await.is_err());
        });
        drop(first);
        ours.block_on(async {
            let guard = soon(alice()).await.unwrap();
            proxy.deliver();
            let until = Instant::now() + millis(500);
            while Instant::now() < until {
                assert!(held(&server, "printer").is_some(), "{:?}", guard.valid_for());
                sleep(millis(5)).await;
            }
            assert_eq!(guard.loss(), None);
            assert!(soon(guard.release()).await.unwrap().in_time());
        });
    }
}

/// Renewals that the server did not answer in time are tried again.
#[tokio::test]
async fn a_renewal_of_a_guard_that_is_gone_does_not_cut_the_lease_of_the_next_one() {
    const TTL: Duration = millis(3_000);
    for mut server in both_kinds() {
        let locks = locks(&server).await;
        let alice = |name: &String| locks.lock(name).owner("alice");
        let names: Vec<_> = (0..20).map(|number| format!("printer:{number}")).collect();
        let mut first = Vec::new();
        for name in &names {
            first.push(alice(name).ttl(TTL).await.unwrap());
        }
        sleep(millis(900)).await;
        server.freeze();
        sleep(millis(400)).await;
        // The next one asks before the release of the first one is begun.
        let requests: Vec<_> = (names.iter().zip(first))
            .map(|(name, guard)| {
                let request = alice(name).ttl(LONG);
                tokio::spawn(async move {
                    drop(guard);
                    request.await
                })
            })
            .collect();
        sleep(millis(800)).await;
        server.thaw();
        let mut guards = Vec::new();
        for request in requests {
            guards.push(soon(request).await.unwrap().unwrap());
        }
        let until = Instant::now() + TTL;
        while Instant::now() < until {
            for (name, guard) in names.iter().zip(&guards) {
                let valid = i64::try_from(guard.valid_for().as_millis()).unwrap();
                let left = left_of(&server, name);
                assert!(
                    left + 100 > valid,
                    "{name}: {left} ms are left, {valid} ms are counted on"
                );
            }
            sleep(millis(20)).await;
        }
    }
}
