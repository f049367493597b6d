//! A guard says in time that it holds nothing any more.

use crate::scene::{LONG, both_kinds, held, locks, millis, server, soon, url};
use leasehold_client::{Locks, Loss, Released, Settings};
use std::sync::Arc;
use std::time::Instant;
use testkit::{Proxy, Server, Way};
use tokio::time::{sleep, timeout};

const TTL: u64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_cut_off_is_lost_before_anybody_else_has_the_lock() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let cut_off = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
        let guard = cut_off.lock("printer").ttl(millis(TTL)).await.unwrap();
        let next = locks(&server).await.lock("printer").ttl(LONG);
        let next = tokio::spawn(async move { (next.await.unwrap(), Instant::now()) });
        // Some renewals later.
        sleep(millis(TTL)).await;
        assert_eq!(guard.loss(), None);
        proxy.cut();
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
        let lost = Instant::now();
        assert_eq!(guard.valid_for(), millis(0));
        let (next, granted) = soon(next).await.unwrap();
        assert!(lost < granted, "{:?} too late", lost - granted);
        assert!(next.fence() > guard.fence());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_watches_a_guard_is_told_in_time_when_a_shorter_extension_is_unanswered() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let cut_off = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
        let guard = Arc::new(cut_off.lock("printer").ttl(LONG).await.unwrap());
        let (others, over) = (locks(&server).await, guard.cancellation());
        let told = tokio::spawn(async move {
            over.cancelled().await;
            Instant::now()
        });
        proxy.cut_one_way(Way::FromServer);
        let extending = tokio::spawn(async move { guard.extend(millis(1_500)).await });
        let _next = soon(others.lock("printer").ttl(LONG)).await.unwrap();
        let granted = Instant::now();
        let told = soon(told).await.unwrap();
        assert!(told < granted, "{:?} too late", told - granted);
        extending.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_of_a_server_that_hangs_is_lost_when_the_lease_could_have_ended() {
    let mut server = server();
    let locks = locks(&server).await;
    let begun = Instant::now();
    let guard = locks.lock("printer").ttl(millis(TTL)).await.unwrap();
    server.freeze();
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    assert!(begun.elapsed() >= millis(TTL / 2), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < millis(2 * TTL), "{:?}", begun.elapsed());
    server.thaw();
}

async fn taken_from(server: &Server, how: impl Fn(&Server)) {
    let locks = locks(server).await;
    let guard = locks.lock("printer").ttl(millis(3 * TTL)).await.unwrap();
    let cancellation = guard.cancellation();
    how(server);
    let taken = Instant::now();
    assert_eq!(soon(guard.lost()).await, Loss::Taken);
    // At the next renewal, a third of the ttl later.
    assert!(taken.elapsed() < millis(2 * TTL), "{:?}", taken.elapsed());
    soon(cancellation.cancelled()).await;
    assert_eq!(guard.release().await.unwrap(), Released::Late);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_whose_key_is_deleted_is_lost_at_the_next_renewal() {
    for server in both_kinds() {
        taken_from(&server, |server| drop(server.cmd("DEL printer"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_whose_lock_somebody_else_has_is_lost_and_leaves_it_alone() {
    for server in both_kinds() {
        taken_from(&server, |server| drop(server.cmd("SET printer somebody-else"))).await;
        assert_eq!(held(&server, "printer").as_deref(), Some("somebody-else"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_guard_is_released_at_once_although_its_owner_waits_for_the_lock_again() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let alice = || locks.lock("printer").owner("alice").ttl(millis(TTL));
        let guard = alice().await.unwrap();
        server.cmd("SET printer somebody-else");
        assert_eq!(soon(guard.lost()).await, Loss::Taken);
        let mut next = std::pin::pin!(alice().into_future());
        assert!(timeout(millis(300), &mut next).await.is_err(), "somebody else has it");
        assert_eq!(soon(guard.release()).await.unwrap(), Released::Late);
        server.cmd("DEL printer");
        let next = soon(next).await.unwrap();
        assert_eq!(soon(next.release()).await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_stays_lost_when_the_server_comes_back() {
    let mut server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(millis(TTL)).await.unwrap();
    server.freeze();
    soon(guard.lost()).await;
    server.thaw();
    // The renewals that were under way are heard now.
    sleep(millis(TTL)).await;
    assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Expired), millis(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_watches_a_guard_is_told_when_it_is_gone() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let ours = guard.cancellation();
    ours.cancel();
    assert_eq!(guard.loss(), None, "what a watcher does with its own is its own affair");
    let watching = guard.cancellation();
    assert!(timeout(millis(50), watching.cancelled()).await.is_err());
    drop(guard);
    soon(watching.cancelled()).await;
}

#[test]
fn guards_are_lost_when_the_runtime_that_kept_them_ends() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(async { locks(&server).await.lock("printer").await.unwrap() });
    drop(runtime);
    assert_eq!(guard.loss(), Some(Loss::Expired));
}
