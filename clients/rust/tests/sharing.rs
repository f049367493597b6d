//! Locks with several holders: readers and writers, and permits.

use crate::scene::{
    LONG, eventually_waiting, held, locks, millis, server, soon, waiters, without_module,
};
use leasehold_client::{Error, Extended, Guard, Locks, Loss, Released, Request};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use testkit::Server;
use tokio::task::JoinHandle;
use tokio::time::sleep;

async fn scene() -> (Server, Locks) {
    let server = server();
    let locks = locks(&server).await;
    (server, locks)
}

async fn releases(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Waits in the server, as a client of its own.
async fn queued(server: &Server, ask: impl FnOnce(Locks) -> Request) -> JoinHandle<Guard> {
    let (before, request) = (waiters(server, "prices"), ask(locks(server).await));
    let task = tokio::spawn(async move { request.await.unwrap() });
    eventually_waiting(server, "prices", before + 1).await;
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_hold_together_and_a_writer_alone_and_nobody_overtakes() {
    let (server, locks) = scene().await;
    let one = locks.read("prices").ttl(LONG).await.unwrap();
    let two = soon(locks.read("prices").ttl(LONG)).await.unwrap();
    assert!(two.fence() > one.fence());
    assert!(locks.write("prices").try_now().await.unwrap().is_none());
    let writer = queued(&server, |locks| locks.write("prices")).await;
    assert!(locks.read("prices").try_now().await.unwrap().is_none(), "it overtook a writer");
    let reader = queued(&server, |locks| locks.read("prices")).await;
    releases(one).await;
    assert_eq!(waiters(&server, "prices"), 2, "two still reads");
    let largest = two.fence();
    releases(two).await;
    let writer = soon(writer).await.unwrap();
    assert!(writer.fence() > largest);
    assert_eq!(waiters(&server, "prices"), 1, "the reader waits for the writer");
    assert!(locks.read("prices").try_now().await.unwrap().is_none());
    let largest = writer.fence();
    releases(writer).await;
    let reader = soon(reader).await.unwrap();
    assert!(reader.fence() > largest);
    releases(reader).await;
    assert_eq!(held(&server, "prices"), None);
}

/// How many have a permit now, and how many had one at the same time at most.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    async fn works(&self) {
        let inside = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(inside, SeqCst);
        sleep(millis(20)).await;
        self.now.fetch_sub(1, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_has_as_many_holders_as_permits_and_serves_everybody() {
    let (server, inside) = (server(), Arc::new(Inside::default()));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let locks = locks(&server).await;
        for _ in 0..10 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                locks.semaphore("pool", 5).run(async |_permit| inside.works().await).await
            }));
        }
    }
    for task in tasks {
        soon(task).await.unwrap().unwrap();
    }
    assert_eq!(inside.most.load(SeqCst), 5);
    assert_eq!(held(&server, "pool"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_number_of_permits_among_holders_counts() {
    let (_server, locks) = scene().await;
    let _five = locks.semaphore("pool", 5).await.unwrap();
    let two = locks.semaphore("pool", 2).await.unwrap();
    assert!(locks.semaphore("pool", 5).try_now().await.unwrap().is_none());
    releases(two).await;
    assert!(locks.semaphore("pool", 5).try_now().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reader_has_a_lease_of_its_own_which_is_renewed_and_lost_by_itself() {
    let (server, locks) = scene().await;
    let ttl = millis(600);
    let renewed = locks.read("prices").ttl(ttl).await.unwrap();
    let short = locks.read("prices").fixed_ttl(ttl).await.unwrap();
    assert_eq!(soon(short.lost()).await, Loss::Expired);
    // The client counts it as lost a little before the server does.
    while locks.info("prices").await.unwrap().unwrap().holders > 1 {
        sleep(millis(5)).await;
    }
    sleep(ttl * 2).await;
    assert_eq!(renewed.loss(), None);
    let info = locks.info("prices").await.unwrap().unwrap();
    assert_eq!((info.holder.as_str(), info.share), (renewed.owner(), 0));
    server.cmd(["DEL", "prices"]);
    assert_eq!(soon(renewed.lost()).await, Loss::Taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_reads_is_stopped_when_its_hold_is_lost() {
    let (_server, locks) = scene().await;
    let _other = locks.read("prices").ttl(LONG).await.unwrap();
    let short = locks.read("prices").fixed_ttl(millis(100));
    let stopped = soon(short.run(async |_| pending::<()>().await)).await;
    assert!(matches!(stopped, Err(Error::Lost { loss: Loss::Expired, .. })), "{stopped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_dropped_releases_its_own_hold_only() {
    let (_server, locks) = scene().await;
    let stays = locks.read("prices").ttl(LONG).await.unwrap();
    drop(locks.read("prices").ttl(LONG).await.unwrap());
    locks.settle().await;
    let info = locks.info("prices").await.unwrap().unwrap();
    assert_eq!((info.holders, info.fence), (1, stays.fence()));
    assert_eq!(stays.extend(LONG).await.unwrap(), Extended::Extended);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_has_a_lock_in_one_way_at_a_time() {
    let (server, locks) = scene().await;
    let reader = locks.read("prices").owner("worker-7").await.unwrap();
    let again = locks.read("prices").owner("worker-7").await.unwrap();
    assert_eq!(again.fence(), reader.fence());
    let writer = locks.write("prices").owner("worker-7").wait(Duration::ZERO).await;
    assert!(matches!(&writer, Err(Error::Setting { name, .. }) if name == "owner"), "{writer:?}");
    assert_eq!(again.release().await.unwrap(), Released::StillHeld);
    releases(reader).await;
    let writer = soon(locks.write("prices").owner("worker-7")).await.unwrap();
    assert!(held(&server, "prices").unwrap().ends_with(":worker-7"));
    releases(writer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_module_there_is_an_error_and_no_lock() {
    let server = without_module().start();
    let locks = locks(&server).await;
    let refused = |came: Result<(), Error>| match came {
        Err(error @ Error::Refused { .. }) => assert_eq!(
            error.to_string(),
            "the server refused: a lock with several holders needs the module, which this server does not have"
        ),
        other => panic!("{other:?}"),
    };
    refused(locks.read("prices").try_now().await.map(drop));
    refused(soon(locks.read("prices")).await.map(drop));
    refused(soon(locks.semaphore("prices", 5)).await.map(drop));
    refused(soon(locks.read("prices").replicas(1, millis(100))).await.map(drop));
    assert_eq!(held(&server, "prices"), None);
    assert!(locks.write("prices").try_now().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_without_permits_is_refused() {
    let (server, locks) = scene().await;
    let none = locks.semaphore("pool", 0).try_now().await;
    assert!(matches!(&none, Err(Error::Setting { name, .. }) if name == "semaphore"), "{none:?}");
    assert_eq!(held(&server, "pool"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_dropped_while_it_waits_leaves_the_queue() {
    let (server, locks) = scene().await;
    let writer = locks.write("prices").ttl(LONG).await.unwrap();
    let reader = queued(&server, |locks| locks.read("prices")).await;
    let next = queued(&server, |locks| locks.read("prices").ttl(LONG)).await;
    reader.abort();
    eventually_waiting(&server, "prices", 1).await;
    releases(writer).await;
    let next = soon(next).await.unwrap();
    assert_eq!(locks.info("prices").await.unwrap().unwrap().holders, 1);
    releases(next).await;
}
