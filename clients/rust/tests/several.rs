//! Several locks at once, all or none.

use crate::scene::{
    Kind, LONG, Way, cluster_locks, eventually, eventually_free, eventually_renewed, held,
    is_held_by, locks, millis, server, soon, ttl_of, waiters,
};
use leasehold_client::{Error, Locks, Loss, Released, Renew, Settings};
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use testkit::{Cluster, Seed, Server, bulk_text, lacks_notify, short_or_long};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// What is held of these locks, apart from the last fences that scripts keep beside them.
fn all_held(server: &Server) -> [Option<String>; 3] {
    NAMES.map(|name| held(server, name))
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_are_taken_and_given_back_by_one_guard_with_one_fence() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let locks = locks(&server);
        let all = locks.all(["c", "a", "b", "a"]).ttl(LONG).await.unwrap();
        assert_eq!(all.name(), "a, b, c");
        assert!(NAMES.iter().all(|name| is_held_by(&server, name, &all)), "{all:?}");
        all.extend(2 * LONG).await.unwrap();
        assert!(all.valid_for() > LONG);
        assert!(NAMES.iter().all(|name| ttl_of(&server, name) > 60_000));
        let (fence, owner) = (all.fence(), all.owner().to_owned());
        assert_eq!(all.release().await.unwrap(), Released::InTime);
        assert_eq!(all_held(&server), [None, None, None]);
        let again = locks.all(NAMES).await.unwrap();
        assert!(again.fence() > fence && again.owner() != owner);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_is_held_where_not_all_are_to_be_had() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let (ours, theirs) = (locks(&server), locks(&server));
        let taken = theirs.lock("b").ttl(LONG).await.unwrap();
        assert!(ours.all(NAMES).try_now().await.unwrap().is_none());
        assert_eq!((held(&server, "a"), held(&server, "c")), (None, None));
        let busy = soon(ours.all(NAMES).wait(millis(200))).await.unwrap_err();
        assert!(matches!(&busy, Error::Busy { lock, .. } if lock == "a, b, c"), "{busy}");
        assert_eq!((held(&server, "a"), held(&server, "c")), (None, None));
        assert_eq!(taken.loss(), None);
        let none = ours.all([""; 0]).await.unwrap_err();
        assert!(matches!(&none, Error::Setting { setting, .. } if setting == "names"), "{none}");
    }
}

fn acquisitions(server: &Server) -> String {
    let stats = bulk_text(&server.cmd(["INFO", "commandstats"]));
    let line = stats.lines().find(|line| line.starts_with("cmdstat_lock.acquire:"));
    line.map_or_else(String::new, |line| line.split(['=', ',']).nth(1).unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_takes_as_many_as_the_server_takes_and_renews_each() {
    if lacks_notify() {
        return;
    }
    let server = server();
    let locks = locks(&server);
    let ttl = millis(600);
    let all = locks.all(NAMES).ttl(ttl).await.unwrap();
    assert_eq!(acquisitions(&server), "1");
    let begun = std::time::Instant::now();
    while begun.elapsed() < 2 * ttl {
        eventually_renewed(&all, ttl).await;
    }
    assert!(NAMES.iter().all(|name| is_held_by(&server, name, &all)));
    let most = locks.all((0..128).map(|number| number.to_string())).await.unwrap();
    assert!(is_held_by(&server, "0", &most) && is_held_by(&server, "127", &most));
    assert_eq!(acquisitions(&server), "2");
    for all in [all, most] {
        assert_eq!(all.release().await.unwrap(), Released::InTime);
    }
    assert_eq!(server.cmd("DBSIZE"), Value::Int(0));
}

async fn eventually_queued(server: &Server, count: usize) {
    let queues = || NAMES.map(|name| waiters(server, name));
    eventually("so many wait for each", || match queues() {
        seen if seen == [count; 3] => Ok(()),
        seen => Err(seen),
    })
    .await;
}

/// Whoever waits for several keeps nobody from those that are free.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_several_holds_none_and_leaves_all_queues() {
    for way in Way::BOTH {
        let server = server();
        let ours = way.locks(&server, server.port(), Settings::default());
        let taken = locks(&server).lock("b").ttl(LONG).await.unwrap();
        let waits = || tokio::spawn(ours.all(NAMES).ttl(LONG).into_future());
        let stops = waits();
        eventually_queued(&server, 1).await;
        assert_eq!((held(&server, "a"), held(&server, "c")), (None, None));
        stops.abort();
        eventually_queued(&server, 0).await;
        let served = waits();
        eventually_queued(&server, 1).await;
        assert_eq!(taken.release().await.unwrap(), Released::InTime);
        let all = soon(served).await.unwrap().unwrap();
        assert!(NAMES.iter().all(|name| is_held_by(&server, name, &all)), "{way:?}");
        drop(all);
        for name in NAMES {
            eventually_free(&server, name).await;
        }
    }
}

/// Requests are dropped at any moment around the grant.
#[tokio::test(flavor = "multi_thread")]
async fn several_that_are_dropped_leave_no_lock_behind() {
    let mut seed = Seed::announced();
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let (ours, theirs) = (locks(&server), locks(&server));
        for _ in 0..short_or_long(30, 500) {
            let taken = theirs.lock("b").ttl(LONG).await.unwrap();
            let waiter = tokio::spawn(ours.all(NAMES).ttl(LONG).into_future());
            let rest = |seed: &mut Seed, micros| {
                tokio::time::sleep(Duration::from_micros(seed.below(micros) as u64))
            };
            rest(&mut seed, 3_000).await;
            assert_eq!(taken.release().await.unwrap(), Released::InTime);
            rest(&mut seed, 1_000).await;
            waiter.abort();
            drop(waiter.await);
            for name in NAMES {
                eventually_free(&server, name).await;
            }
        }
        assert_eq!(soon(ours.close(LONG)).await, crate::scene::NOTHING);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_those_of_one_slot_are_taken_and_others_refused() {
    for setup in [|setup: testkit::Setup| setup, |setup: testkit::Setup| setup.without_module()] {
        let cluster = Cluster::with(3, 0, |_, node| setup(node));
        let locks = cluster_locks(&cluster, Settings::default());
        let one = locks.all(["{x}a", "{x}b"]).await.unwrap();
        assert!(locks.lock("{x}b").try_now().await.unwrap().is_none());
        let refused = soon(locks.all(["a", "b"]).wait(LONG)).await.unwrap_err();
        let Error::Refused { source } = &refused else { panic!("{refused}") };
        assert!(refused.to_string().contains("slot"), "{source:?}: {refused}");
        assert_eq!(one.release().await.unwrap(), Released::InTime);
        assert_eq!(soon(locks.close(LONG)).await, crate::scene::NOTHING);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_end_with_their_connection() {
    let server = server();
    let all = locks(&server).all(["a", "b"]).ttl(LONG).ephemeral(Duration::ZERO).await.unwrap();
    server.cmd("CLIENT KILL TYPE normal SKIPME yes");
    for name in ["a", "b"] {
        eventually_free(&server, name).await;
    }
    assert_eq!(soon(all.lost()).await, Loss::Expired);
}

async fn works(locks: Locks, order: [&'static str; 3], rounds: usize, inside: Arc<AtomicUsize>) {
    for round in 0..rounds {
        // The whole, or two that overlap with those of anybody else.
        let names = if round % 2 == 0 { &order[..] } else { &order[..2] };
        let all = locks.all(names).ttl(LONG).await.unwrap();
        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders");
        tokio::task::yield_now().await;
        inside.fetch_sub(1, SeqCst);
        assert_eq!(all.release().await.unwrap(), Released::InTime);
    }
}

/// In the order in which they are given they would wait for each other until somebody's patience
/// ends.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_want_the_same_locks_in_any_order_never_wait_for_each_other() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let (ours, theirs) = (locks(&server), locks(&server));
        let inside = Arc::new(AtomicUsize::new(0));
        let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]];
        // Without a queue, whoever polls seldom is lucky seldom.
        let (tasks, rounds) = if kind == Kind::With { (32, 20) } else { (8, 5) };
        let workers: Vec<_> = (0..tasks)
            .map(|number| {
                let locks = if number % 2 == 0 { ours.clone() } else { theirs.clone() };
                tokio::spawn(works(locks, orders[number % 4], rounds, Arc::clone(&inside)))
            })
            .collect();
        for worker in workers {
            soon(worker).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_lost_as_soon_as_one_is() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let locks = locks(&server);
        let all = locks.all(["a", "b"]).ttl(millis(600)).await.unwrap();
        server.cmd("DEL b");
        assert_eq!(soon(all.lost()).await, Loss::Taken);
        assert_eq!((all.loss(), all.valid_for()), (Some(Loss::Taken), Duration::ZERO));
        assert_eq!(all.release().await.unwrap(), Released::Late);
        eventually_free(&server, "a").await;
        // Whoever is lost while nobody has asked is told by the release.
        let all = locks.all(["a", "b"]).ttl(LONG).await.unwrap();
        server.cmd("DEL b");
        assert_eq!(all.release().await.unwrap(), Released::Late);
        assert_eq!(all_held(&server), [None, None, None]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_renewed_begins_when_the_last_lock_was_granted() {
    let server = server();
    let (ours, theirs) = (locks(&server), locks(&server));
    let ttl = millis(1_000);
    let taken = theirs.lock("b").ttl(LONG).renew(Renew::Never).await.unwrap();
    let waiter = tokio::spawn(ours.all(["a", "b"]).ttl(ttl).renew(Renew::Never).into_future());
    eventually("it waits", || Some(()).filter(|()| waiters(&server, "a") == 1).ok_or(())).await;
    tokio::time::sleep(ttl + ttl / 2).await;
    assert_eq!(taken.release().await.unwrap(), Released::InTime);
    let all = soon(waiter).await.unwrap().unwrap();
    assert!(all.valid_for() > ttl * 8 / 10, "{:?}", all.valid_for());
    assert_eq!(all.release().await.unwrap(), Released::InTime);
}
