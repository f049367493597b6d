//! `run` and `with_lock`: the lock is released however the work ends, and `run` stops work that has
//! lost its lock.

use crate::scene::{LONG, both_kinds, eventually, held, locks, locks_with, millis, server, soon};
use leasehold_client::{Error, Locks, Loss, Options, Settings};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::Server;
use tokio::time::sleep;

async fn scene() -> (Server, Locks) {
    let server = server();
    let locks = locks(&server).await;
    (server, locks)
}

fn options() -> Options {
    Options::new().ttl(LONG)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_held_during_the_work_and_released_after_it() {
    let (server, locks) = scene().await;
    let fence = locks.with_lock("printer", options(), async |guard| {
        assert!(held(&server, "printer").unwrap().ends_with(guard.owner()));
        guard.fence()
    });
    assert!(fence.await.unwrap() > 0);
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_released_when_the_work_fails() {
    let (server, locks) = scene().await;
    let failed = locks.with_lock("printer", options(), async |_| Err::<(), _>("out of paper"));
    assert_eq!(failed.await.unwrap(), Err("out of paper"));
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_released_when_the_work_panics() {
    let (server, locks) = scene().await;
    let theirs = locks.clone();
    let work = tokio::spawn(async move {
        theirs
            .with_lock("printer", options(), async |guard| {
                assert!(guard.fence() == 0, "as a bug would");
            })
            .await
    });
    assert!(work.await.unwrap_err().is_panic());
    locks.settle().await;
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_released_when_the_work_is_dropped_half_way() {
    let (server, locks) = scene().await;
    let theirs = locks.clone();
    let work = tokio::spawn(async move {
        theirs.with_lock("printer", options(), async |_| pending::<()>().await).await
    });
    eventually("it is held", || held(&server, "printer").ok_or(())).await;
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    locks.settle().await;
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_is_not_begun_without_the_lock() {
    let (_server, locks) = scene().await;
    let _guard = locks.try_lock("printer").await.unwrap().expect("it is free");
    let impatient = options().wait(Duration::from_millis(50));
    let refused = locks.with_lock("printer", impatient, async |_| panic!("it was begun"));
    assert!(matches!(refused.await, Err(Error::Busy { ref name, .. }) if name == "printer"));
}

/// Notes that it was dropped.
struct Dropped<'a>(&'a AtomicBool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_run_has_the_lock_and_gives_it_back() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let done = locks.run("printer", options(), async |guard| {
            assert!(held(&server, "printer").unwrap().ends_with(guard.owner()));
            "seventeen pages"
        });
        assert_eq!(soon(done).await.unwrap(), "seventeen pages");
        assert_eq!(held(&server, "printer"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_run_is_dropped_when_the_lock_is_lost() {
    for server in both_kinds() {
        let (locks, dropped) = (locks(&server).await, AtomicBool::new(false));
        let short = Options::new().ttl(millis(600));
        let begun = Instant::now();
        let stopped = locks.run("printer", short, async |_| {
            let _noting = Dropped(&dropped);
            server.cmd("SET printer somebody-else");
            pending::<()>().await;
        });
        let stopped = soon(stopped).await;
        assert!(dropped.load(SeqCst));
        assert!(
            matches!(stopped, Err(Error::Lost { ref name, loss: Loss::Taken }) if name == "printer"),
            "{stopped:?}"
        );
        assert!(begun.elapsed() < millis(1_500), "{:?}", begun.elapsed());
        locks.settle().await;
        assert_eq!(held(&server, "printer").as_deref(), Some("somebody-else"));
    }
}

/// Work that never rests cannot be dropped, but it takes no step after its lease.
#[tokio::test]
async fn work_that_is_run_takes_no_step_when_its_lease_is_over() {
    let (_server, locks) = scene().await;
    let late = AtomicBool::new(false);
    let short = Options::new().fixed_ttl(millis(100));
    let stopped = locks.run("printer", short, async |_| {
        // The thread stands still, and with it all timers.
        std::thread::sleep(millis(200));
        tokio::task::yield_now().await;
        late.store(true, SeqCst);
    });
    assert!(matches!(stopped.await, Err(Error::Lost { loss: Loss::Expired, .. })));
    assert!(!late.load(SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_fails_does_not_replace_the_result() {
    let mut server = server();
    let locks = locks_with(&server, Settings::default().within(millis(300))).await;
    server.client();
    let begun = Instant::now();
    let done = locks.run("printer", options(), async |_| {
        server.freeze();
        17
    });
    let run = soon(done).await.unwrap();
    assert_eq!(run, 17);
    // The lease of a minute is not waited for.
    assert!(begun.elapsed() < millis(2_000), "{:?}", begun.elapsed());
    server.thaw();
    sleep(millis(10)).await;
    crate::scene::eventually_free(&server, "printer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_not_run_without_the_lock() {
    let (_server, locks) = scene().await;
    let _guard = locks.try_lock("printer").await.unwrap().expect("it is free");
    let impatient = options().wait(Duration::from_millis(50));
    let refused = locks.run("printer", impatient, async |_| panic!("it was begun"));
    assert!(matches!(refused.await, Err(Error::Busy { ref name, .. }) if name == "printer"));
}

/// As an axum handler does: the future goes from thread to thread, and the work borrows from its
/// caller.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_run_may_go_from_thread_to_thread() {
    let (_server, locks) = scene().await;
    let task = tokio::spawn(async move {
        let page = "page 1".to_owned();
        locks.run("printer", options(), async |_| page.len()).await
    });
    assert_eq!(task.await.unwrap().unwrap(), 6);
}
