//! Leases are renewed while their guards live, and no longer.

use crate::scene::{
    LONG, both_kinds, eventually, held, locks, locks_with, millis, poll_once, quorum, server, soon,
    ttl_of, url, with_module, without_module,
};
use leasehold_client::{Extended, Locks, Loss, Released, Renew, Settings};
use std::pin::pin;
use std::time::Instant;
use testkit::{Proxy, Server, bulk_text, figure};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

const SHORT: u64 = 300;

/// How often the server was asked to extend.
fn extensions(server: &Server) -> u64 {
    let stats = bulk_text(&server.cmd("INFO commandstats"));
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_lock.extend:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_outlives_its_ttl_many_times() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        // A busy machine lets a program stand still for half a second.
        let ttl = millis(1_000);
        let guard = ours.lock("printer").ttl(ttl).await.unwrap();
        let begun = Instant::now();
        while begun.elapsed() < 4 * ttl {
            assert!(theirs.try_lock("printer").await.unwrap().is_none());
            sleep(millis(10)).await;
        }
        assert_eq!(guard.loss(), None);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_is_not_renewed() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").fixed_ttl(millis(SHORT)).await.unwrap();
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    assert_eq!(extensions(&server), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_no_longer_than_its_longest_lifetime() {
    let server = server();
    let locks = locks(&server).await;
    let longest = Renew::AtMost(millis(3 * SHORT));
    let begun = Instant::now();
    let guard = locks.lock("printer").ttl(millis(SHORT)).renew(longest).await.unwrap();
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    let lasted = begun.elapsed();
    assert!(lasted > millis(2 * SHORT) && lasted < millis(4 * SHORT), "{lasted:?}");
    assert!(extensions(&server) >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_renewed_when_the_guard_is_gone() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(millis(SHORT)).await.unwrap();
    eventually("it is renewed", || match extensions(&server) {
        0 => Err(()),
        _ => Ok(()),
    })
    .await;
    drop(guard);
    locks.settle().await;
    let before = extensions(&server);
    sleep(millis(2 * SHORT)).await;
    assert_eq!(extensions(&server), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_task_of_a_client_ends_with_its_last_guard() {
    let server = server();
    let before = Handle::current().metrics().num_alive_tasks();
    let locks = locks(&server).await;
    let guard = locks.try_lock("printer").await.unwrap().expect("it is free");
    drop(locks);
    assert!(Handle::current().metrics().num_alive_tasks() > before);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    eventually("its tasks have ended", || match Handle::current().metrics().num_alive_tasks() {
        now if now <= before => Ok(()),
        now => Err(now),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_survives_a_link_that_breaks_and_comes_back() {
    for server in [server(), without_module().start()] {
        let proxy = Proxy::to(server.port());
        let locks = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
        let guard = locks.lock("printer").ttl(millis(3_000)).await.unwrap();
        for _ in 0..2 {
            proxy.cut();
            sleep(millis(1_400)).await;
            proxy.heal();
            let healed = Instant::now();
            eventually("it was renewed", || match guard.valid_for() {
                left if left > millis(2_500) => Ok(()),
                left => Err((left, healed.elapsed(), guard.loss())),
            })
            .await;
        }
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task_keeps_ten_thousand_guards() {
    const GUARDS: usize = 10_000;
    let server = server();
    let settings = Settings::default().ttl(millis(6_000)).response(millis(1_200));
    let locks = locks_with(&server, settings).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    // The task begins with the first lock.
    assert!(locks.lock("first").await.unwrap().release().await.unwrap().in_time());
    let before = tasks();
    let begun = Instant::now();
    let mut guards = Vec::with_capacity(GUARDS);
    for first in (0..GUARDS).step_by(100) {
        let some =
            (first..first + 100).map(|number| locks.lock(format!("lock:{number}")).try_now());
        let some = futures_util::future::join_all(some).await;
        guards.extend(some.into_iter().map(|guard| guard.unwrap().expect("it is free")));
    }
    let taken = begun.elapsed();
    assert!(tasks() <= before, "tasks per lock: {} instead of {before}", tasks());
    // More than one ttl after the last one was taken, all of them have been renewed.
    sleep(millis(7_000)).await;
    assert_eq!(guards.iter().filter_map(|guard| guard.loss()).count(), 0);
    assert!(extensions(&server) >= GUARDS as u64);
    assert_eq!(
        server.client().info_field("keyspace", "db0").unwrap().split(',').next(),
        Some("keys=10000")
    );
    let begun = Instant::now();
    drop(guards);
    locks.settle().await;
    let released = begun.elapsed();
    // The ten seconds that it waits at most may be too few on a busy machine.
    eventually("all are released", || match server.client().info_field("keyspace", "db0") {
        None => Ok(()),
        left => Err(left),
    })
    .await;
    figure(&format!(
        "client: 10,000 guards taken in {} ms, kept over a ttl of 6 s by one task, released in {} ms",
        taken.as_millis(),
        released.as_millis()
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_for_less_than_the_lease_costs_nothing() {
    let mut server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(millis(3_000)).await.unwrap();
    server.freeze();
    sleep(millis(1_500)).await;
    server.thaw();
    eventually("it was renewed", || match guard.valid_for() {
        left if left > millis(2_500) => Ok(()),
        left => Err((left, guard.loss())),
    })
    .await;
    assert!(held(&server, "printer").is_some());
    assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_before_the_end_of_a_shorter_one_whose_request_was_dropped() {
    for mut server in both_kinds() {
        let locks = locks(&server).await;
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        // The server carries it out when it goes on.
        server.freeze();
        assert!(timeout(millis(50), guard.extend(millis(900))).await.is_err());
        server.thaw();
        assert_eq!(timeout(millis(2_500), guard.lost()).await.ok(), None);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_while_nobody_polls_an_extension_that_was_begun() {
    for mut server in both_kinds() {
        let locks = locks(&server).await;
        for (name, ttl) in [("same", millis(900)), ("shorter", millis(600)), ("longer", LONG)] {
            let guard = locks.lock(name).ttl(millis(900)).await.unwrap();
            let mut begun = pin!(guard.extend(ttl));
            // So that it is not answered in that moment.
            server.freeze();
            poll_once(begun.as_mut()).await;
            server.thaw();
            assert_eq!(timeout(millis(2_500), guard.lost()).await.ok(), None, "{name}");
            assert_eq!(soon(guard.extend(millis(900))).await.unwrap(), Extended::Extended);
            assert_eq!(soon(begun).await.unwrap(), Extended::Extended, "{name}");
            assert_eq!(guard.loss(), None, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_on_most_servers_is_renewed_while_nobody_polls_an_extension_that_was_begun() {
    for setup in [with_module, without_module] {
        let mut servers = [setup().start(), setup().start(), setup().start()];
        // On a busy machine an answer takes longer than a tenth of so short a ttl.
        let quorum = quorum(&servers).await.server_limit(millis(400));
        for (name, ttl) in [("same", millis(1_500)), ("shorter", millis(900)), ("longer", LONG)] {
            let guard = quorum.lock(name).ttl(millis(1_500)).await.unwrap();
            let mut begun = pin!(guard.extend(ttl));
            servers.iter_mut().for_each(Server::freeze);
            poll_once(begun.as_mut()).await;
            servers.iter_mut().for_each(Server::thaw);
            assert_eq!(timeout(millis(3_500), guard.lost()).await.ok(), None, "{name}");
            assert_eq!(soon(guard.extend(millis(1_500))).await.unwrap(), Extended::Extended);
            assert_eq!(guard.loss(), None, "{name}");
        }
    }
}

/// Whichever of them the server hears last.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_extended_by_many_at_a_time_counts_on_no_more_than_the_server_has() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let guard = locks.lock("printer").ttl(millis(900)).await.unwrap();
        let extend = async |task: u64| {
            for round in 0..30 {
                let ttl = millis(600 + 100 * ((task + round) % 5));
                assert_eq!(guard.extend(ttl).await.unwrap(), Extended::Extended);
                let (looked, valid_for) = (Instant::now(), guard.valid_for());
                let left = millis(ttl_of(&server, "printer").cast_unsigned() + 2);
                assert!(valid_for <= left + looked.elapsed(), "{valid_for:?} of {left:?}");
            }
        };
        soon(futures_util::future::join_all((0..8).map(extend))).await;
        assert_eq!(soon(guard.extend(LONG)).await.unwrap(), Extended::Extended);
        assert!(guard.valid_for() > LONG / 2, "{:?}", guard.valid_for());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_meets_a_renewal_counts_for_all_of_its_ttl() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        for _ in 0..12 {
            // Long enough for each renewal to be answered in time on a busy machine.
            let guard = locks.lock("printer").ttl(millis(600)).await.unwrap();
            // When it is renewed.
            sleep(millis(200)).await;
            assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
            assert!(guard.valid_for() > LONG / 2, "{:?}", guard.valid_for());
            drop(guard);
            locks.settle().await;
        }
    }
}
