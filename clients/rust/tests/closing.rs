//! Leaving: what is held is given back, and what goes on in the background is waited for.

use crate::scene::{
    Kind, LONG, WAYS, both_kinds, by, eventually, eventually_free, eventually_waiting, held, locks,
    locks_with, millis, server, soon, url,
};
use leasehold_client::{Error, Locks, Loss, Settings};
use std::time::{Duration, Instant};
use testkit::{Proxy, Server, free_port};
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn settle_waits_for_releases_before_it_and_not_for_those_after() {
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let proxy = Proxy::to(server.port());
        let locks = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
        proxy.slow(millis(5));
        let busy: Vec<_> = (0..16)
            .map(|number| {
                let (locks, name) = (locks.clone(), format!("busy:{number}"));
                tokio::spawn(async move {
                    loop {
                        drop(locks.lock(&name).ttl(LONG).await.unwrap());
                    }
                })
            })
            .collect();
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            drop(locks.lock("printer").ttl(LONG).await.unwrap());
            let begun = Instant::now();
            locks.settle().await;
            longest = longest.max(begun.elapsed());
            assert_eq!(held(&server, "printer"), None);
        }
        kind.measured("ms that settle took on a client with 16 busy tasks", longest.as_millis());
        assert!(longest < millis(1_000), "{longest:?}");
        for task in busy {
            task.abort();
        }
    }
}

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_closed_has_given_back_all_that_it_held() {
    for server in both_kinds() {
        let locks = locks_with(&server, Settings::default().prefix("table:")).await;
        let mut guards = Vec::new();
        for number in 0..100 {
            guards.push(locks.lock(number.to_string()).ttl(LONG).await.unwrap());
        }
        drop(guards.drain(..50));
        assert_eq!(soon(locks.close(LIMIT)).await, Vec::<String>::new());
        for number in 0..100 {
            assert_eq!(held(&server, &format!("table:{number}")), None);
        }
        for guard in guards {
            assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Closed), millis(0)));
            assert_eq!(soon(guard.lost()).await, Loss::Closed);
            assert!(matches!(guard.release().await, Err(Error::Closed)));
        }
        assert_eq!(soon(locks.close(LIMIT)).await, Vec::<String>::new(), "a second time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_when_a_client_is_closed_is_told_and_so_is_who_asks_later() {
    let server = server();
    let (ours, theirs) = (locks(&server).await, locks(&server).await);
    let guard = theirs.lock("printer").ttl(LONG).await.unwrap();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let request = ours.lock("printer");
            tokio::spawn(async move { request.await })
        })
        .collect();
    eventually_waiting(&server, "printer", 20).await;
    let begun = Instant::now();
    assert_eq!(soon(ours.close(LIMIT)).await, Vec::<String>::new());
    assert!(begun.elapsed() < millis(3_000), "{:?}", begun.elapsed());
    for waiter in waiters {
        assert!(matches!(soon(waiter).await.unwrap(), Err(Error::Closed)));
    }
    eventually_waiting(&server, "printer", 0).await;
    assert!(matches!(ours.clone().try_lock("scanner").await, Err(Error::Closed)));
    assert_eq!(guard.loss(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_takes_no_longer_than_its_limit_and_names_what_is_left() {
    let mut server = server();
    let locks = locks_with(&server, Settings::default().prefix("table:")).await;
    let (_seven, nine) = (locks.lock("7").await.unwrap(), locks.lock("9").await.unwrap());
    server.freeze();
    drop(nine);
    let begun = Instant::now();
    assert_eq!(locks.close(millis(500)).await, ["7", "9"]);
    assert!(begun.elapsed() < millis(1_500), "{:?}", begun.elapsed());
    server.thaw();
    assert_eq!(soon(locks.close(LIMIT)).await, Vec::<String>::new());
    assert_eq!((held(&server, "table:7"), held(&server, "table:9")), (None, None));
}

/// Nobody looks at the request, so that it does not end either.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_forgotten_does_not_keep_a_client_from_being_closed() {
    let server = server();
    let (ours, theirs) = (locks(&server).await, locks(&server).await);
    let guard = theirs.lock("printer").ttl(LONG).await.unwrap();
    let mut forgotten = Box::pin(ours.lock("printer").into_future());
    let asked = tokio::time::timeout(millis(100), &mut forgotten).await;
    assert!(asked.is_err());
    let begun = Instant::now();
    assert_eq!(soon(ours.close(LIMIT)).await, Vec::<String>::new());
    assert!(begun.elapsed() < millis(3_000), "{:?}", begun.elapsed());
    drop(guard);
    assert!(matches!(soon(forgotten).await, Err(Error::Closed)));
    ours.settle().await;
    crate::scene::eventually_free(&server, "printer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_stay_stays_when_a_client_is_closed() {
    let server = server();
    let locks = locks(&server).await;
    let _held_on = locks.lock("nightly").hold_at_least(LONG).await.unwrap();
    locks.lock("mail").ttl(LONG).await.unwrap().keep();
    let alice = || locks.lock("shared").owner("alice").ttl(LONG);
    let (_other, kept) = (alice().await.unwrap(), alice().await.unwrap());
    kept.keep();
    assert_eq!(soon(locks.close(LIMIT)).await, Vec::<String>::new());
    for name in ["nightly", "mail", "shared"] {
        assert!(held(&server, name).is_some(), "{name}");
    }
}

/// The runtime ends right after the last act of `main`.
#[test]
fn thirty_programs_that_end_with_close_leave_no_lock() {
    for server in both_kinds() {
        for run in 0..30 {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let locks = locks(&server).await;
                let (_held, dropped) =
                    (locks.lock("held").await.unwrap(), locks.lock("dropped").await.unwrap());
                drop(dropped);
                assert_eq!(locks.close(LIMIT).await, Vec::<String>::new());
            });
            drop(runtime);
            assert_eq!((held(&server, "held"), held(&server, "dropped")), (None, None), "{run}");
        }
    }
}

/// Also while the client and its guards are still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_closed_has_no_connections() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let guard = locks.lock("printer").await.unwrap();
        let request = locks.lock("printer");
        let waiter = tokio::spawn(async move { request.await });
        eventually_waiting_or_polling(&server).await;
        assert_eq!(soon(locks.close(LIMIT)).await, Vec::<String>::new());
        assert!(matches!(soon(waiter).await.unwrap(), Err(Error::Closed)));
        eventually("its connections have ended", || {
            match server.client().info_number("clients", "connected_clients") {
                1 => Ok(()),
                more => Err(more),
            }
        })
        .await;
        drop((locks, guard));
    }
}

/// On a server without the module nobody sees who waits.
async fn eventually_waiting_or_polling(server: &Server) {
    eventually("somebody asks again", || {
        let executed = server.client().executed();
        let asked =
            ["lock.acquire", "eval", "evalsha"].iter().filter_map(|word| executed.get(*word));
        if asked.sum::<u64>() > 1 { Ok(()) } else { Err(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_waited_for_no_longer_than_any_other_request_and_goes_on() {
    const WITHIN: Duration = millis(500);
    for mut server in both_kinds() {
        let locks = locks_with(&server, Settings::default().within(WITHIN)).await;
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        server.freeze();
        let begun = Instant::now();
        let released = soon(guard.release()).await;
        assert!(matches!(released, Err(Error::Unreachable { .. })), "{released:?}");
        assert!(
            (WITHIN..WITHIN + millis(2_000)).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
        server.thaw();
        eventually_free(&server, "printer").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_reached_no_server_leaves_nothing_that_closing_waits_for() {
    // It takes connections, and answers nothing.
    let mut silent = server();
    silent.freeze();
    for port in [free_port(), silent.port()] {
        for way in WAYS {
            let settings = by(way).within(millis(300)).unreachable_after(millis(300));
            let locks = Locks::with_settings(url(port), settings.response(millis(200))).unwrap();
            let printer = || locks.lock("printer").ttl(LONG);
            for request in [
                printer(),
                printer().wait(millis(300)),
                printer().owner("alice"),
                printer().ephemeral(millis(300)),
            ] {
                let error = soon(request).await.unwrap_err();
                assert!(matches!(error, Error::Unreachable { .. }), "{error}");
            }
            assert!(soon(locks.lock_all(["a", "b"]).ttl(LONG)).await.is_err());
            assert!(timeout(millis(20), printer().into_future()).await.is_err(), "it is dropped");
            let begun = Instant::now();
            assert_eq!(soon(locks.close(LIMIT)).await, Vec::<String>::new());
            assert!(begun.elapsed() < millis(1_000), "{:?}", begun.elapsed());
        }
    }
    silent.thaw();
}
