//! A lock that outlives its guard: for somebody else to adopt, or held for some time at least.

use crate::scene::{
    Kind, LONG, NOTHING, both_kinds, eventually_held, eventually_renewed, held, is_held_by, locks,
    locks_with, millis, quorum, server, soon, ttl_of,
};
use leasehold_client::{Detached, Error, Loss, Released, Renew, Settings};
use std::time::Instant;
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_detached_stays_until_its_lease_ends() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server), locks(&server));
        let guard = ours.lock("printer").ttl(millis(900)).await.unwrap();
        let (fence, watching) = (guard.fence(), guard.cancellation());
        let left = guard.valid_for();
        let detached = Instant::now();
        assert_eq!(guard.detach().fence(), fence);
        soon(watching.cancelled()).await;
        assert_eq!(soon(ours.close(LONG)).await, NOTHING, "it is to stay");
        assert!(theirs.lock("printer").try_now().await.unwrap().is_none());
        let next = soon(theirs.lock("printer").ttl(LONG)).await.unwrap();
        assert!(next.fence() > fence);
        let lasted = detached.elapsed();
        assert!(lasted >= left && lasted < millis(2_500), "it was renewed: {lasted:?}");
    }
}

/// A name and an owner with all that has a meaning in the text.
#[tokio::test(flavor = "multi_thread")]
async fn another_program_adopts_a_lock_by_a_text_and_goes_on_with_it() {
    for server in both_kinds() {
        let prefixed = Settings { prefix: "lock:".into(), ..Settings::default() };
        let (ours, theirs) = (locks_with(&server, prefixed), locks(&server));
        let name = b"order:7,8%\x00\xff";
        let guard = ours.lock(name).owner("w\u{e4}hler:1, 2").ttl(LONG).await.unwrap();
        let fence = guard.fence();
        let text = guard.detach().to_string();
        let detached: Detached = text.parse().unwrap();
        assert_eq!((detached.owner(), detached.fence()), ("w\u{e4}hler:1, 2", fence));
        let adopted = theirs.adopt(&detached).await.unwrap();
        assert_eq!((adopted.fence(), adopted.owner()), (fence, "w\u{e4}hler:1, 2"));
        assert!(ours.lock(name).try_now().await.unwrap().is_none());
        adopted.extend(2 * LONG).await.unwrap();
        assert_eq!(adopted.release().await.unwrap(), Released::InTime);
        assert!(ours.lock(name).try_now().await.unwrap().is_some());
        let error = theirs.adopt(&detached).await.unwrap_err();
        assert!(matches!(error, Error::Lost { loss: Loss::Taken, .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_lock_is_renewed_by_the_settings_of_who_adopts_it() {
    for server in both_kinds() {
        let ttl = millis(600);
        let (ours, theirs) =
            (locks(&server), locks_with(&server, Settings { ttl, ..Settings::default() }));
        let detached = ours.lock("printer").ttl(millis(1_500)).await.unwrap().detach();
        let adopted = theirs.adopt(&detached).await.unwrap();
        assert!(adopted.valid_for() <= ttl);
        let begun = Instant::now();
        while begun.elapsed() < 3 * ttl {
            eventually_renewed(&adopted, ttl).await;
        }
        server.cmd("DEL printer");
        assert_eq!(soon(adopted.lost()).await, Loss::Taken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_and_those_of_readers_are_adopted_too() {
    let server = server();
    let (ours, theirs) = (locks(&server), locks(&server));
    let detached = ours.all(["a", "b"]).ttl(LONG).await.unwrap().detach();
    let adopted = theirs.adopt(&detached.to_string().parse().unwrap()).await.unwrap();
    assert_eq!(adopted.name(), "a, b");
    assert_eq!(adopted.release().await.unwrap(), Released::InTime);
    assert_eq!((held(&server, "a"), held(&server, "b")), (None, None));
    let reader = ours.read("page").ttl(LONG).await.unwrap().detach();
    let other = ours.read("page").ttl(LONG).await.unwrap();
    let adopted = theirs.adopt(&reader).await.unwrap();
    assert_eq!(adopted.release().await.unwrap(), Released::InTime);
    assert_eq!(theirs.holders("page").await.unwrap().len(), 1);
    assert_eq!(other.release().await.unwrap(), Released::InTime);
}

/// The server would keep it for a second only, for whoever was told of the grant and says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_told_by_a_message_stays_for_its_lease_when_it_is_detached_at_once() {
    let server = server();
    let locks = locks(&server);
    let first = locks.lock("printer").ttl(LONG).await.unwrap();
    let waiting = tokio::spawn(locks.lock("printer").ttl(LONG).into_future());
    crate::scene::eventually_waiting(&server, "printer", 1).await;
    assert_eq!(first.release().await.unwrap(), Released::InTime);
    let detached = soon(waiting).await.unwrap().unwrap().detach();
    sleep(millis(1_500)).await;
    assert!(eventually_held(&server, "printer").await.ends_with(detached.owner()));
    assert!(ttl_of(&server, "printer") > 50_000);
    let adopted = locks.adopt(&detached).await.unwrap();
    assert_eq!(adopted.release().await.unwrap(), Released::InTime);
}

/// A host whose clock is a second late begins the job when the first one has done it.
#[tokio::test(flavor = "multi_thread")]
async fn a_nightly_job_runs_on_one_host_although_their_clocks_differ() {
    for server in both_kinds() {
        let hosts = [locks(&server), locks(&server), locks(&server)];
        let mut ran = 0;
        for host in &hosts {
            let asked = host.lock("nightly").ttl(LONG).hold_at_least(LONG).try_now();
            if let Some(guard) = asked.await.unwrap() {
                ran += 1;
                assert_eq!(guard.release().await.unwrap(), Released::Later);
            }
        }
        assert_eq!(ran, 1);
        eventually_held(&server, "nightly").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_dropped_holds_its_lock_at_least_as_long_too() {
    let server = server();
    let locks = locks(&server);
    drop(locks.lock("printer").ttl(millis(500)).hold_at_least(LONG).await.unwrap());
    assert_eq!(soon(locks.close(LONG)).await, NOTHING);
    let left = ttl_of(&server, "printer");
    assert!((58_000..=60_001).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_before_it_may_be_released_makes_no_sense() {
    let locks = locks(&server());
    let ends = || locks.lock("printer").ttl(millis(500)).renew(Renew::Never);
    for request in [ends(), ends().renew(Renew::For(millis(900)))] {
        let refused = request.hold_at_least(millis(1_000)).await.unwrap_err();
        assert!(matches!(&refused, Error::Setting { setting, .. } if setting == "hold_at_least"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_detached_on_most_servers_is_adopted_or_stays_until_its_leases_end() {
    for kind in Kind::BOTH {
        let servers = kind.start(3);
        let (ours, theirs) = (quorum(&servers), quorum(&servers));
        let guard = soon(ours.lock("printer").ttl(LONG)).await.unwrap();
        let fence = guard.fence();
        let adopted = soon(theirs.adopt(&guard.detach())).await.unwrap();
        assert_eq!(adopted.fence(), fence);
        assert_eq!(soon(adopted.release()).await.unwrap(), Released::InTime);
        let guard = soon(ours.lock("printer").ttl(millis(1_500))).await.unwrap();
        let (left, detached) = (guard.valid_for(), Instant::now());
        let _ = guard.detach();
        assert_eq!(soon(ours.close(LONG)).await, NOTHING);
        assert!(soon(theirs.lock("printer").try_now()).await.unwrap().is_none());
        let next = soon(theirs.lock("printer").ttl(LONG)).await.unwrap();
        assert!(next.fence() > fence);
        let lasted = detached.elapsed();
        assert!(lasted >= left && lasted < millis(4_000), "it was renewed: {lasted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_on_most_servers_at_least_as_long_as_was_asked_for() {
    for kind in Kind::BOTH {
        let mut servers = kind.start(3);
        let (ours, theirs) = (quorum(&servers), quorum(&servers));
        let least = millis(1_500);
        let begun = Instant::now();
        let guard = soon(ours.lock("printer").ttl(LONG).hold_at_least(least)).await.unwrap();
        // A minority that is down keeps it no longer.
        servers[2].kill();
        let fence = guard.fence();
        assert_eq!(soon(guard.release()).await.unwrap(), Released::Later);
        assert!(begun.elapsed() < least, "the release waits for nothing");
        assert!(is_held_on_most(&servers[..2]));
        assert_eq!(soon(ours.close(LONG)).await, NOTHING);
        let next = soon(theirs.lock("printer").ttl(LONG)).await.unwrap();
        let lasted = begun.elapsed();
        assert!(lasted >= least && lasted < millis(4_000), "{lasted:?}");
        assert!(next.fence() > fence && is_held_by(&servers[0], "printer", &next));
    }
}

fn is_held_on_most(servers: &[testkit::Server]) -> bool {
    servers.iter().all(|server| held(server, "printer").is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_not_ready_are_asked_again() {
    let servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    let guard = soon(quorum.lock("printer").ttl(millis(1_500))).await.unwrap();
    let need_replicas = |count: &str| {
        for server in &servers[1..] {
            server.cmd(["CONFIG", "SET", "min-replicas-to-write", count]);
        }
    };
    need_replicas("1");
    let waiter = tokio::spawn(quorum.lock("scanner").ttl(LONG).into_future());
    // The first renewal has been refused.
    while guard.valid_for() > millis(800) {
        sleep(millis(10)).await;
    }
    need_replicas("0");
    while guard.valid_for() < millis(1_000) {
        assert_eq!(guard.loss(), None);
        sleep(millis(10)).await;
    }
    let _ = soon(waiter).await.unwrap().unwrap();
}
