//! Futures that are dropped half-way, at any point: nothing is left behind.

use crate::scene::{
    Kind, LONG, NOTHING, Way, behind, both_kinds, eventually, eventually_free, eventually_waiting,
    held, is_held_by, locks, locks_with, millis, poll_times, quorum, server, soon, ttl_of, waiters,
};
use leasehold_client::{Error, Guard, Locks, Loss, Released, Renew, Request, Settings};
use std::cell::RefCell;
use std::pin::Pin;
use std::time::Duration;
use testkit::{Proxy, Seed, Server, short_or_long};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

type Asking = Pin<Box<dyn Future<Output = Result<Option<Guard>, Error>> + Send>>;

/// A request in each way in which it can be made.
fn ways_to_ask(locks: &Locks, kind: Kind) -> Vec<(&'static str, Asking)> {
    async fn waits(request: Request) -> Result<Option<Guard>, Error> {
        request.wait(LONG).await.map(Some)
    }
    let lock = || locks.lock("printer").ttl(LONG);
    let mut all: Vec<(_, Asking)> = vec![
        ("lock", Box::pin(waits(lock()))),
        ("try", Box::pin(lock().try_now())),
        ("owner", Box::pin(waits(lock().owner("worker-7")))),
        ("all", Box::pin(waits(locks.all(["printer", "scanner"]).ttl(LONG)))),
        ("replicas", Box::pin(waits(lock().replicas(1, millis(50))))),
    ];
    if kind == Kind::With {
        all.push(("read", Box::pin(waits(locks.read("printer").ttl(LONG)))));
        all.push(("ephemeral", Box::pin(waits(lock().ephemeral(LONG)))));
        all.push(("confirm", Box::pin(waits(lock().confirm()))));
    }
    all
}

async fn nothing_is_left(server: &Server, kind: Kind, what: &str) {
    for key in ["printer", "scanner"] {
        eventually(&format!("{key} is free of {what}"), || held(server, key).map_or(Ok(()), Err))
            .await;
        if kind == Kind::With {
            eventually("nobody waits", || match waiters(server, key) {
                0 => Ok(()),
                some => Err(some),
            })
            .await;
        }
    }
}

/// Each time it is dropped one step further on, until it is done: of a lock that is free.
#[tokio::test]
async fn whoever_stops_at_any_step_on_the_way_to_a_free_lock_leaves_nothing_behind() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let locks = locks(&server);
        for way in 0..ways_to_ask(&locks, kind).len() {
            // The first request finds nothing connected: by a client of its own, each of its steps is that.
            for is_fresh in [false, true] {
                let mut steps = 0;
                loop {
                    let fresh = is_fresh.then(|| crate::scene::locks(&server));
                    let locks = fresh.as_ref().unwrap_or(&locks);
                    let (what, mut asking) = ways_to_ask(locks, kind).swap_remove(way);
                    let is_under_way = poll_times(asking.as_mut(), steps).await;
                    drop(asking);
                    nothing_is_left(&server, kind, what).await;
                    // Most steps find that nothing has happened meanwhile.
                    steps += 1 + steps / 4;
                    if !is_under_way || steps > 400 {
                        break;
                    }
                }
            }
        }
        assert_eq!(soon(locks.close(LONG)).await, NOTHING);
    }
}

/// The same while somebody else has it, and gives it back around the moment of the drop.
#[tokio::test]
async fn whoever_stops_at_any_step_around_a_grant_leaves_nothing_behind() {
    let mut seed = Seed::announced();
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let (ours, theirs) = (locks(&server), locks(&server));
        for way in 0..ways_to_ask(&ours, kind).len() {
            for _ in 0..short_or_long(12, 300) {
                let taken = theirs.lock("printer").ttl(LONG).await.unwrap();
                let (what, mut asking) = ways_to_ask(&ours, kind).swap_remove(way);
                let before = seed.below(40);
                let is_under_way = poll_times(asking.as_mut(), before).await;
                sleep(Duration::from_micros(seed.below(2_000) as u64)).await;
                let release = tokio::spawn(taken.release());
                let longest = Duration::from_micros(seed.below(3_000) as u64);
                if is_under_way {
                    drop(timeout(longest, &mut asking).await);
                }
                drop(asking);
                assert_eq!(soon(release).await.unwrap().unwrap(), Released::InTime);
                nothing_is_left(&server, kind, what).await;
            }
        }
        assert_eq!(soon(ours.close(LONG)).await, NOTHING);
    }
}

/// What has been sent is in a link that stands still, and arrives when nobody waits for it any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dropped_leaves_no_lock_behind_although_it_arrives_late() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let proxy = Proxy::to(server.port());
        let settings = Settings { response_timeout: millis(5_000), ..Settings::default() };
        let locks = behind(&proxy, settings);
        let connected = locks.lock("other").await.unwrap();
        assert_eq!(connected.release().await.unwrap(), Released::InTime);
        for owner in [None, Some("worker-7")] {
            proxy.hold();
            let request = locks.lock("printer").ttl(LONG);
            let request = owner.map_or(request.clone(), |owner| request.owner(owner));
            assert!(timeout(millis(50), request.into_future()).await.is_err());
            proxy.deliver();
            eventually_free(&server, "printer").await;
            assert!(soon(locks.lock("printer").ttl(LONG)).await.is_ok());
        }
        assert_eq!(soon(locks.close(LONG)).await, NOTHING);
        assert_eq!(held(&server, "printer"), None);
    }
}

/// Nobody knows whether the request was heard, and the end of its connection does not show that the release was.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_connection_is_cut_as_it_is_dropped_leaves_no_lock_behind() {
    for way in Way::BOTH {
        let server = server();
        let proxy = Proxy::to(server.port());
        server.client().grant("printer", "somebody", 600_000);
        let settings = Settings { response_timeout: millis(300), ..Settings::default() };
        let locks = way.locks(&server, proxy.port(), settings);
        let waiter = tokio::spawn(locks.lock("printer").ttl(LONG).into_future());
        eventually_waiting(&server, "printer", 1).await;
        proxy.cut();
        server.cmd("DEL printer");
        waiter.abort();
        drop(waiter.await);
        proxy.heal();
        eventually_free(&server, "printer").await;
        assert_eq!(soon(locks.close(LONG)).await, NOTHING);
        assert_eq!((held(&server, "printer"), waiters(&server, "printer")), (None, 0));
    }
}

#[tokio::test]
async fn a_release_that_is_dropped_at_any_step_goes_on() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let locks = locks(&server);
        for steps in [0, 1, 2, 3, 5, 8, 20] {
            let guard = locks.lock("printer").ttl(LONG).await.unwrap();
            let mut releasing = Box::pin(guard.release());
            let _ = poll_times(releasing.as_mut(), steps).await;
            drop(releasing);
            eventually_free(&server, "printer").await;
            // What is to stay stays, however its release was begun.
            let kept = locks.lock("nightly").ttl(LONG).hold_at_least(LONG).await.unwrap();
            let mut releasing = Box::pin(kept.release());
            let _ = poll_times(releasing.as_mut(), steps).await;
            drop(releasing);
            drop(soon(locks.lock("other")).await.unwrap());
            assert!(ttl_of(&server, "nightly") > 50_000, "after {steps}");
            server.cmd("DEL nightly");
        }
        let held_on = locks.lock("nightly").ttl(LONG).hold_at_least(LONG).await.unwrap();
        drop(held_on);
        drop(locks.lock("dropped").ttl(LONG).await.unwrap());
        // At once, before anything was begun.
        assert_eq!(soon(locks.close(LONG)).await, NOTHING);
        assert!(ttl_of(&server, "nightly") > 50_000);
        assert_eq!(held(&server, "dropped"), None);
    }
}

/// The server may have carried it out, and the guard counts on no more than that leaves.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_is_dropped_is_as_if_its_answer_had_been_lost() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let proxy = Proxy::to(server.port());
        let locks = behind(&proxy, Settings { response_timeout: LONG, ..Settings::default() });
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        proxy.hold();
        assert!(timeout(millis(50), guard.extend(millis(1_500))).await.is_err());
        assert!(guard.valid_for() <= millis(1_500));
        proxy.deliver();
        eventually("it was shortened", || match ttl_of(&server, "printer") {
            left if left <= 1_500 => Ok(()),
            left => Err(left),
        })
        .await;
        // It is renewed on by that, or by what is asked for next.
        for ttl in [None, Some(LONG)] {
            if let Some(ttl) = ttl {
                guard.extend(ttl).await.unwrap();
            }
            sleep(millis(2_000)).await;
            assert_eq!(guard.loss(), None, "{ttl:?}");
        }
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
    }
}

/// The next lease is no longer than the one that arrives late leaves it.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_lost_before_an_extension_that_arrives_late_frees_its_lock() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let proxy = Proxy::to(server.port());
        let settings = Settings { response_timeout: millis(200), ..Settings::default() };
        let (ours, theirs) = (behind(&proxy, settings), locks(&server));
        let guard = ours.lock("printer").ttl(LONG).renew(Renew::Never).await.unwrap();
        proxy.hold();
        // The first try is on its way, and the others are made on another connection.
        soon(guard.extend(millis(1_500))).await.unwrap();
        soon(guard.extend(LONG)).await.unwrap();
        let next = tokio::spawn(theirs.lock("printer").ttl(LONG).into_future());
        sleep(millis(200)).await;
        proxy.deliver();
        let next = soon(next).await.unwrap().unwrap();
        assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Expired), Duration::ZERO));
        assert!(is_held_by(&server, "printer", &next));
    }
}

#[tokio::test]
async fn a_quorum_that_is_asked_and_dropped_at_any_step_leaves_nothing_behind() {
    for kind in Kind::BOTH {
        let servers = kind.start(3);
        let quorum = quorum(&servers);
        for steps in (0..12).chain([15, 20, 30, 40, 60, 90]) {
            let mut asking = Box::pin(quorum.lock("printer").ttl(LONG).into_future());
            let _ = poll_times(asking.as_mut(), steps).await;
            drop(asking);
            for server in &servers {
                eventually_free(server, "printer").await;
            }
            let guard = soon(quorum.lock("scanner").ttl(LONG)).await.unwrap();
            let mut releasing = Box::pin(guard.release());
            let _ = poll_times(releasing.as_mut(), steps).await;
            drop(releasing);
            for server in &servers {
                eventually_free(server, "scanner").await;
            }
        }
        assert_eq!(soon(quorum.close(LONG)).await, NOTHING);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_run_is_dropped_with_its_lock() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let locks = locks_with(&server, Settings { ttl: LONG, ..Settings::default() });
        let (ours, pages) = (locks.clone(), "page 1".to_owned());
        // As an axum handler does: it goes from thread to thread, and borrows.
        let work = tokio::spawn(async move {
            ours.lock("printer").run(async |_| std::future::pending::<usize>().await).await?;
            ours.lock("printer").run(async |_| pages.len()).await
        });
        eventually("it is held", || held(&server, "printer").ok_or(())).await;
        work.abort();
        assert!(work.await.unwrap_err().is_cancelled());
        eventually_free(&server, "printer").await;
        let panics = locks.lock("printer").run(async |guard| assert!(guard.name().is_empty()));
        let ours = tokio::spawn(panics);
        assert!(ours.await.unwrap_err().is_panic());
        eventually_free(&server, "printer").await;
    }
}

/// What gives back the first request comes before the second one.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_stops_and_asks_again_holds_what_it_is_granted() {
    for server in both_kinds() {
        let locks = locks(&server);
        for steps in 0..20 {
            let mut stopped = locks.lock("printer").owner("me").into_future();
            poll_times(stopped.as_mut(), steps % 4).await;
            drop(stopped);
            let guard = soon(locks.lock("printer").owner("me").try_now()).await.unwrap().unwrap();
            // Answered behind whatever was under way.
            guard.extend(LONG).await.unwrap();
            assert!(is_held_by(&server, "printer", &guard));
            assert_eq!(guard.release().await.unwrap(), Released::InTime);
        }
    }
}

#[tokio::test]
async fn work_inside_the_work_under_a_lock_has_its_guard_and_asks_no_server() {
    for server in both_kinds() {
        let locks = locks(&server);
        let mut client = server.client();
        let mut asked = || {
            let mut executed = client.executed();
            executed
                .retain(|command, _| command.starts_with("lock") || command.starts_with("eval"));
            executed
        };
        let tray = || locks.lock("tray").run_reentrant(async |guard| guard.fence());
        let refused = |came: Result<(), Error>| matches!(came, Err(Error::Setting { .. }));
        let both = locks.all(["printer", "tray"]).run_reentrant(async |outer| {
            let before = asked();
            assert_eq!(tray().await.unwrap(), outer.fence());
            let read = locks.read("tray").run_reentrant(async |guard| {
                assert_eq!(guard.fence(), outer.fence());
                assert_eq!(tray().await.unwrap(), outer.fence(), "it is a writer's");
            });
            read.await.unwrap();
            let more = locks.all(["tray", "shelf"]).run_reentrant(async |_| ());
            assert!(refused(more.await), "it would wait for the tray");
            assert_eq!(asked(), before);

            // Another client, and another task, are others.
            let other = locks_with(&server, Settings::default());
            for stranger in [other.lock("tray"), locks.lock("tray")] {
                let stranger = stranger.wait(Duration::ZERO).run_reentrant(async |_| ());
                let came = tokio::spawn(stranger).await.unwrap();
                assert!(matches!(came, Err(Error::Busy { .. })), "{came:?}");
            }
            outer.fence()
        });
        let fence = soon(both).await.unwrap();
        assert_eq!(held(&server, "tray"), None);
        assert!(tray().await.unwrap() > fence);

        // What began inside goes on when the work around has ended: the last one releases.
        let (begun, goes_on) = (Notify::new(), Notify::new());
        let inside = RefCell::new(None);
        let around = locks.lock("tray").run_reentrant(async |_| {
            let mut inner = Box::pin(locks.lock("tray").run_reentrant(async |_| {
                begun.notify_one();
                goes_on.notified().await;
            }));
            tokio::select! {
                _ = &mut inner => unreachable!(),
                () = begun.notified() => {}
            }
            inside.replace(Some(inner));
        });
        soon(around).await.unwrap();
        assert!(held(&server, "tray").is_some());
        goes_on.notify_one();
        soon(inside.take().unwrap()).await.unwrap();
        assert_eq!(held(&server, "tray"), None);
    }
}

#[tokio::test]
async fn work_inside_the_work_of_a_reader_does_not_wait_for_itself_as_a_writer() {
    let server = server();
    let locks = locks(&server);
    let read = locks.read("tray").run_reentrant(async |_| {
        let write = locks.lock("tray").run_reentrant(async |_| ());
        assert!(matches!(write.await, Err(Error::Setting { .. })));
    });
    soon(read).await.unwrap();
}
