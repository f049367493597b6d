//! Several locks at once, all or none.

use crate::scene::{
    LONG, WAYS, both_kinds, by, eventually, eventually_free, held, locks, locks_with, millis,
    server, soon, url,
};
use leasehold_client::{Error, Extended, Locks, Loss, Options, Released, Target};
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use testkit::{Cluster, Seed, Server, bulk_text, short_or_long};
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
    // With a chosen owner they are taken one after another.
    let request = ours.lock_all(["a", "b"]).options(Options::new().ttl(LONG).owner("worker-7"));
    let waiter = tokio::spawn(async move { request.await });
    eventually("it has the first one", || held(&server, "a").ok_or(())).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    eventually_free(&server, "a").await;
}

fn acquisitions(server: &Server) -> String {
    let stats = bulk_text(&server.cmd(["INFO", "commandstats"]));
    let line = stats.lines().find(|line| line.starts_with("cmdstat_lock.acquire:"));
    line.map_or_else(String::new, |line| line.split(['=', ',']).nth(1).unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_takes_all_of_them_by_one_fence() {
    let server = server();
    let locks = locks(&server).await;
    let all = locks.lock_all(["c", "a", "b"]).ttl(millis(600)).await.unwrap();
    assert_eq!(acquisitions(&server), "1");
    assert_eq!(all.fence("a"), all.fence("b"));
    // Each is renewed.
    sleep(millis(1_500)).await;
    assert!(all.loss().is_none() && all.fence("a") == all.fence("c"));
    let most = locks.lock_all((0..128).map(|number| format!("{number}"))).await.unwrap();
    assert_eq!(acquisitions(&server), "2");
    assert_eq!(most.fence("0"), most.fence("127"));
    let more = locks.lock_all((200..329).map(|number| format!("{number}"))).await.unwrap();
    assert_eq!(acquisitions(&server), "131", "one by one");
    for all in [all, most, more] {
        assert_eq!(all.release().await.unwrap(), Released::Released);
    }
    assert_eq!(server.cmd("DBSIZE"), Value::Int(0));
}

/// How many wait for each of these locks, which may be free.
fn queues(server: &Server) -> [usize; 3] {
    ["a", "b", "c"].map(|name| match server.cmd(["LOCK.WAITERS", name]) {
        Value::Array(waiters) => waiters.len(),
        other => panic!("{other:?}"),
    })
}

async fn eventually_queued(server: &Server, count: usize) {
    eventually("so many wait for each", || match queues(server) {
        seen if seen == [count; 3] => Ok(()),
        seen => Err(seen),
    })
    .await;
}

/// Whoever waits for several keeps nobody from those that are free.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_several_holds_none_and_leaves_all_queues() {
    for way in WAYS {
        let server = server();
        let (ours, theirs) = (locks_with(&server, by(way)).await, locks(&server).await);
        let taken = theirs.lock("b").ttl(LONG).await.unwrap();
        let waits = || tokio::spawn(ours.lock_all(["a", "b", "c"]).ttl(LONG).into_future());
        let stops = waits();
        eventually_queued(&server, 1).await;
        assert_eq!((held(&server, "a"), held(&server, "c")), (None, None));
        stops.abort();
        eventually_queued(&server, 0).await;
        let busy = ours.lock_all(["a", "b", "c"]).wait(millis(200)).await.unwrap_err();
        assert!(matches!(busy, Error::Busy { ref name, .. } if name == "a b c"), "{busy}");
        assert_eq!(queues(&server), [0; 3]);
        let served = waits();
        eventually_queued(&server, 1).await;
        assert_eq!(taken.release().await.unwrap(), Released::Released);
        let all = soon(served).await.unwrap().unwrap();
        assert_eq!(all.fence("a"), all.fence("c"));
        for name in ["a", "b", "c"] {
            assert!(held(&server, name).unwrap().contains(&all.fence(name).unwrap().to_string()));
        }
        drop(all);
        for name in ["a", "b", "c"] {
            eventually_free(&server, name).await;
        }
    }
}

/// Requests are dropped at any moment around the grant.
#[tokio::test(flavor = "multi_thread")]
async fn several_that_are_dropped_leave_no_lock_behind() {
    let mut seed = Seed::announced();
    let server = server();
    let (ours, theirs) = (locks(&server).await, locks(&server).await);
    for _ in 0..short_or_long(40, 500) {
        let taken = theirs.lock("b").ttl(LONG).await.unwrap();
        let request = ours.lock_all(["a", "b", "c"]).ttl(LONG);
        let waiter = tokio::spawn(async move { request.await.map(drop) });
        let rest = |seed: &mut Seed, micros| {
            std::thread::sleep(Duration::from_micros(seed.below(micros) as u64));
        };
        rest(&mut seed, 3_000);
        drop(taken);
        rest(&mut seed, 1_000);
        waiter.abort();
        let _ = waiter.await;
        ours.settle().await;
        for name in ["a", "b", "c"] {
            eventually_free(&server, name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_those_of_one_slot_are_taken_by_one_request() {
    let cluster = Cluster::of(3, 0);
    let urls = cluster.nodes().iter().map(|node| url(node.port()));
    let locks = Locks::new(Target::cluster(urls)).unwrap();
    let one = locks.lock_all(["{x}a", "{x}b"]).await.unwrap();
    assert_eq!(one.fence("{x}a"), one.fence("{x}b"));
    let many = locks.lock_all((0..20).map(|number| format!("{number}"))).await.unwrap();
    assert_ne!(many.fence("1"), many.fence("2"));
    for all in [one, many] {
        assert_eq!(all.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_end_with_their_connection() {
    let server = server();
    let locks = locks(&server).await;
    let request = locks.lock_all(["a", "b"]).options(Options::new().ephemeral(Duration::ZERO));
    let all = request.await.unwrap();
    server.cmd("CLIENT KILL TYPE normal SKIPME yes");
    for name in ["a", "b"] {
        eventually_free(&server, name).await;
    }
    assert_eq!(soon(all.lost()).await, Loss::Expired);
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
