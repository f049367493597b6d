//! Grants that replicas must have heard of, and that must be on disk.

use crate::scene::{
    LONG, eventually_free, eventually_held, eventually_waiting, held, locks, locks_with, millis,
    soon, with_module, without_module,
};
use leasehold_client::{Error, Released, Settings};
use testkit::{Server, Setup, is_valkey_since, lacks, start_pair};
use tokio::time::timeout;

fn pairs() -> [(Server, Server); 2] {
    [with_module, without_module].map(|setup| start_pair(setup(), setup()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_enough_replicas_have_heard_of_is_a_guard() {
    for (primary, replica) in pairs() {
        let settings = Settings { replicas: 1, replicas_within: LONG, ..Settings::default() };
        let locks = locks_with(&primary, settings);
        for _ in 0..10 {
            let guard = locks.lock("printer").try_now().await.unwrap().expect("it is free");
            assert_eq!(held(&replica, "printer"), held(&primary, "printer"));
            assert!(locks.lock("printer").try_now().await.unwrap().is_none());
            assert_eq!(guard.release().await.unwrap(), Released::InTime);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_too_few_replicas_have_heard_of_is_released_and_says_how_many() {
    for (primary, _replica) in pairs() {
        let locks = locks(&primary);
        let request = locks.lock("printer").ttl(LONG).replicas(2, millis(200));
        let error = request.await.unwrap_err();
        assert!(
            matches!(error, Error::TooFewReplicas { acknowledged: 1, wanted: 2, .. }),
            "{error}"
        );
        assert_eq!(held(&primary, "printer"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_after_a_wait_is_heard_of_too() {
    let [(primary, mut replica), _] = pairs();
    let locks = locks(&primary);
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let request = locks.lock("printer").ttl(LONG).replicas(1, LONG);
    let mut waiter = tokio::spawn(async move { request.await });
    eventually_waiting(&primary, "printer", 1).await;
    replica.freeze();
    drop(guard);
    assert!(timeout(millis(300), &mut waiter).await.is_err(), "nobody has heard of it yet");
    replica.thaw();
    let guard = soon(waiter).await.unwrap().unwrap();
    assert_eq!(held(&replica, "printer"), held(&primary, "printer"));
    assert!(guard.valid_for() > millis(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_replicas_does_not_hinder_others() {
    let [(primary, mut replica), _] = pairs();
    let locks = locks(&primary);
    replica.freeze();
    let request = locks.lock("printer").ttl(LONG).replicas(1, millis(1_000));
    let waiter = tokio::spawn(async move { request.await.map(drop) });
    eventually_held(&primary, "printer").await;
    let begun = std::time::Instant::now();
    let other = locks.lock("scanner").try_now().await.unwrap().expect("it is free");
    assert_eq!(other.release().await.unwrap(), Released::InTime);
    assert!(begun.elapsed() < millis(800), "{:?}", begun.elapsed());
    let error = soon(waiter).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::TooFewReplicas { acknowledged: 0, wanted: 1, .. }), "{error}");
    replica.thaw();
}

/// A lease is not renewed before there is a guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_replicas_have_heard_of_after_its_lease_is_no_guard() {
    let [(primary, mut replica), _] = pairs();
    let locks = locks(&primary);
    replica.freeze();
    let request = locks.lock("printer").ttl(millis(300)).replicas(1, LONG);
    let waiter = tokio::spawn(request.into_future());
    eventually_held(&primary, "printer").await;
    eventually_free(&primary, "printer").await;
    replica.thaw();
    let came = soon(waiter).await.unwrap();
    assert!(matches!(came, Err(Error::TooLate { .. })), "{came:?}");
}

/// A server that loses with its power what it wrote in the last second. Valkey 9.1 replies to `WAITAOF` before such a write is
/// on disk, so there each write is.
fn of_disks() -> Setup {
    let when = if is_valkey_since((7, 2)) { "always" } else { "everysec" };
    with_module().config("appendonly", "yes").config("appendfsync", when)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_grant_outlives_a_loss_of_power() {
    if lacks((7, 2), "WAITAOF") {
        return;
    }
    let mut server = of_disks().power_may_fail().start();
    let request = locks(&server).lock("printer").ttl(LONG).replicas(0, LONG).durable();
    let guard = request.await.unwrap();
    let before = held(&server, "printer");
    testkit::power::fail(&mut server);
    server.start_again();
    assert_eq!(held(&server, "printer"), before);
    assert_eq!(guard.loss(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_grant_is_on_the_disks_of_replicas_too() {
    if lacks((7, 2), "WAITAOF") {
        return;
    }
    let (primary, _replica) = start_pair(of_disks(), of_disks());
    let locks = locks(&primary);
    let request = locks.lock("printer").ttl(LONG).replicas(1, LONG).durable();
    assert_eq!(request.await.unwrap().release().await.unwrap(), Released::InTime);
    let error = locks.lock("printer").replicas(2, millis(1_500)).durable().await.unwrap_err();
    assert!(matches!(error, Error::TooFewReplicas { wanted: 2, .. }), "{error}");
    assert_eq!(held(&primary, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_writes_nothing_to_disk_refuses_a_durable_grant() {
    let server = with_module().start();
    let error = locks(&server).lock("printer").durable().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(held(&server, "printer"), None);
}
