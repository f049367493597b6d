//! A proxy that delivers late what a client sent before it gave the connection up.

use crate::scene::{
    LONG, both_kinds, client, eventually, eventually_free, held, lock, locks, millis, server, soon,
    standing, ttl_of, url, waiters,
};
use leasehold_client::{Extended, Guard, Locks, Loss, Released, Request, Settings};
use std::time::{Duration, Instant};
use testkit::{Proxy, Server};
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
    ttl_of(server, "printer")
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

/// Each try asks for what is left of that time.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_guard_of_an_owner_allows_for_each_try_to_hold_the_lock_on_that_arrives_late() {
    const LEAST: Duration = millis(15_000);
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let ours = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
        let alice = || ours.lock("printer").owner("alice").fixed_ttl(LONG);
        let last = alice().hold_at_least(LEAST).await.unwrap();
        let fence = last.fence();
        proxy.hold();
        // Its first try goes unanswered, and the next one takes another connection.
        assert_eq!(soon(last.release()).await.unwrap(), Released::Later);
        let guard = soon(alice()).await.unwrap();
        assert_eq!(guard.fence(), fence, "the server knows the owner");
        assert!(guard.valid_for() <= LEAST, "{:?}", guard.valid_for());
        assert!(ttl_of(&server, "printer") > LEAST.as_millis().try_into().unwrap());
        proxy.deliver();
        let left = eventually("the lease is cut on the server", || {
            let left = millis(ttl_of(&server, "printer").cast_unsigned());
            if left <= LEAST { Ok(left) } else { Err(left) }
        });
        assert!(guard.valid_for() <= left.await);
    }
}

/// The connection on which it was sent is gone before it arrives, and so is its runtime.
#[test]
fn a_release_that_arrives_late_does_not_free_the_lock_of_the_next_guard_of_its_owner() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let locks = Locks::new(url(proxy.port())).unwrap();
        let alice = || locks.lock("printer").owner("alice").ttl(LONG).into_future();
        let (first, ours) = (standing(), standing());
        first.block_on(async {
            let guard = soon(alice()).await.unwrap();
            proxy.hold();
            assert!(timeout(millis(200), guard.release()).await.is_err());
        });
        drop(first);
        ours.block_on(async {
            let guard = soon(alice()).await.unwrap();
            proxy.deliver();
            stays_held(&server, &guard).await;
            assert!(soon(guard.release()).await.unwrap().in_time());
        });
    }
}

/// The server has granted the lock on the connection that the request left, and the runtime of that
/// request has ended.
#[test]
fn what_a_request_left_behind_does_not_free_the_lock_of_the_next_guard_of_its_owner() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let (locks, holder) = (Locks::new(url(proxy.port())).unwrap(), client(&server));
    let alice = || locks.lock("printer").owner("alice").ttl(LONG);
    let (first, ours) = (standing(), standing());
    let other = lock(&ours, holder.lock("printer").ttl(LONG));
    first.block_on(async {
        let mut request = Box::pin(alice().into_future());
        while waiters(&server, "printer") == 0 {
            let _ = timeout(millis(10), request.as_mut()).await;
        }
        proxy.hold();
        drop(request);
        sleep(millis(100)).await;
    });
    ours.block_on(async { assert!(soon(other.release()).await.unwrap().in_time()) });
    assert!(held(&server, "printer").unwrap().ends_with("alice"));
    // The answer is read before the connection ends.
    first.block_on(async { sleep(millis(100)).await });
    drop(first);
    ours.block_on(async {
        let guard = soon(alice()).await.unwrap();
        proxy.deliver();
        stays_held(&server, &guard).await;
        assert!(soon(guard.release()).await.unwrap().in_time());
    });
}

/// For long enough to see what is on its way.
async fn stays_held(server: &Server, guard: &Guard) {
    let until = Instant::now() + millis(500);
    while Instant::now() < until {
        assert!(held(server, "printer").is_some(), "{:?}", guard.valid_for());
        sleep(millis(5)).await;
    }
    assert_eq!(guard.loss(), None);
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
                let left = ttl_of(&server, name);
                assert!(
                    left + 100 > valid,
                    "{name}: {left} ms are left, {valid} ms are counted on"
                );
            }
            sleep(millis(20)).await;
        }
    }
}

/// It was asked for again on another connection meanwhile, granted and released.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_stuck_leaves_no_lock_when_it_arrives() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let locks = Locks::connect(url(proxy.port())).await.unwrap();
    proxy.hold();
    let guard = soon(locks.lock("printer").ttl(LONG)).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let asked = || server.client().executed().get("lock.acquire").copied().unwrap_or_default();
    let before = asked();
    proxy.deliver();
    let arrived = || if asked() > before { Ok(()) } else { Err(()) };
    eventually("the stuck one has arrived", arrived).await;
    eventually_free(&server, "printer").await;
}
