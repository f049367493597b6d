//! Several locks at once, all or none.

use crate::scene::{
    LONG, both_kinds, eventually, eventually_free, held, locks, millis, server, soon,
};
use leasehold_client::{Error, Extended, Loss, Released};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_are_taken_and_given_back_by_one_guard() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let all = locks.lock_all(["c", "a", "b", "a"]).ttl(LONG).await.unwrap();
        assert_eq!(all.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            let value = held(&server, name).unwrap();
            assert!(value.starts_with(&format!("{:016}:", all.fence(name).unwrap())), "{value}");
        }
        assert_eq!(all.fence("d"), None);
        assert!(all.valid_for() > Duration::ZERO && all.loss().is_none());
        assert_eq!(all.extend(2 * LONG).await.unwrap(), Extended::Extended);
        assert!(all.valid_for() > LONG);
        assert_eq!(all.release().await.unwrap(), Released::Released);
        for name in ["a", "b", "c"] {
            assert_eq!(held(&server, name), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_is_held_where_not_all_are_to_be_had() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let taken = theirs.lock("b").ttl(LONG).await.unwrap();
        assert!(ours.lock_all(["a", "b", "c"]).try_now().await.unwrap().is_none());
        eventually_free(&server, "a").await;
        let busy = ours.lock_all(["a", "b", "c"]).wait(millis(200)).await.unwrap_err();
        assert!(matches!(busy, Error::Busy { ref name, .. } if name == "a b c"), "{busy}");
        eventually_free(&server, "a").await;
        assert_eq!(held(&server, "c"), None);
        assert_eq!(taken.loss(), None);
        let none = ours.lock_all([""; 0]).await.unwrap_err();
        assert!(matches!(none, Error::Setting { ref name, .. } if name == "names"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_waiting_gives_back_what_it_has() {
    let server = server();
    let (ours, theirs) = (locks(&server).await, locks(&server).await);
    let _taken = theirs.lock("b").ttl(LONG).await.unwrap();
    let request = ours.lock_all(["a", "b"]).ttl(LONG);
    let waiter = tokio::spawn(async move { request.await });
    eventually("it has the first one", || held(&server, "a").ok_or(())).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    eventually_free(&server, "a").await;
}

/// In the order in which they are given they would wait for each other until somebody's patience
/// ends.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_want_the_same_locks_in_any_order_never_wait_for_each_other() {
    let server = server();
    let locks = locks(&server).await;
    let inside = Arc::new(AtomicUsize::new(0));
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]];
    let workers = orders.map(|order| {
        let (locks, inside) = (locks.clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            for _ in 0..25 {
                let all = locks.lock_all(order).ttl(LONG).await.unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, SeqCst);
                assert_eq!(all.release().await.unwrap(), Released::Released);
            }
        })
    });
    for worker in workers {
        soon(worker).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_lost_as_soon_as_one_is() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let all = locks.lock_all(["a", "b"]).ttl(millis(600)).await.unwrap();
        server.cmd("DEL b");
        assert_eq!(soon(all.lost()).await, Loss::Taken);
        assert_eq!((all.loss(), all.valid_for()), (Some(Loss::Taken), Duration::ZERO));
        assert_eq!(all.release().await.unwrap(), Released::Late);
        assert_eq!(held(&server, "a"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fixed_leases_begin_when_the_last_lock_was_granted() {
    let server = server();
    let (ours, theirs) = (locks(&server).await, locks(&server).await);
    for (held_for, ttl) in [(500, 2_000), (1_500, 1_000)] {
        let taken = theirs.lock("b").ttl(LONG).await.unwrap();
        let request = ours.lock_all(["a", "b"]).fixed_ttl(millis(ttl));
        let waiter = tokio::spawn(async move { request.await });
        sleep(millis(held_for)).await;
        drop(taken);
        let all = soon(waiter).await.unwrap().unwrap();
        assert!(all.valid_for() > millis(ttl) * 8 / 10, "{:?}", all.valid_for());
        assert_eq!(all.release().await.unwrap(), Released::Released);
    }
}
