//! Clusters and sentinels.

use crate::scene::{LONG, eventually, eventually_waiting, held, millis, server, soon, url};
use crate::scripted_sentinel::ScriptedSentinel;
use leasehold_client::{Dialect, Extended, Locks, Loss, Released, Settings, Target};
use testkit::{Cluster, Sentinels, Setup, SlotMove, Takeover, wait_until_in_sync};
use tokio::time::sleep;

/// Long enough for a failover, short enough that renewals fall into it.
const TTL: u64 = 12_000;

fn target(cluster: &Cluster) -> Target {
    Target::cluster(cluster.nodes().iter().take(2).map(|node| url(node.port())))
}

async fn cluster_locks(cluster: &Cluster) -> Locks {
    Locks::connect_with(target(cluster), Settings::default().ttl(millis(TTL))).await.unwrap()
}

async fn eventually_renewed(guard: &leasehold_client::Guard) {
    eventually("it is renewed", || match guard.valid_for() {
        left if left > millis(TTL - 1_500) => Ok(()),
        left => Err((left, guard.loss())),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_cluster_are_wherever_their_slots_are() {
    for setup in [|setup: Setup| setup, |setup: Setup| setup.without_module()] {
        let cluster = Cluster::with(3, 0, |_, node| setup(node));
        let locks = cluster_locks(&cluster).await;
        let mut guards = Vec::new();
        for name in 0..30 {
            let guard = locks.try_lock(&format!("lock:{name}")).await.unwrap().expect("free");
            assert!(locks.try_lock(guard.name()).await.unwrap().is_none());
            guards.push(guard);
        }
        for node in cluster.nodes() {
            let keys = node.client().info_field("keyspace", "db0");
            assert!(keys.is_some(), "a node without locks");
        }
        for guard in guards {
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_and_waiters_go_along_when_a_node_of_a_cluster_is_replaced() {
    let mut cluster = Cluster::start();
    let name = cluster.slot_of(0).key("printer");
    let other = cluster.slot_of(0).key("scanner");
    let locks = cluster_locks(&cluster).await;
    let guard = locks.lock(&name).await.unwrap();
    let kept = locks.lock(&other).await.unwrap();
    let request = locks.lock(&name);
    let waiter = tokio::spawn(async move { request.await });
    eventually_waiting(cluster.node(0), &name, 1).await;
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    cluster.node_mut(0).kill();
    // Nobody is asked, so that it takes less than the lease.
    cluster.take_over(3, Takeover::Unasked);
    eventually_renewed(&guard).await;
    eventually_renewed(&kept).await;
    assert!(!waiter.is_finished());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(soon(waiter).await.unwrap().unwrap().fence() > fence);
    assert_eq!(kept.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_and_waiters_go_along_when_a_slot_moves() {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let name = slot.key("printer");
    let locks = cluster_locks(&cluster).await;
    let guard = locks.lock(&name).ttl(millis(2_000)).await.unwrap();
    let request = locks.lock(&name);
    let waiter = tokio::spawn(async move { request.await });
    eventually_waiting(cluster.node(0), &name, 1).await;
    let slot_move = SlotMove { slot: slot.number, from: 0, to: 1 };
    slot_move.import(&cluster);
    slot_move.migrate(&cluster);
    slot_move.move_keys(&cluster);
    // It is on its way: whoever asks is sent on with ASK.
    assert_eq!(guard.extend(millis(2_000)).await.unwrap(), Extended::Extended);
    sleep(millis(1_000)).await;
    slot_move.give(&cluster);
    sleep(millis(1_500)).await;
    assert_eq!(guard.loss(), None);
    assert!(held(cluster.node(1), &name).is_some());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(soon(waiter).await.unwrap().unwrap().fence() > fence);
}

async fn sentinel_locks(sentinels: &Sentinels) -> Locks {
    let urls = sentinels.ports().into_iter().map(url);
    let settings = Settings::default().ttl(millis(TTL));
    Locks::connect_with(Target::sentinel(urls, "locks"), settings).await.unwrap()
}

/// A primary dies while a guard is renewed and somebody waits; both go on at the next one.
async fn failover(mut sentinels: Sentinels, after: Dialect) {
    let locks = sentinel_locks(&sentinels).await;
    assert_eq!(locks.dialect(), Dialect::Native);
    let guard = locks.lock("printer").await.unwrap();
    let request = locks.lock("printer");
    let waiter = tokio::spawn(async move { request.await });
    eventually_waiting(sentinels.server(0), "printer", 1).await;
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    eventually_renewed(&guard).await;
    assert_eq!(locks.dialect(), after);
    assert!(held(sentinels.server(primary), "printer").unwrap().ends_with(guard.owner()));
    assert!(!waiter.is_finished());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = soon(waiter).await.unwrap().unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_and_waiters_go_along_when_sentinels_replace_a_primary() {
    failover(Sentinels::start(), Dialect::Native).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_and_waiters_go_along_to_a_primary_without_the_module() {
    let sentinels = Sentinels::with(|index, setup| match index {
        0 => setup,
        _ => setup.without_module(),
    });
    failover(sentinels, Dialect::Plain).await;
}

/// The former primary is alive and answers, and has been replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_still_reaches_a_replaced_primary_follows_the_sentinels() {
    let (former, next) = (server(), server());
    let sentinel = ScriptedSentinel::that_names(former.port());
    let target = Target::sentinel([url(sentinel.port())], "locks");
    let locks = Locks::connect_with(target, Settings::default()).await.unwrap();
    let guard = locks.lock("printer").ttl(millis(3_000)).await.unwrap();
    assert!(held(&former, "printer").is_some());
    sentinel.names(next.port());
    // The next one has never heard of it.
    assert_eq!(soon(guard.lost()).await, Loss::Taken);
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    assert!(held(&next, "printer").unwrap().ends_with(guard.owner()));
    // A sentinel that is gone changes nothing.
    drop(sentinel);
    sleep(millis(1_500)).await;
    assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
}
