//! What runtimes leave behind that nobody drives any more, or that have ended.

use crate::scene::{
    LONG, both_kinds, client, eventually, eventually_free, held, lock, millis, poll_once, quorum,
    soon, standing, url, with_module, without_module,
};
use leasehold_client::{Locks, Loss, Options, Released, blocking};
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use testkit::Proxy;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(5);

/// What closing a client returns that has released all.
const NOTHING: [String; 0] = [];

fn driven() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The client has a keeper there.
fn used(runtime: &Runtime, locks: &Locks) {
    runtime.block_on(async {
        soon(lock_and_release(locks)).await;
    });
}

async fn lock_and_release(locks: &Locks) {
    let guard = locks.lock("other").ttl(LONG).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Looks at it once, and goes on with whatever that has begun for a moment.
async fn begun(what: Pin<&mut impl Future>) {
    poll_once(what).await;
    tokio::task::yield_now().await;
}

#[test]
fn a_guard_that_is_dropped_where_nobody_goes_on_is_released_by_a_runtime_that_does() {
    for server in both_kinds() {
        let (locks, idle, ours) = (client(&server), standing(), driven());
        let guard = lock(&ours, locks.lock("printer").ttl(LONG));
        idle.block_on(async { drop(guard) });
        ours.block_on(eventually_free(&server, "printer"));
        // One that has begun the release is no different, nor one that has never seen the lock.
        used(&idle, &locks);
        let guard = lock(&idle, locks.lock("scanner").ttl(LONG));
        idle.block_on(begun(pin!(guard.release())));
        ours.block_on(eventually_free(&server, "scanner"));
    }
}

#[test]
fn a_guard_of_a_client_that_blocks_is_released_wherever_it_is_dropped() {
    for server in both_kinds() {
        let (idle, ours) = (standing(), driven());
        let locks = blocking::Locks::new(url(server.port())).unwrap();
        let lock = |name: &str| locks.lock(name, Options::new().ttl(LONG)).unwrap();
        let (inside, entered, outside) = (lock("inside"), lock("entered"), lock("outside"));
        idle.block_on(async { drop(inside) });
        let entering = idle.enter();
        drop(entered);
        drop(entering);
        drop(outside);
        for name in ["inside", "entered", "outside"] {
            ours.block_on(eventually_free(&server, name));
        }
    }
}

#[test]
fn closing_releases_what_was_dropped_on_a_runtime_that_has_ended() {
    for server in both_kinds() {
        let (locks, first, ours) = (client(&server), standing(), standing());
        used(&ours, &locks);
        let dropped = lock(&first, locks.lock("dropped").ttl(LONG));
        let (held_on, outside) = (
            lock(&first, locks.lock("held on").ttl(LONG)),
            lock(&first, locks.lock("outside").ttl(LONG)),
        );
        first.block_on(async { drop(dropped) });
        drop(first);
        drop(outside);
        assert!(held(&server, "dropped").is_some());
        assert_eq!(ours.block_on(locks.close(LIMIT)), NOTHING);
        for name in ["dropped", "held on", "outside"] {
            assert_eq!(held(&server, name), None, "{name}");
        }
        drop(held_on);
    }
}

#[test]
fn closing_releases_what_was_dropped_when_there_was_no_runtime_left() {
    for server in both_kinds() {
        let (locks, first) = (client(&server), standing());
        let guard = lock(&first, locks.lock("printer").ttl(LONG));
        drop(first);
        drop(guard);
        let ours = standing();
        assert_eq!(ours.block_on(locks.close(LIMIT)), NOTHING);
        assert_eq!(held(&server, "printer"), None);
    }
}

/// There is a runtime at hand, on which nothing can be started any more.
#[test]
fn what_is_dropped_on_a_thread_of_a_runtime_that_has_ended_is_waited_for() {
    for mut server in both_kinds() {
        let (locks, first, ours) = (client(&server), driven(), driven());
        used(&ours, &locks);
        let guard = lock(&first, locks.lock("printer").ttl(LONG));
        let (end, is_over) = mpsc::channel::<()>();
        let dropping = first.spawn_blocking(move || {
            is_over.recv().unwrap();
            drop(guard);
        });
        first.shutdown_background();
        server.freeze();
        end.send(()).unwrap();
        ours.block_on(async { soon(dropping).await.unwrap() });
        assert_eq!(ours.block_on(locks.close(millis(300))), ["printer"]);
        server.thaw();
        assert_eq!(ours.block_on(locks.close(LIMIT)), NOTHING);
        assert_eq!(held(&server, "printer"), None);
    }
}

#[test]
fn the_next_runtime_releases_what_the_last_one_left() {
    for server in both_kinds() {
        let (locks, first) = (client(&server), standing());
        let guard = lock(&first, locks.lock("printer").ttl(LONG));
        first.block_on(async { drop(guard) });
        drop(first);
        let ours = standing();
        used(&ours, &locks);
        ours.block_on(eventually_free(&server, "printer"));
    }
}

#[test]
fn guards_in_tasks_of_a_runtime_that_ends_are_released_by_another_one() {
    for server in both_kinds() {
        let (locks, ours) = (client(&server), driven());
        used(&ours, &locks);
        let names: Vec<_> = (0..10).map(|number| format!("printer:{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let theirs = if number % 2 == 0 { driven() } else { standing() };
            let (ready, is_ready) = tokio::sync::oneshot::channel();
            let request = locks.lock(name).ttl(LONG);
            theirs.block_on(async {
                tokio::spawn(async move {
                    let _guard = request.await.unwrap();
                    ready.send(()).unwrap();
                    pending::<()>().await;
                });
                soon(is_ready).await.unwrap();
            });
            drop(theirs);
        }
        for name in &names {
            ours.block_on(eventually_free(&server, name));
        }
        assert_eq!(ours.block_on(locks.close(LIMIT)), NOTHING);
    }
}

#[test]
fn a_request_that_is_given_up_with_its_runtime_is_named_or_released() {
    for server in both_kinds() {
        let (locks, first, ours) = (client(&server), standing(), standing());
        used(&first, &locks);
        used(&ours, &locks);
        // It is sent, and not answered before nobody looks any more.
        let mut request = Box::pin(locks.lock("printer").ttl(LONG).into_future());
        first.block_on(begun(request.as_mut()));
        ours.block_on(eventually("it is granted", || held(&server, "printer").ok_or(())));
        first.block_on(async { drop(request) });
        drop(first);
        let left = ours.block_on(locks.close(LIMIT));
        let is_held = held(&server, "printer").is_some();
        assert_eq!(left.iter().any(|name| name == "printer"), is_held, "{left:?}");
    }
}

/// Its keeper has asked for a shorter lease, and nobody knows whether the server has heard of that.
#[test]
fn closing_releases_what_was_to_be_held_on_by_a_runtime_that_nobody_drives_any_more() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let (locks, idle, ours) = (Locks::new(url(proxy.port())).unwrap(), standing(), driven());
        let alice = locks.lock("printer").owner("alice").ttl(LONG).hold_at_least(millis(500));
        let guard = lock(&idle, alice);
        proxy.hold();
        idle.block_on(async {
            assert!(timeout(millis(50), guard.release()).await.is_err());
        });
        used(&ours, &locks);
        // Long enough for another keeper to help, and for the shorter lease to be over.
        thread::sleep(millis(1_500));
        assert!(held(&server, "printer").is_some());
        assert_eq!(ours.block_on(locks.close(LIMIT)), NOTHING);
        assert_eq!(held(&server, "printer"), None);
    }
}

/// The earlier guard was dropped where nobody releases it, and the place of their owner is taken by a
/// request that nobody drives.
#[test]
fn closing_leaves_alone_what_a_later_guard_of_the_same_grant_has_kept() {
    for server in both_kinds() {
        let (locks, idle, still, ours) = (client(&server), standing(), standing(), driven());
        let alice = || locks.lock("printer").owner("alice").ttl(LONG);
        let guard = lock(&idle, alice());
        let fence = guard.fence();
        idle.block_on(async { drop(guard) });
        let next = lock(&ours, alice());
        assert_eq!(next.fence(), fence, "the server knows the owner");
        next.keep();
        let mut third = Box::pin(alice().into_future());
        still.block_on(poll_once(third.as_mut()));
        assert_eq!(ours.block_on(locks.close(LIMIT)), NOTHING);
        assert!(held(&server, "printer").is_some(), "it is to stay");
    }
}

/// The server has carried it out, and the guard is lost before that is known.
#[test]
fn closing_releases_what_an_extension_holds_that_nobody_has_heard_of() {
    for mut server in both_kinds() {
        let (locks, ours) = (client(&server), driven());
        let [guard, dropped] =
            ["held", "dropped"].map(|name| lock(&ours, locks.lock(name).fixed_ttl(millis(1_000))));
        server.freeze();
        ours.block_on(async {
            for guard in [&guard, &dropped] {
                assert!(timeout(millis(20), guard.extend(LONG)).await.is_err());
            }
            assert_eq!(soon(guard.lost()).await, Loss::Expired);
            // It fails once there is no more time for it, in the background too.
            assert!(soon(dropped.release()).await.is_err());
            locks.settle().await;
            assert_eq!(locks.close(millis(200)).await, ["dropped", "held"]);
        });
        server.thaw();
        assert_eq!(ours.block_on(locks.close(LIMIT)), ["dropped"]);
        assert_eq!(held(&server, "held"), None);
    }
}

/// The server gave the same grant again for less, and holds it for as long as before.
#[test]
fn closing_releases_what_an_earlier_guard_of_the_same_grant_had_for_longer() {
    for server in both_kinds() {
        let (locks, ours) = (client(&server), standing());
        let alice = || locks.lock("printer").owner("alice");
        let guard = lock(&ours, alice().ttl(LONG));
        let fence = guard.fence();
        let next = ours.block_on(async {
            // The next one asks before the release is begun.
            drop(guard);
            soon(alice().fixed_ttl(millis(300))).await.unwrap()
        });
        assert_eq!(next.fence(), fence, "the server knows the owner");
        assert_eq!(ours.block_on(async { soon(next.lost()).await }), Loss::Expired);
        // Now it would be over on the server, too.
        thread::sleep(millis(300));
        assert!(held(&server, "printer").is_some());
        assert_eq!(ours.block_on(locks.close(LIMIT)), NOTHING);
        assert_eq!(held(&server, "printer"), None);
    }
}

/// It has no time to be released in, but for the lease that an earlier guard had.
#[test]
fn a_grant_that_came_too_late_is_released_for_as_long_as_an_earlier_guard_had_it() {
    for mut server in both_kinds() {
        let (locks, ours) = (client(&server), driven());
        let alice = || locks.lock("printer").owner("alice");
        let guard = lock(&ours, alice().ttl(LONG));
        let idle = standing();
        // Its release is not begun before the runtime stands still.
        idle.block_on(async { drop(guard) });
        let came = ours.block_on(async { soon(alice().fixed_ttl(millis(1)).into_future()).await });
        // Nobody waits for its release, which takes a while.
        server.freeze();
        assert!(came.is_err(), "{came:?}");
        thread::sleep(millis(500));
        server.thaw();
        ours.block_on(eventually_free(&server, "printer"));
    }
}

/// With a quorum, each of whose tasks belongs to the runtime that it was begun on.
#[test]
fn closing_a_quorum_names_what_a_runtime_has_not_released_before_it_ended() {
    for setup in [with_module, without_module] {
        let servers = [setup().start(), setup().start(), setup().start()];
        let (first, ours) = (standing(), standing());
        let quorum = first.block_on(quorum(&servers));
        let guard = first.block_on(async { soon(quorum.lock("printer").ttl(LONG)).await.unwrap() });
        let mut release = Box::pin(guard.release());
        first.block_on(poll_once(release.as_mut()));
        drop(first);
        let _ = ours.block_on(async { soon(release).await });
        let left = ours.block_on(quorum.close(LIMIT));
        let is_held = servers.iter().filter(|server| held(server, "printer").is_some()).count() > 1;
        assert_eq!(!left.is_empty(), is_held, "{left:?}");
    }
}

#[test]
fn a_release_outside_of_any_runtime_needs_none_that_is_driven() {
    for server in both_kinds() {
        let (locks, idle) = (client(&server), standing());
        let guard = lock(&idle, locks.lock("printer").ttl(LONG));
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || done.send(wait_for(guard.release())));
        let outcome = is_done.recv_timeout(LIMIT).expect("it hangs");
        assert_eq!(outcome.unwrap(), Released::Released);
        assert_eq!(held(&server, "printer"), None);
    }
}

/// Waits for it on this thread, without a runtime.
fn wait_for<T>(expected: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut expected, mut context) = (pin!(expected), Context::from_waker(&waker));
    loop {
        match expected.as_mut().poll(&mut context) {
            Poll::Ready(came) => return came,
            Poll::Pending => thread::park(),
        }
    }
}
