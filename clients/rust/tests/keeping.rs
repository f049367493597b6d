//! A lock that outlives its guard, or is held for some time at least.

use crate::scene::{
    LONG, both_kinds, eventually, held, locks, locks_with, millis, quorum, server, soon, ttl_of,
    with_module, without_module,
};
use leasehold_client::{Error, Loss, Released, Renew, Settings};
use std::time::Instant;
use testkit::Setup;
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_kept_stays_until_its_lease_ends() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let guard = ours.lock("printer").ttl(millis(900)).await.unwrap();
        let (fence, watching) = (guard.fence(), guard.cancellation());
        let kept = Instant::now();
        let valid_for = guard.keep();
        assert!(valid_for > millis(500), "{valid_for:?}");
        soon(watching.cancelled()).await;
        ours.settle().await;
        drop(ours);
        assert!(theirs.try_lock("printer").await.unwrap().is_none());
        let next = soon(theirs.lock("printer").ttl(LONG)).await.unwrap();
        assert!(next.fence() > fence);
        let lasted = kept.elapsed();
        assert!(lasted >= valid_for && lasted < millis(2_500), "it was renewed: {lasted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_kept_by_one_guard_is_not_released_by_another() {
    let server = server();
    let locks = locks(&server).await;
    let alice = || locks.lock("printer").owner("alice").ttl(LONG);
    let (kept, other) = (alice().await.unwrap(), alice().await.unwrap());
    kept.keep();
    assert_eq!(other.loss(), None);
    assert_eq!(other.release().await.unwrap(), Released::StillHeld);
    locks.settle().await;
    assert!(held(&server, "printer").is_some());
    // The same owner can still give it back.
    assert_eq!(alice().await.unwrap().release().await.unwrap(), Released::Released);
}

/// On one thread, so that the release of the first guard stands behind the request of the second.
#[tokio::test]
async fn a_lock_that_is_kept_is_not_released_by_an_earlier_guard_of_the_same_grant() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let alice = || locks.lock("printer").owner("alice").ttl(LONG);
        let first = alice().await.unwrap();
        let fence = first.fence();
        drop(first);
        let second = alice().await.unwrap();
        let is_the_same = second.fence() == fence;
        assert!(second.keep() > LONG / 2);
        locks.settle().await;
        assert!(held(&server, "printer").is_some(), "the same grant: {is_the_same}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_at_least_as_long_as_was_asked_for() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let least = millis(800);
        let begun = Instant::now();
        let guard = ours.lock("printer").ttl(LONG).hold_at_least(least).await.unwrap();
        let fence = guard.fence();
        assert_eq!(soon(guard.release()).await.unwrap(), Released::Later);
        assert!(begun.elapsed() < least, "the release waits for nothing");
        // As if the program had ended.
        drop(ours);
        let next = soon(theirs.lock("printer").ttl(LONG)).await.unwrap();
        let lasted = begun.elapsed();
        assert!(lasted >= least && lasted < millis(2_500), "{lasted:?}");
        assert!(next.fence() > fence);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_held_on_is_joined_by_its_owner_who_ends_it_by_a_release() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let alice = || locks.lock("nightly").owner("alice").ttl(LONG);
        let first = alice().hold_at_least(LONG).await.unwrap();
        let fence = first.fence();
        assert_eq!(first.release().await.unwrap(), Released::Later);
        let second = soon(alice().hold_at_least(millis(1))).await.unwrap();
        assert_eq!(second.fence(), fence);
        sleep(millis(5)).await;
        assert_eq!(second.release().await.unwrap(), Released::Released);
        assert_eq!(held(&server, "nightly"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_dropped_holds_its_lock_at_least_as_long_too() {
    let server = server();
    let locks = locks(&server).await;
    drop(locks.lock("printer").ttl(millis(500)).hold_at_least(LONG).await.unwrap());
    locks.settle().await;
    let left = ttl_of(&server, "printer");
    assert!((58_000..=60_001).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_no_longer_than_it_must_although_the_server_hung_at_the_release() {
    for mut server in both_kinds() {
        let locks = locks_with(&server, Settings::default().response(millis(300))).await;
        let least = millis(3_000);
        let guard = locks.lock("printer").ttl(LONG).hold_at_least(least).await.unwrap();
        let granted = Instant::now();
        server.freeze();
        let release = tokio::spawn(guard.release());
        sleep(millis(1_500)).await;
        server.thaw();
        assert_eq!(soon(release).await.unwrap().unwrap(), Released::Later);
        let ends =
            ttl_of(&server, "printer") + i64::try_from(granted.elapsed().as_millis()).unwrap();
        // A server that answers the last try at once, on a machine that has other things to do.
        assert!((2_990..3_600).contains(&ends), "it ends {ends} ms after the grant");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_takes_longer_than_it_must_is_released_at_once() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").hold_at_least(millis(50)).await.unwrap();
    sleep(millis(60)).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert_eq!(held(&server, "printer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_lost_is_not_held_on() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let guard = locks.lock("printer").ttl(LONG).hold_at_least(LONG).await.unwrap();
        server.cmd("SET printer somebody-else PX 5000");
        assert_eq!(guard.release().await.unwrap(), Released::Late);
        assert_eq!(held(&server, "printer").as_deref(), Some("somebody-else"));
        assert!(ttl_of(&server, "printer") <= 5_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_before_it_may_be_released_makes_no_sense() {
    let server = server();
    let locks = locks(&server).await;
    let ends = || locks.lock("printer").fixed_ttl(millis(500));
    for request in [ends(), ends().renew(Renew::AtMost(millis(900)))] {
        let refused = request.hold_at_least(millis(1_000)).await.unwrap_err();
        assert!(matches!(refused, Error::Setting { ref name, .. } if name == "hold_at_least"));
    }
    let guard = ends().hold_at_least(millis(500)).await.unwrap();
    assert_eq!(guard.loss(), None::<Loss>);
}

/// A host whose clock is a second late begins the job when the first one has done it.
#[tokio::test(flavor = "multi_thread")]
async fn a_nightly_job_runs_on_one_host_although_their_clocks_differ() {
    for server in both_kinds() {
        let hosts = [locks(&server).await, locks(&server).await, locks(&server).await];
        let mut ran = 0;
        for host in &hosts {
            let asked = host.lock("nightly").hold_at_least(LONG).try_now();
            if let Some(guard) = asked.await.unwrap() {
                ran += 1;
                assert!(guard.release().await.unwrap().in_time());
            }
        }
        assert_eq!(ran, 1);
        eventually("it is held", || held(&server, "nightly").ok_or(())).await;
    }
}

const KINDS: [fn() -> Setup; 2] = [with_module, without_module];

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_kept_on_most_servers_stays_until_its_leases_end() {
    for setup in KINDS {
        let servers = [setup().start(), setup().start(), setup().start()];
        let (ours, theirs) = (quorum(&servers).await, quorum(&servers).await);
        let guard = ours.lock("printer").ttl(millis(1_500)).await.unwrap();
        let (fence, watching) = (guard.fence(), guard.cancellation());
        let kept = Instant::now();
        let valid_for = guard.keep();
        assert!(valid_for > millis(900), "{valid_for:?}");
        soon(watching.cancelled()).await;
        assert_eq!(soon(ours.close(LONG)).await, Vec::<String>::new());
        assert!(theirs.try_lock("printer").await.unwrap().is_none());
        let next = soon(theirs.lock("printer").ttl(LONG)).await.unwrap();
        assert!(next.fence() > fence);
        let lasted = kept.elapsed();
        assert!(lasted >= valid_for && lasted < millis(4_000), "it was renewed: {lasted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_on_most_servers_at_least_as_long_as_was_asked_for() {
    for setup in KINDS {
        let mut servers = [setup().start(), setup().start(), setup().start()];
        let (ours, theirs) = (quorum(&servers).await, quorum(&servers).await);
        let least = millis(1_500);
        let begun = Instant::now();
        let guard = ours.lock("printer").ttl(LONG).hold_at_least(least).await.unwrap();
        // A minority that is down keeps it no longer.
        servers[2].kill();
        let fence = guard.fence();
        assert_eq!(soon(guard.release()).await.unwrap(), Released::Later);
        assert!(begun.elapsed() < least, "the release waits for nothing");
        drop(ours);
        let next = soon(theirs.lock("printer").ttl(LONG)).await.unwrap();
        let lasted = begun.elapsed();
        assert!(lasted >= least && lasted < millis(4_000), "{lasted:?}");
        assert!(next.fence() > fence);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_is_closed_holds_at_least_what_its_guards_were_to_hold() {
    for setup in KINDS {
        let servers = [setup().start(), setup().start(), setup().start()];
        let quorum = quorum(&servers).await;
        let lock = |name: &str| quorum.lock(name).ttl(millis(2_000)).hold_at_least(LONG);
        drop(lock("dropped").await.unwrap());
        let _guard = lock("printer").await.unwrap();
        assert_eq!(soon(quorum.close(LONG)).await, Vec::<String>::new());
        for (server, key) in servers.iter().flat_map(|it| [(it, "dropped"), (it, "printer")]) {
            let left = ttl_of(server, key);
            assert!((55_000..=60_001).contains(&left), "{key}: {left}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_lost_on_most_servers_is_not_held_on() {
    for setup in KINDS {
        let servers = [setup().start(), setup().start(), setup().start()];
        let quorum = quorum(&servers).await;
        let guard = quorum.lock("printer").ttl(LONG).hold_at_least(LONG).await.unwrap();
        for server in &servers[..2] {
            server.cmd("SET printer somebody-else PX 5000");
        }
        assert_eq!(soon(guard.release()).await.unwrap(), Released::Late);
        for server in &servers[..2] {
            assert_eq!(held(server, "printer").as_deref(), Some("somebody-else"));
            assert!(ttl_of(server, "printer") <= 5_000);
        }
    }
}
