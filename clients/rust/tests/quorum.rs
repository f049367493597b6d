//! A lock on most of several servers that know nothing of each other.

use crate::scene::{
    Kind, LONG, NOTHING, client, eventually_free, held, is_held_by, locks, millis, quorum,
    quorum_of, soon, ttl_of, with_module, without_module,
};
use leasehold_client::{Error, Fence, Guard, Locks, Loss, Released, Renew, Settings};
use std::fs::remove_file;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::clock::HOUR;
use testkit::{Clock, Proxy, Server, Way};
use tokio::time::{sleep, timeout};

async fn take(quorum: &Locks) -> Guard {
    soon(quorum.lock("printer").ttl(LONG)).await.unwrap()
}

/// On how many servers this guard's grant is held with this guard's fence.
fn with_its_fence(servers: &[Server], guard: &Guard) -> usize {
    servers.iter().filter(|s| s.is_up() && is_held_by(s, "printer", guard)).count()
}

async fn free_everywhere(servers: &[Server]) {
    for server in servers.iter().filter(|server| server.is_up()) {
        eventually_free(server, "printer").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_fence_is_in_force_on_most_servers_after_a_grant() {
    for (count, kind) in [(1, Kind::With), (3, Kind::With), (3, Kind::Without), (5, Kind::With)] {
        let mut clock = Clock::new();
        clock.step_forward(HOUR);
        let mut servers = kind.start(count - 1);
        servers.push(kind.setup().clock(&clock).start());
        let quorum = quorum(&servers);
        let guard = take(&quorum).await;
        assert!(with_its_fence(&servers, &guard) > count / 2, "{guard:?}");
        assert!(guard.valid_for() <= LONG - LONG / 100 - millis(2), "{guard:?}");
        assert!(guard.valid_for() > LONG / 2, "{guard:?}");
        assert!(quorum.lock("printer").try_now().await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        free_everywhere(&servers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_the_module_and_without_it_make_one_quorum() {
    let servers = [with_module().start(), without_module().start(), without_module().start()];
    let quorum = quorum(&servers);
    let mut last = Fence::default();
    for _ in 0..5 {
        let guard = take(&quorum).await;
        assert!(guard.fence() > last);
        assert!(with_its_fence(&servers, &guard) >= 2);
        last = guard.fence();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_may_be_down_from_the_beginning() {
    for (count, down) in [(3, 1), (5, 2)] {
        let mut servers = Kind::With.start(count);
        servers.iter_mut().take(down).for_each(Server::kill);
        let quorum = quorum(&servers);
        let guard = take(&quorum).await;
        assert_eq!(with_its_fence(&servers, &guard), count - down);
        // It counts as soon as it is up.
        servers.iter_mut().take(down).for_each(Server::start_again);
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let up = async {
            loop {
                let guard = take(&quorum).await;
                if with_its_fence(&servers, &guard) == count {
                    return;
                }
                assert_eq!(guard.release().await.unwrap(), Released::InTime);
            }
        };
        soon(up).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_while_most_are_down_and_nothing_left_behind() {
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    servers.iter_mut().take(2).for_each(Server::kill);
    let refused = soon(quorum.lock("printer").ttl(LONG).try_now()).await;
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    free_everywhere(&servers).await;
    let refused = soon(quorum.lock("printer").ttl(LONG).wait(millis(300))).await;
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    free_everywhere(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_on_most_servers_is_not_granted_and_not_kept_on_the_rest() {
    let servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    let others = [locks(&servers[0]), locks(&servers[1])];
    let theirs = others[0].lock("printer").ttl(LONG).await.unwrap();
    let also_theirs = others[1].lock("printer").ttl(LONG).await.unwrap();
    assert!(quorum.lock("printer").try_now().await.unwrap().is_none());
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
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    assert_eq!(take(&quorum).await.release().await.unwrap(), Released::InTime);
    servers[1].freeze();
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(take(&quorum).await.release().await.unwrap(), Released::InTime);
    }
    // Waited for, it would be 2 s for each grant.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    servers[1].thaw();
    free_everywhere(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_grants_too_late_is_released() {
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    assert_eq!(take(&quorum).await.release().await.unwrap(), Released::InTime);
    let others = locks(&servers[0]);
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
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
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
    let servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (quorum, inside, last) = (quorum.clone(), Arc::clone(&inside), Arc::clone(&last));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = take(&quorum).await;
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders");
                    assert!(last.swap(guard.fence().into(), SeqCst) < guard.fence().into());
                    inside.fetch_sub(1, SeqCst);
                    // On a busy machine nobody may answer in half a second; it goes on in the background.
                    assert!(!matches!(guard.release().await, Ok(Released::Late)));
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
    for kind in Kind::BOTH {
        let mut servers = kind.start(3);
        let quorum = quorum(&servers);
        let guard = quorum.lock("printer").ttl(LONG).renew(Renew::Never).await.unwrap();
        servers[0].kill();
        soon(guard.extend(2 * LONG)).await.unwrap();
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
    for kind in Kind::BOTH {
        let mut servers = kind.start(3);
        let quorum = quorum(&servers);
        let extended =
            quorum.lock("extended").ttl(millis(1_000)).renew(Renew::Never).await.unwrap();
        soon(extended.extend(LONG)).await.unwrap();
        let least = quorum.lock("least").ttl(LONG).renew(Renew::Never).hold_at_least(millis(500));
        let least = least.await.unwrap();
        servers.iter_mut().for_each(Server::freeze);
        drop((extended, least));
        assert_eq!(quorum.close(millis(2_000)).await, ["extended", "least"]);
        servers.iter_mut().for_each(Server::thaw);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_renewed_while_most_servers_are_up_and_lost_when_they_are_not() {
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    let ttl = millis(1_000);
    let guard = soon(quorum.lock("printer").ttl(ttl)).await.unwrap();
    servers[0].kill();
    sleep(2 * ttl).await;
    assert_eq!((guard.loss(), with_its_fence(&servers, &guard)), (None, 2));
    servers[1].kill();
    let down = Instant::now();
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    assert!(down.elapsed() < 2 * ttl, "{:?}", down.elapsed());
    assert_eq!(guard.valid_for(), Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_was_deleted_on_most_servers_is_lost_at_the_next_renewal() {
    let servers = Kind::With.start(3);
    let quorum = quorum(&servers);
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
    for kind in Kind::BOTH {
        let servers = kind.start(3);
        let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
        let ports = proxies.iter().map(Proxy::port);
        let cut_off = quorum_of(ports, Settings::default());
        let guard = Arc::new(take(&cut_off).await);
        let (others, over) = (quorum(&servers), guard.cancellation());
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
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
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
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    let guard = take(&quorum).await;
    servers[2].freeze();
    assert_eq!(soon(guard.release()).await.unwrap(), Released::InTime);
    servers[2].thaw();
    free_everywhere(&servers).await;
}

/// The first quorum is of a server whose clock is an hour ahead and one whose clock is right; the second of the latter
/// and another one whose clock is right. They meet in one server, and only what it was told carries the fence over.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_grows_over_two_quorums_that_meet_in_one_server() {
    for kind in Kind::BOTH {
        let mut clock = Clock::new();
        clock.step_forward(HOUR);
        let mut servers =
            vec![kind.setup().clock(&clock).start(), kind.setup().start(), kind.setup().start()];
        servers[2].kill();
        let quorum = quorum(&servers);
        let guard = take(&quorum).await;
        let first = guard.fence();
        assert_eq!(with_its_fence(&servers, &guard), 2);
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        servers[0].kill();
        servers[2].start_again();
        let guard = take(&quorum).await;
        assert_eq!(with_its_fence(&servers[1..], &guard), 2);
        assert!(guard.fence() > first, "{} is not above {first}", guard.fence());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_days_ahead_is_left_out() {
    for kind in Kind::BOTH {
        let mut clock = Clock::new();
        clock.step_forward(48 * HOUR);
        let mut servers =
            vec![kind.setup().clock(&clock).start(), kind.setup().start(), kind.setup().start()];
        let quorum = quorum(&servers);
        let guard = take(&quorum).await;
        assert_eq!(with_its_fence(&servers[1..], &guard), 2);
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        free_everywhere(&servers).await;
        servers[1].kill();
        let refused = soon(quorum.lock("printer").ttl(LONG).wait(millis(100))).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains("at most a day ahead"), "{error}");
        free_everywhere(&servers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_named_twice_is_refused() {
    for kind in Kind::BOTH {
        let servers = kind.start(2);
        let [a, b] = [servers[0].port(), servers[1].port()];
        // The same by another name.
        let also_a = || redis::Client::open(format!("redis://localhost:{a}")).unwrap();
        for clients in [
            [client(a), client(a), client(a)],
            [client(a), also_a(), client(b)],
            [client(b), client(a), client(a)],
        ] {
            let locks = Locks::new(leasehold_client::Server::quorum(clients));
            // Most may have answered before it is known who they are.
            let refused = soon(async {
                loop {
                    match locks.lock("printer").await {
                        Ok(guard) => drop(guard.release().await),
                        Err(refused) => return refused,
                    }
                }
            })
            .await;
            assert!(matches!(&refused, Error::Setting { setting, .. } if setting == "server"));
            assert!(refused.to_string().contains("lead to one server"), "{refused}");
            assert_eq!(soon(locks.close(LONG)).await, NOTHING);
            assert!(servers.iter().all(|server| held(server, "printer").is_none()));
        }
    }
}

/// One server would be two of three.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_leads_to_another_server_by_then_does_not_count_twice() {
    for kind in Kind::BOTH {
        let mut servers = kind.start(3);
        let third = servers[1].dir().join("third");
        symlink(servers[2].socket(), &third).unwrap();
        let by_link = redis::Client::open(format!("unix://{}", third.display())).unwrap();
        let clients = [client(servers[0].port()), client(servers[1].port()), by_link];
        let locks = Locks::new(leasehold_client::Server::quorum(clients));
        // A release would have the client look again.
        let _guard = take(&locks).await;
        remove_file(&third).unwrap();
        symlink(servers[1].socket(), &third).unwrap();
        servers[2].kill();
        servers[0].kill();
        // By then, the client has heard that its connections have ended: no request of the next lock fails.
        sleep(millis(200)).await;
        let refused = soon(locks.lock("other").ttl(LONG)).await.unwrap_err();
        assert!(refused.to_string().contains("lead to one server"), "{refused}");
        eventually_free(&servers[1], "other").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_is_closed_has_given_back_all_that_it_held() {
    for kind in Kind::BOTH {
        let mut servers = kind.start(3);
        let quorum = quorum(&servers);
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
        assert!(matches!(quorum.lock("scanner").await, Err(Error::Closed)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_was_under_way_holds_nothing_when_a_quorum_is_closed() {
    for kind in Kind::BOTH {
        let servers = kind.start(3);
        let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
        let ports = proxies.iter().map(Proxy::port);
        let quorum = quorum_of(ports, Settings::default());
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
    let mut servers = Kind::With.start(3);
    let quorum = quorum(&servers);
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
    for kind in Kind::BOTH {
        let servers = kind.start(2);
        let [a, b] = [servers[0].port(), servers[1].port()];
        for _ in 0..10 {
            let of = |ports: [u16; 3]| quorum_of(ports.into_iter(), Settings::default());
            let (first, second) = (of([a, a, b]), of([b, b, a]));
            let request = |quorum: &Locks| quorum.lock("printer").ttl(LONG).try_now();
            let (one, other) = tokio::join!(request(&first), request(&second));
            let granted = [one, other].into_iter().filter_map(|came| came.ok().flatten());
            assert!(granted.count() <= 1, "both have it");
            free_everywhere(&servers).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_quorum_does_not_have_is_refused() {
    let servers = Kind::With.start(3);
    let quorum = quorum(&servers);
    let requests = [
        quorum.lock("printer").replicas(1, millis(10)),
        quorum.lock("printer").ephemeral(millis(10)),
        quorum.read("printer"),
        quorum.semaphore("printer", 2),
        quorum.all(["a", "b"]),
    ];
    for request in requests {
        let refused = soon(request).await.unwrap_err();
        assert!(matches!(&refused, Error::Setting { setting, .. } if setting == "server"));
    }
    for looked in [quorum.info("printer").await.err(), quorum.holders("printer").await.err()] {
        assert!(matches!(looked, Some(Error::Setting { .. })), "{looked:?}");
    }
    free_everywhere(&servers).await;
    let none = Locks::new(leasehold_client::Server::quorum(None::<redis::Client>));
    let refused = soon(none.lock("printer").wait(millis(100))).await.unwrap_err();
    assert!(matches!(refused, Error::Setting { .. }), "{refused}");
}
