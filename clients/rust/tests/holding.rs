//! Taking a lock, holding it, giving it back; the same with the module and without.

use crate::scene::{
    LONG, both_kinds, eventually_free, held, locks, locks_with, millis, poll_once, server, soon,
    standing, ttl_of, url,
};
use leasehold_client::{Error, Extended, Locks, Loss, Released, Settings};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_taken_and_given_back() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let guard = locks.try_lock("printer").await.unwrap().expect("it is free");
        let value = format!("{:016}:{}", guard.fence(), guard.owner());
        assert_eq!(held(&server, "printer"), Some(value));
        assert_eq!(guard.name(), "printer");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        assert_eq!(held(&server, "printer"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn that_somebody_else_has_the_lock_is_no_error() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let guard = theirs.try_lock("printer").await.unwrap().expect("it is free");
        assert!(ours.try_lock("printer").await.unwrap().is_none());
        assert!(ours.try_lock("scanner").await.unwrap().is_some());
        assert!(guard.valid_for() > millis(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fence_is_larger_than_the_one_before() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let mut last = 0;
        for _ in 0..20 {
            let guard = locks.try_lock("printer").await.unwrap().expect("it is free");
            assert!(guard.fence() > last, "{} is not above {last}", guard.fence());
            last = guard.fence();
            assert!(guard.release().await.unwrap().in_time());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_has_the_prefix_on_the_server() {
    let server = server();
    let locks = locks_with(&server, Settings::default().prefix("lock:table:")).await;
    let guard = locks.try_lock("7").await.unwrap().expect("it is free");
    assert_eq!(guard.name(), "7");
    assert!(held(&server, "lock:table:7").is_some());
}

/// The holder's lease ends, the next one acquires, and then the former one releases.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_says_so_and_leaves_the_next_holder_alone() {
    for server in both_kinds() {
        let (slow, next) = (locks(&server).await, locks(&server).await);
        let slow = slow.lock("printer").fixed_ttl(millis(100)).await.unwrap();
        let next = next.lock("printer").ttl(LONG).await.unwrap();
        assert_eq!(slow.valid_for(), millis(0));
        assert_eq!(slow.release().await.unwrap(), Released::Late);
        assert!(held(&server, "printer").unwrap().ends_with(next.owner()));
        assert_eq!(next.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_dropped_is_released_in_the_background() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        drop(locks.try_lock("printer").await.unwrap().expect("it is free"));
        locks.settle().await;
        assert_eq!(held(&server, "printer"), None);
    }
}

/// On one thread: on another the release might be over before it is looked at.
#[tokio::test]
async fn a_release_goes_on_when_nobody_waits_for_its_outcome() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.try_lock("printer").await.unwrap().expect("it is free");
    let mut release = Box::pin(guard.release());
    poll_once(release.as_mut()).await;
    drop(release);
    eventually_free(&server, "printer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_extended_and_shortened() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let guard = locks.lock("printer").fixed_ttl(millis(10_000)).await.unwrap();
        assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
        assert!(guard.valid_for() > millis(50_000));
        assert!(ttl_of(&server, "printer") > 50_000);
        assert_eq!(guard.extend(millis(5_000)).await.unwrap(), Extended::Extended);
        assert!(guard.valid_for() < millis(5_000));
        assert!(ttl_of(&server, "printer") <= 5_000);
        server.cmd("DEL printer");
        assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Lost);
        assert_eq!(guard.loss(), Some(Loss::Taken));
        assert_eq!(held(&server, "printer"), None, "an extension creates nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_never_counts_on_more_than_the_server_grants() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let guard = locks.lock("printer").fixed_ttl(millis(10_000)).await.unwrap();
        for _ in 0..20 {
            let (counted_on, granted) = (guard.valid_for(), ttl_of(&server, "printer"));
            // The key was asked later; what passed in between is on its side.
            assert!(counted_on.as_millis() < 10_000 - 100, "the drift is off");
            assert!(
                guard.valid_for() <= millis(granted.cast_unsigned()),
                "{counted_on:?}, {granted}"
            );
            sleep(millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_owner_has_a_lock_several_times_and_releases_it_once() {
    for server in both_kinds() {
        let (locks, others) = (locks(&server).await, locks(&server).await);
        let again = || locks.lock("printer").owner("alice").ttl(LONG);
        let (outer, inner) = (again().await.unwrap(), again().try_now().await.unwrap().unwrap());
        assert_eq!((outer.owner(), outer.fence()), ("alice", inner.fence()));
        assert_eq!(inner.release().await.unwrap(), Released::StillHeld);
        drop(again().await.unwrap());
        locks.settle().await;
        assert!(others.try_lock("printer").await.unwrap().is_none());
        assert!(outer.loss().is_none());
        assert_eq!(outer.release().await.unwrap(), Released::Released);
        let next = again().await.unwrap();
        assert!(next.valid_for() > millis(0));
        assert_eq!(next.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_joins_has_a_lease_at_least_as_long_as_it_asked_for() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let alice = || locks.lock("printer").owner("alice");
        let short = alice().fixed_ttl(millis(800)).await.unwrap();
        let long = alice().fixed_ttl(LONG).await.unwrap();
        assert_eq!(short.fence(), long.fence());
        assert!(long.valid_for() > LONG - millis(2_000), "{:?}", long.valid_for());
        assert!(ttl_of(&server, "printer") > 58_000);
        let shorter = alice().fixed_ttl(millis(800)).await.unwrap();
        assert!(shorter.valid_for() > LONG - millis(3_000), "nothing is undone");
        drop(short);
        drop(shorter);
        assert_eq!(long.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_renewed_if_any_of_its_guards_wants_that() {
    let server = server();
    let locks = locks(&server).await;
    let alice = || locks.lock("printer").owner("alice");
    let fixed = alice().fixed_ttl(millis(800)).await.unwrap();
    let renewed = alice().ttl(millis(500)).await.unwrap();
    sleep(millis(1_500)).await;
    assert_eq!((fixed.loss(), renewed.loss()), (None, None));
    // The longer of what the two asked for.
    assert!(renewed.valid_for() > millis(500), "{:?}", renewed.valid_for());
    drop(fixed);
    assert_eq!(renewed.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_joins_has_its_replicas_asked() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let alice = || locks.lock("printer").owner("alice").ttl(LONG);
        let guard = alice().await.unwrap();
        let refused = alice().replicas(1, millis(50)).await.unwrap_err();
        assert!(matches!(refused, Error::TooFewReplicas { acknowledged: 0, .. }), "{refused}");
        assert_eq!(guard.loss(), None, "the guard before is none of its business");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_joins_what_was_taken_gets_a_grant_of_its_own() {
    for server in both_kinds() {
        let locks = locks(&server).await;
        let alice = || locks.lock("printer").owner("alice");
        let taken = alice().fixed_ttl(LONG).await.unwrap();
        server.cmd("DEL printer");
        let next = alice().fixed_ttl(2 * LONG).await.unwrap();
        assert!(next.fence() > taken.fence());
        assert_eq!(taken.loss(), Some(Loss::Taken));
        assert_eq!(taken.release().await.unwrap(), Released::Late);
        assert_eq!(next.loss(), None);
        assert_eq!(next.release().await.unwrap(), Released::Released);
    }
}

/// The release of the last guard and the next request of the same owner never meet in the wrong order.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_comes_back_at_once_holds_what_it_was_told() {
    let server = server();
    let locks = locks(&server).await;
    let mut former = locks.lock("printer").owner("alice").await.unwrap();
    for _ in 0..200 {
        drop(former);
        former = locks.lock("printer").owner("alice").await.unwrap();
        let value = format!("{:016}:alice", former.fence());
        assert_eq!(held(&server, "printer"), Some(value));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_an_error_before_anything_is_asked() {
    let server = server();
    let locks = locks(&server).await;
    let no_ttl = locks.lock("printer").ttl(millis(0)).await.unwrap_err();
    assert!(matches!(no_ttl, Error::Setting { ref name, .. } if name == "ttl"), "{no_ttl}");
    let no_owner = locks.lock("printer").owner("").await.unwrap_err();
    assert!(matches!(no_owner, Error::Setting { ref name, .. } if name == "owner"), "{no_owner}");
    let bad = Locks::connect_with("nowhere", Settings::default()).await.unwrap_err();
    assert!(matches!(bad, Error::Setting { ref name, .. } if name == "target"), "{bad}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_is_an_error_in_its_words() {
    let server = server();
    server.cmd("RPUSH printer x");
    let refused = locks(&server).await.try_lock("printer").await.unwrap_err();
    assert!(refused.to_string().contains("WRONGTYPE"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_an_error_in_time() {
    let mut server = server();
    let settings = Settings::default().within(millis(300)).response(millis(100));
    let locks = locks_with(&server, settings.clone()).await;
    server.kill();
    let gone = locks.try_lock("printer").await.unwrap_err();
    assert!(matches!(gone, Error::Unreachable { .. }), "{gone}");
    let none = Locks::connect_with(url(server.port()), settings).await.unwrap_err();
    assert!(matches!(none, Error::Unreachable { .. }), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_for_a_moment_is_no_error() {
    let mut server = server();
    let locks = locks(&server).await;
    server.kill();
    let theirs = locks.clone();
    let asked = tokio::spawn(async move { theirs.try_lock("printer").await });
    sleep(millis(100)).await;
    server.start_again();
    assert!(asked.await.unwrap().unwrap().is_some());
}

/// As with a client in a static, which the tests of a program share.
#[test]
fn a_client_goes_on_when_the_runtime_that_it_was_made_on_has_ended() {
    for server in both_kinds() {
        let locks = Locks::new(url(server.port())).unwrap();
        for _ in 0..3 {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let guard = runtime.block_on(async {
                let guard = soon(locks.lock("printer").ttl(LONG)).await.unwrap();
                assert_eq!(guard.release().await.unwrap(), Released::Released);
                let waiting = soon(locks.lock("scanner").ttl(LONG)).await.unwrap();
                let next = tokio::spawn(locks.lock("scanner").ttl(LONG).into_future());
                drop(waiting);
                soon(next).await.unwrap().unwrap()
            });
            // What one runtime left behind is given back on the next one.
            drop(runtime);
            assert_eq!(guard.loss(), Some(Loss::Expired));
            standing().block_on(async {
                assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
            });
        }
    }
}
