//! A client belongs to the runtime on which it was used first; guards may go anywhere. And programs without one.

use crate::scene::{
    Kind, LONG, NOTHING, behind, both_kinds, client, eventually_free, eventually_renewed,
    eventually_waiting, held, is_held_by, locks, millis, server, soon, standing,
};
use leasehold_client::{Error, Guard, Locks, Loss, Released, Settings, blocking};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;
use testkit::{Proxy, Server};
use tokio::runtime::{Builder, Runtime};

fn driven() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn take(runtime: &Runtime, locks: &Locks, name: &str) -> Guard {
    runtime.block_on(async { soon(locks.lock(name).ttl(LONG)).await.unwrap() })
}

/// What comes of it on this thread, which has no runtime.
fn at_once<T>(expected: impl Future<Output = T>) -> T {
    let mut expected = pin!(expected);
    match expected.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(came) => came,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn on_another_runtime_and_on_none_everything_is_refused_and_nothing_asked() {
    for server in both_kinds() {
        let (locks, home, other) = (locks(&server), driven(), driven());
        assert!(matches!(at_once(locks.lock("printer").try_now()), Err(Error::OtherRuntime)));
        let guard = take(&home, &locks, "printer");
        let detached = take(&home, &locks, "kept").detach();
        let before = server.client().info_number("stats", "total_commands_processed");
        let refused = async {
            let command = redis::cmd("PING");
            let election = locks.election("scheduler", "one");
            let came = [
                locks.lock("scanner").await.err(),
                locks.lock("scanner").try_now().await.err(),
                locks.lock("scanner").run(async |_| ()).await.err(),
                locks.info("printer").await.err(),
                locks.holders("printer").await.err(),
                locks.waiters("printer").await.err(),
                locks.adopt(&detached).await.err(),
                election.leader().await.err(),
                election.observe().next().await.err(),
                guard.extend(LONG).await.err(),
                guard.run_command::<()>(&command).await.err(),
            ];
            for (at, error) in came.into_iter().enumerate() {
                assert!(matches!(error, Some(Error::OtherRuntime)), "{at}: {error:?}");
            }
        };
        other.block_on(refused);
        let after = server.client().info_number("stats", "total_commands_processed");
        assert!(after - before < 5, "only this was asked");
        assert_eq!((guard.loss(), guard.valid_for() > LONG / 2), (None, true));
        home.block_on(async { assert_eq!(guard.release().await.unwrap(), Released::InTime) });
    }
}

/// A release that is refused here is made at home, as if the guard had been dropped.
#[test]
fn a_guard_that_is_released_elsewhere_is_released_at_home() {
    for server in both_kinds() {
        let (locks, home, other) = (locks(&server), driven(), driven());
        let guard = take(&home, &locks, "printer");
        let refused = other.block_on(guard.release());
        assert!(matches!(refused, Err(Error::OtherRuntime)), "{refused:?}");
        home.block_on(eventually_free(&server, "printer"));
        assert_eq!(home.block_on(locks.close(LONG)), NOTHING);
    }
}

#[test]
fn a_guard_is_released_wherever_it_is_dropped() {
    for server in both_kinds() {
        let (locks, home, other) = (locks(&server), driven(), standing());
        let [inside, entered, outside, thread] =
            ["inside", "entered", "outside", "thread"].map(|name| take(&home, &locks, name));
        other.block_on(async { drop(inside) });
        let entering = other.enter();
        drop(entered);
        drop(entering);
        drop(outside);
        thread::spawn(move || drop(thread)).join().unwrap();
        for name in ["inside", "entered", "outside", "thread"] {
            home.block_on(eventually_free(&server, name));
        }
    }
}

#[test]
fn a_loss_is_seen_anywhere() {
    for server in both_kinds() {
        let (locks, home, other) = (locks(&server), driven(), standing());
        let guard = home.block_on(async { locks.lock("printer").ttl(millis(600)).await.unwrap() });
        let over = guard.cancellation();
        server.cmd("DEL printer");
        other.block_on(async {
            assert_eq!(soon(guard.lost()).await, Loss::Taken);
            soon(over.cancelled()).await;
        });
        assert_eq!(guard.loss(), Some(Loss::Taken));
    }
}

#[test]
fn guards_are_lost_when_the_runtime_that_kept_them_ends() {
    for server in both_kinds() {
        let (locks, home, other) = (locks(&server), standing(), standing());
        let guard = take(&home, &locks, "printer");
        drop(home);
        assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Closed), Duration::ZERO));
        other.block_on(async {
            assert_eq!(soon(guard.lost()).await, Loss::Closed);
            assert!(matches!(guard.release().await, Err(Error::Closed)));
            assert!(matches!(locks.lock("scanner").await, Err(Error::OtherRuntime)));
        });
        drop(take(&standing(), &Locks::new(client(server.port())), "scanner"));
        // Nobody is there to release it.
        assert!(held(&server, "printer").is_some());
    }
}

/// Whoever only looks after a guard keeps it, and nothing else the client.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_outlives_its_client_and_a_client_ends_with_its_last_guard() {
    for server in both_kinds() {
        let ttl = millis(600);
        let locks = locks(&server);
        let guard = locks.lock("printer").ttl(ttl).await.unwrap();
        drop(locks);
        let begun = std::time::Instant::now();
        while begun.elapsed() < 2 * ttl {
            eventually_renewed(&guard, ttl).await;
        }
        assert!(is_held_by(&server, "printer", &guard));
        drop(guard);
        eventually_free(&server, "printer").await;
        let connections = || crate::scene::connections(&server);
        crate::scene::eventually("it has no connections", || match connections() {
            0 => Ok(()),
            some => Err(some),
        })
        .await;
    }
}

/// A waker that drops a guard.
struct Dropping(Mutex<Option<Guard>>);

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

/// Polls it once with this waker.
fn wait_with(waker: &Waker, expected: Pin<&mut impl Future>) {
    assert!(expected.poll(&mut Context::from_waker(waker)).is_pending());
}

/// Whoever is told that something has ended may use the client at once.
#[test]
fn a_guard_may_be_dropped_by_whoever_is_told_of_the_end_of_another_one() {
    let server = server();
    for ends in ["dropped", "closed", "taken"] {
        let (locks, runtime) = (locks(&server), driven());
        let one = soon(locks.lock("one").ttl(millis(600)));
        let one = runtime.block_on(async { one.await.unwrap() });
        let other = take(&runtime, &locks, "other");
        let (done, is_done) = mpsc::channel();
        let port = server.port();
        thread::spawn(move || {
            let over = one.cancellation();
            let mut gone = pin!(over.cancelled());
            wait_with(&Waker::from(Arc::new(Dropping(Mutex::new(Some(other))))), gone.as_mut());
            match ends {
                "dropped" => drop(one),
                "closed" => assert_eq!(runtime.block_on(locks.close(LONG)), NOTHING),
                _ => {
                    let mut client = testkit::Client::over_tcp(("127.0.0.1", port)).unwrap();
                    client.cmd("DEL one");
                    runtime.block_on(async { soon(one.lost()).await });
                }
            }
            assert_eq!(runtime.block_on(locks.close(LONG)), NOTHING);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{ends} hangs"));
        assert_eq!((held(&server, "one"), held(&server, "other")), (None, None), "{ends}");
    }
}

fn blocking_locks(server: &Server) -> blocking::Locks {
    blocking::Locks::new(client(server.port())).unwrap()
}

#[test]
fn threads_without_a_runtime_take_a_lock_one_after_the_other() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let (ours, theirs) = (blocking_locks(&server), blocking_locks(&server));
        let first = ours.wait(ours.lock("printer").ttl(millis(600))).unwrap();
        let busy = theirs.wait(theirs.lock("printer").wait(millis(30)));
        assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
        // It is renewed while this thread does something else.
        thread::sleep(millis(1_500));
        assert_eq!(first.loss(), None);
        let fence = first.fence();
        let next = thread::spawn({
            let theirs = theirs.clone();
            move || theirs.wait(theirs.lock("printer").ttl(LONG)).unwrap()
        });
        if kind == Kind::With {
            ours.wait(eventually_waiting(&server, "printer", 1));
        }
        assert_eq!(ours.wait(first.release()).unwrap(), Released::InTime);
        let next = next.join().unwrap();
        assert!(next.fence() > fence && is_held_by(&server, "printer", &next));
        let pages = ours.wait(ours.lock("scanner").run(async |_| 17)).unwrap();
        assert_eq!(pages, 17);
        // Whoever drops it need not wait.
        drop(next);
        ours.wait(eventually_free(&server, "printer"));
        assert_eq!(ours.wait(ours.close(LONG)), NOTHING);
        assert!(matches!(ours.wait(ours.lock("printer").try_now()), Err(Error::Closed)));
    }
}

/// Also the runtime may be dropped where none may wait.
#[tokio::test]
async fn a_client_that_blocks_may_be_dropped_on_a_runtime() {
    let server = server();
    let locks = blocking_locks(&server);
    let theirs = locks.clone();
    let guard = tokio::task::spawn_blocking(move || theirs.wait(theirs.lock("printer")).unwrap());
    drop(guard.await.unwrap());
    drop(locks);
}

#[test]
fn closing_takes_no_longer_than_its_limit_and_names_what_is_left() {
    for kind in Kind::BOTH {
        let mut server = kind.setup().start();
        let proxy = Proxy::to(server.port());
        let (locks, home) = (behind(&proxy, Settings::default()), driven());
        let guards = ["b", "a"].map(|name| take(&home, &locks, name));
        let _later = take(&home, &locks, "c").detach();
        server.freeze();
        let begun = std::time::Instant::now();
        assert_eq!(home.block_on(locks.close(millis(300))), ["a", "b"]);
        assert!(begun.elapsed() < millis(2_000), "{:?}", begun.elapsed());
        assert!(guards.iter().all(|guard| guard.loss() == Some(Loss::Closed)));
        server.thaw();
    }
}
