//! A lock on most of several servers that know nothing of each other.

use crate::scene::{
    LONG, eventually, eventually_free, held, locks, millis, quorum, soon, ttl_of, url,
};
use crate::scene::{with_module, without_module};
use leasehold_client::{Error, Extended, Loss, Quorum, QuorumGuard, Released, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::clock::HOUR;
use testkit::{Clock, Proxy, Server, Setup, Way};
use tokio::time::{sleep, timeout};

const KINDS: [fn() -> Setup; 2] = [with_module, without_module];

fn start(count: usize, setup: fn() -> Setup) -> Vec<Server> {
    (0..count).map(|_| setup().start()).collect()
}

async fn take(quorum: &Quorum) -> QuorumGuard {
    soon(quorum.lock("printer").ttl(LONG)).await.unwrap()
}

/// On how many servers this guard's grant is held with this guard's fence.
fn with_its_fence(servers: &[Server], guard: &QuorumGuard) -> usize {
    let value = format!("{:016}:{}", guard.fence(), guard.owner());
    servers.iter().filter(|s| s.is_up() && held(s, "printer").as_ref() == Some(&value)).count()
}

async fn free_everywhere(servers: &[Server]) {
    for server in servers.iter().filter(|server| server.is_up()) {
        eventually_free(server, "printer").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_fence_is_in_force_on_most_servers_after_a_grant() {
    for (count, setup) in [(1, KINDS[0]), (3, KINDS[0]), (3, KINDS[1]), (5, KINDS[0])] {
        let mut clock = Clock::new();
        clock.step_forward(HOUR);
        let mut servers = start(count - 1, setup);
        servers.push(setup().clock(&clock).start());
        let quorum = quorum(&servers).await;
        let guard = take(&quorum).await;
        assert!(with_its_fence(&servers, &guard) > count / 2, "{guard:?}");
        assert!(guard.valid_for() <= LONG - LONG / 100 - millis(2), "{guard:?}");
        assert!(guard.valid_for() > LONG / 2, "{guard:?}");
        assert!(quorum.try_lock("printer").await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        free_everywhere(&servers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_the_module_and_without_it_make_one_quorum() {
    let servers = [with_module().start(), without_module().start(), without_module().start()];
    let quorum = quorum(&servers).await;
    let mut last = 0;
    for _ in 0..5 {
        let guard = take(&quorum).await;
        assert!(guard.fence() > last);
        assert!(with_its_fence(&servers, &guard) >= 2);
        last = guard.fence();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_may_be_down_from_the_beginning() {
    for (count, down) in [(3, 1), (5, 2)] {
        let mut servers = start(count, with_module);
        servers.iter_mut().take(down).for_each(Server::kill);
        let quorum = quorum(&servers).await;
        let guard = take(&quorum).await;
        assert_eq!(with_its_fence(&servers, &guard), count - down);
        // It counts as soon as it is up.
        servers.iter_mut().take(down).for_each(Server::start_again);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let up = async {
            loop {
                let guard = take(&quorum).await;
                if with_its_fence(&servers, &guard) == count {
                    return;
                }
                assert_eq!(guard.release().await.unwrap(), Released::Released);
            }
        };
        soon(up).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_while_most_are_down_and_nothing_left_behind() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    servers.iter_mut().take(2).for_each(Server::kill);
    let refused = soon(quorum.lock("printer").ttl(LONG).try_now()).await;
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    free_everywhere(&servers).await;
    let refused = soon(quorum.lock("printer").ttl(LONG).wait(millis(300))).await;
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    free_everywhere(&servers).await;
    let urls = servers.iter().map(|server| url(server.port()));
    let impatient = Settings::default().within(millis(100));
    assert!(Quorum::connect_with(urls, impatient).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_on_most_servers_is_not_granted_and_not_kept_on_the_rest() {
    let servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    let others = [locks(&servers[0]).await, locks(&servers[1]).await];
    let theirs = others[0].lock("printer").ttl(LONG).await.unwrap();
    let also_theirs = others[1].lock("printer").ttl(LONG).await.unwrap();
    assert!(quorum.try_lock("printer").await.unwrap().is_none());
    eventually_free(&servers[2], "printer").await;
    let busy = soon(quorum.lock("printer").ttl(LONG).wait(millis(100))).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    let waiting = tokio::spawn({
        let quorum = quorum.clone();
        async move { take(&quorum).await }
    });
    drop(theirs);
    let guard = soon(waiting).await.unwrap();
    assert_eq!(with_its_fence(&servers, &guard), 2);
    drop(also_theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_holds_nobody_up() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await.server_limit(Duration::from_secs(2));
    assert_eq!(take(&quorum).await.release().await.unwrap(), Released::Released);
    servers[1].freeze();
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(take(&quorum).await.release().await.unwrap(), Released::Released);
    }
    // Waited for, it would be 2 s for each grant.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    servers[1].thaw();
    free_everywhere(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_grants_too_late_is_released() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    assert_eq!(take(&quorum).await.release().await.unwrap(), Released::Released);
    let others = locks(&servers[0]).await;
    let theirs = others.lock("printer").ttl(LONG).await.unwrap();
    servers[1].freeze();
    let refused = soon(quorum.lock("printer").ttl(LONG).try_now()).await;
    assert!(refused.is_ok_and(|guard| guard.is_none()));
    servers[1].thaw();
    free_everywhere(&servers[1..]).await;
    drop(theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dropped_half_way_leaves_nothing_behind() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    servers[1].freeze();
    servers[2].freeze();
    let half_way = timeout(millis(100), quorum.lock("printer").ttl(LONG)).await;
    assert!(half_way.is_err());
    servers[1].thaw();
    servers[2].thaw();
    free_everywhere(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_compete_have_it_one_after_another_with_growing_fences() {
    let servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (quorum, inside, last) = (quorum.clone(), Arc::clone(&inside), Arc::clone(&last));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = take(&quorum).await;
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders");
                    assert!(last.swap(guard.fence(), SeqCst) < guard.fence());
                    inside.fetch_sub(1, SeqCst);
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
            })
        })
        .collect();
    for worker in workers {
        soon(worker).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_extended_if_most_servers_extend_it() {
    for setup in KINDS {
        let mut servers = start(3, setup);
        let quorum = quorum(&servers).await;
        let guard = quorum.lock("printer").fixed_ttl(LONG).await.unwrap();
        servers[0].kill();
        assert_eq!(soon(guard.extend(2 * LONG)).await.unwrap(), Extended::Extended);
        assert!(guard.valid_for() > LONG);
        for server in &servers[1..] {
            let left = ttl_of(server, "printer");
            assert!(left > 60_000, "{left}");
        }
        servers[1].kill();
        let before = guard.valid_for();
        let error = soon(guard.extend(2 * LONG)).await;
        assert!(matches!(error, Err(Error::Unreachable { .. })), "{error:?}");
        assert!(guard.valid_for() <= before && guard.loss().is_none());
    }
}

/// For longer than requests go on that were made for the first ttl.
#[tokio::test(flavor = "multi_thread")]
async fn closing_names_what_servers_hold_for_as_long_as_they_may() {
    for setup in KINDS {
        let mut servers = start(3, setup);
        let quorum = quorum(&servers).await.server_limit(millis(400));
        let extended = quorum.lock("extended").fixed_ttl(millis(1_000)).await.unwrap();
        assert_eq!(soon(extended.extend(LONG)).await.unwrap(), Extended::Extended);
        let least = quorum.lock("least").fixed_ttl(LONG).hold_at_least(millis(500));
        let least = least.await.unwrap();
        servers.iter_mut().for_each(Server::freeze);
        drop((extended, least));
        let _ = timeout(millis(5_000), quorum.settle()).await;
        assert_eq!(quorum.close(millis(200)).await, ["extended", "least"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_renewed_while_most_servers_are_up_and_lost_when_they_are_not() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    let ttl = millis(1_000);
    let guard = soon(quorum.lock("printer").ttl(ttl)).await.unwrap();
    servers[0].kill();
    sleep(2 * ttl).await;
    assert_eq!((guard.loss(), with_its_fence(&servers, &guard)), (None, 2));
    servers[1].kill();
    let down = Instant::now();
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    assert!(down.elapsed() < ttl, "{:?}", down.elapsed());
    assert_eq!(guard.valid_for(), Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_was_deleted_on_most_servers_is_lost_at_the_next_renewal() {
    let servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    let guard = soon(quorum.lock("printer").ttl(millis(1_000))).await.unwrap();
    servers[0].cmd("DEL printer");
    sleep(millis(700)).await;
    assert_eq!(guard.loss(), None, "most servers have it");
    servers[1].cmd("DEL printer");
    assert_eq!(soon(guard.lost()).await, Loss::Taken);
    assert_eq!(guard.release().await.unwrap(), Released::Late);
    free_everywhere(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_watches_a_guard_of_a_quorum_is_told_in_time_when_a_shorter_extension_is_unanswered() {
    for setup in KINDS {
        let servers = start(3, setup);
        let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
        let urls = proxies.iter().map(|proxy| url(proxy.port()));
        let cut_off = Quorum::connect(urls).await.unwrap().server_limit(Duration::from_secs(3));
        let guard = Arc::new(take(&cut_off).await);
        let (others, over) = (quorum(&servers).await, guard.cancellation());
        let told = tokio::spawn(async move {
            over.cancelled().await;
            Instant::now()
        });
        proxies.iter().for_each(|proxy| proxy.cut_one_way(Way::FromServer));
        let extending = tokio::spawn(async move { guard.extend(millis(1_500)).await });
        let _next = take(&others).await;
        let granted = Instant::now();
        let told = soon(told).await.unwrap();
        assert!(told < granted, "{:?} too late", told - granted);
        extending.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_dropped_is_released_everywhere() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    let guard = take(&quorum).await;
    let watching = guard.cancellation();
    servers[2].freeze();
    drop(guard);
    soon(watching.cancelled()).await;
    servers[2].thaw();
    free_everywhere(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_reaches_a_server_that_hangs_when_it_wakes_up() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    let guard = take(&quorum).await;
    servers[2].freeze();
    assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
    servers[2].thaw();
    free_everywhere(&servers).await;
}

/// The first quorum is of a server whose clock is an hour ahead and one whose clock is right; the second of the latter
/// and another one whose clock is right. They meet in one server, and only what it was told carries the fence over.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_grows_over_two_quorums_that_meet_in_one_server() {
    for setup in KINDS {
        let mut clock = Clock::new();
        clock.step_forward(HOUR);
        let mut servers = vec![setup().clock(&clock).start(), setup().start(), setup().start()];
        servers[2].kill();
        let quorum = quorum(&servers).await;
        let guard = take(&quorum).await;
        let first = guard.fence();
        assert_eq!(with_its_fence(&servers, &guard), 2);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        servers[0].kill();
        servers[2].start_again();
        let guard = take(&quorum).await;
        assert_eq!(with_its_fence(&servers[1..], &guard), 2);
        assert!(guard.fence() > first, "{} is not above {first}", guard.fence());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_days_ahead_is_left_out() {
    for setup in KINDS {
        let mut clock = Clock::new();
        clock.step_forward(48 * HOUR);
        let mut servers = vec![setup().clock(&clock).start(), setup().start(), setup().start()];
        let quorum = quorum(&servers).await;
        let guard = take(&quorum).await;
        assert_eq!(with_its_fence(&servers[1..], &guard), 2);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        free_everywhere(&servers).await;
        servers[1].kill();
        let refused = soon(quorum.lock("printer").ttl(LONG).wait(millis(100))).await;
        let Err(Error::Unreachable { reason }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("at most a day ahead"), "{reason}");
        free_everywhere(&servers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_named_twice_is_refused() {
    for setup in KINDS {
        let servers = start(2, setup);
        let [a, b] = [url(servers[0].port()), url(servers[1].port())];
        // The same by another name.
        let also_a = a.replace("127.0.0.1", "localhost");
        for urls in [vec![&a, &a, &a], vec![&a, &also_a, &b], vec![&b, &a, &a]] {
            let urls = urls.into_iter().map(String::as_str);
            let refused = soon(Quorum::connect_with(urls, Settings::default())).await.unwrap_err();
            assert!(refused.to_string().contains("lead to one server"), "{refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_is_closed_has_given_back_all_that_it_held() {
    for setup in KINDS {
        let mut servers = start(3, setup);
        let quorum = quorum(&servers).await;
        let guard = take(&quorum).await;
        drop(soon(quorum.lock("dropped").ttl(LONG)).await.unwrap());
        let waiting = tokio::spawn({
            let quorum = quorum.clone();
            async move { quorum.lock("printer").await }
        });
        sleep(millis(100)).await;
        // A minority that is down keeps no lock held.
        servers[2].kill();
        let begun = Instant::now();
        let left = soon(quorum.close(Duration::from_secs(2))).await;
        assert_eq!(left, Vec::<String>::new());
        assert!(begun.elapsed() < millis(4_000), "{:?}", begun.elapsed());
        for server in &servers[..2] {
            assert_eq!((held(server, "dropped"), held(server, "printer")), (None, None));
        }
        assert!(matches!(soon(waiting).await.unwrap(), Err(Error::Closed)));
        assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Closed), Duration::ZERO));
        assert!(matches!(guard.release().await, Err(Error::Closed)));
        assert!(matches!(quorum.try_lock("scanner").await, Err(Error::Closed)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_was_under_way_holds_nothing_when_a_quorum_is_closed() {
    for setup in KINDS {
        let servers = start(3, setup);
        let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
        let urls = proxies.iter().map(|proxy| url(proxy.port()));
        let quorum = Quorum::connect(urls).await.unwrap();
        // Each way.
        proxies.iter().for_each(|proxy| proxy.slow(millis(60)));
        for _ in 0..3 {
            let quorum = quorum.clone();
            tokio::spawn(async move { quorum.lock("printer").ttl(LONG).await });
        }
        sleep(millis(30)).await;
        let left = soon(quorum.close(Duration::from_secs(5))).await;
        assert_eq!(left, Vec::<String>::new());
        // What would arrive later would have arrived by then.
        for _ in 0..20 {
            assert!(servers.iter().all(|server| held(server, "printer").is_none()));
            sleep(millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_is_closed_while_most_servers_hang_names_what_is_left() {
    let mut servers = start(3, with_module);
    let quorum = quorum(&servers).await;
    let _guard = take(&quorum).await;
    servers[0].freeze();
    servers[1].freeze();
    assert_eq!(soon(quorum.close(millis(500))).await, ["printer"]);
    servers[0].thaw();
    servers[1].thaw();
    free_everywhere(&servers).await;
}

/// Of lists in which servers are named twice, and which nobody has looked at yet.
#[tokio::test(flavor = "multi_thread")]
async fn two_quorums_always_meet_in_a_server() {
    for setup in KINDS {
        let servers = start(2, setup);
        let [a, b] = [locks(&servers[0]).await, locks(&servers[1]).await];
        let first = Quorum::new(vec![a.clone(), a.clone(), b.clone()]).unwrap();
        let second = Quorum::new(vec![b.clone(), b.clone(), a.clone()]).unwrap();
        let only_b = Quorum::new(vec![b.clone(), b.clone(), b.clone()]).unwrap();
        for _ in 0..10 {
            let request = |quorum: &Quorum| quorum.lock("printer").ttl(LONG).try_now();
            let (first, second) = tokio::join!(request(&first), request(&second));
            let granted = [first, second].into_iter().filter_map(|came| came.ok().flatten());
            assert!(granted.count() <= 1, "both have it");
            let refused = request(&only_b).await.unwrap_err();
            assert!(refused.to_string().contains("lead to one server"), "{refused}");
            free_everywhere(&servers).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_without_servers_or_with_replicas_makes_no_sense() {
    assert!(matches!(Quorum::new(Vec::new()), Err(Error::Setting { .. })));
    let server = with_module().start();
    let settings = Settings::default().replicas(1, millis(10));
    let refused = Quorum::connect_with([url(server.port())], settings).await;
    assert!(matches!(refused, Err(Error::Setting { .. })));
}

/// It has agreed to the longer extension, and not heard of the shorter one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_asked_for_the_release_for_as_long_as_it_may_hold_the_lock() {
    for setup in KINDS {
        let servers = start(3, setup);
        let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
        let urls = proxies.iter().map(|proxy| url(proxy.port()));
        let quorum = Quorum::connect(urls).await.unwrap();
        let guard = soon(quorum.lock("printer").fixed_ttl(millis(500))).await.unwrap();
        assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
        eventually("all have heard of that", || {
            let is_short = |server: &&Server| ttl_of(server, "printer") < 1_000;
            let short = servers.iter().filter(is_short).count();
            if short == 0 { Ok(()) } else { Err(short) }
        })
        .await;
        proxies[2].cut();
        assert_eq!(guard.extend(millis(500)).await.unwrap(), Extended::Extended);
        drop(guard);
        // Long enough for all tries of a release that go by the shorter one.
        sleep(millis(4_000)).await;
        proxies[2].heal();
        free_everywhere(&servers).await;
    }
}
