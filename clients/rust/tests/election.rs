//! Elections, and looks at locks: who leads, who holds, who waits.

use crate::scene::{
    LONG, behind, both_kinds, cluster_locks, eventually_waiting, locks, locks_with, millis, server,
    soon,
};
use leasehold_client::{Error, Fence, Leader, Loss, Released, Settings};
use std::time::Duration;
use testkit::{Cluster, Proxy};

fn name_of(leader: Result<Option<Leader>, Error>) -> Option<String> {
    leader.unwrap().map(|leader| leader.candidate)
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_of_one_name_do_not_lead_together() {
    let server = server();
    let locks = locks(&server);
    let election = locks.election("scheduler", "the same");
    let first = election.campaign().await.unwrap();
    assert!(matches!(election.campaign().wait(millis(200)).await, Err(Error::Busy { .. })));
    drop(first);
    let long = locks.election("scheduler", "x".repeat(219)).campaign().await.unwrap_err();
    assert!(matches!(&long, Error::Setting { setting, .. } if setting == "candidate"), "{long}");
    let longest = soon(locks.election("scheduler", "x".repeat(218)).campaign()).await.unwrap();
    assert_eq!(longest.owner().len(), 255);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_observes_sees_each_leader_once() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server), locks(&server));
        let (one, two) = (ours.election("scheduler", "one"), theirs.election("scheduler", "two"));
        let mut seen = two.observe().look_every(millis(20));
        assert_eq!(name_of(soon(seen.next()).await), None);
        for election in [&one, &two, &two] {
            let term = soon(election.campaign()).await.unwrap();
            let leader = soon(seen.next()).await.unwrap().unwrap();
            assert_eq!(leader.fence, term.fence());
            assert!(term.owner().starts_with(&format!("{}/", leader.candidate)));
            assert_eq!(election.leader().await.unwrap(), Some(leader));
            assert_eq!(term.release().await.unwrap(), Released::InTime);
            assert_eq!(name_of(soon(seen.next()).await), None);
        }
        assert!(theirs.close(LONG).await.is_empty());
        assert!(matches!(soon(seen.next()).await, Err(Error::Closed)));
    }
}

/// Somebody who took it in another way leads, too.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_the_lock_leads_by_its_owner() {
    for server in both_kinds() {
        let election = locks(&server).election("scheduler", "one");
        server.cmd("SET scheduler host/process-7");
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!((leader.candidate.as_str(), leader.fence), ("host/process-7", Fence::new(0)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_observes_is_told_of_the_end_although_it_looks_seldom() {
    let server = server();
    let locks = locks(&server);
    let mut seen = locks.election("scheduler", "-").observe().look_every(LONG);
    assert_eq!(name_of(soon(seen.next()).await), None);
    let ended = tokio::spawn(async move { seen.next().await });
    tokio::task::yield_now().await;
    assert!(locks.close(LONG).await.is_empty());
    assert!(matches!(soon(ended).await.unwrap(), Err(Error::Closed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_observes_goes_on_when_the_server_is_back_and_is_told_when_it_may_not_look() {
    let mut server = server();
    let settings = Settings { retry_for: millis(100), ..Settings::default() };
    let locks = locks_with(&server, settings);
    let election = locks.election("scheduler", "one");
    let mut seen = election.observe().look_every(millis(20));
    assert_eq!(name_of(soon(seen.next()).await), None);
    server.kill();
    let observing = tokio::spawn(async move { (seen.next().await, seen) });
    let campaign = tokio::spawn(election.campaign().into_future());
    // Longer than a look goes on.
    tokio::time::sleep(millis(400)).await;
    assert!(!observing.is_finished());
    server.start_again();
    let term = soon(campaign).await.unwrap().unwrap();
    let (leader, mut seen) = soon(observing).await.unwrap();
    assert_eq!(leader.unwrap().unwrap().fence, term.fence());
    assert_eq!(term.release().await.unwrap(), Released::InTime);
    assert_eq!(name_of(soon(seen.next()).await), None);
    server.cmd("LPUSH scheduler x");
    assert!(matches!(soon(seen.next()).await, Err(Error::Refused { .. })));
}

/// Another one leads when the lease is over, and the former one knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_knows_it_and_another_one_leads() {
    for server in both_kinds() {
        let proxy = Proxy::to(server.port());
        let cut_off = behind(&proxy, Settings::default());
        let term = cut_off.election("scheduler", "one").campaign().ttl(millis(600)).await.unwrap();
        let next = locks(&server).election("scheduler", "two").campaign().ttl(LONG);
        let next = tokio::spawn(next.into_future());
        proxy.cut();
        assert_eq!(soon(term.lost()).await, Loss::Expired);
        assert!(soon(next).await.unwrap().unwrap().fence() > term.fence());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_share_a_lock_are_listed_in_the_order_of_their_grants() {
    let server = server();
    let locks = locks_with(&server, Settings { prefix: "table:".into(), ..Settings::default() });
    assert_eq!(locks.holders("7").await.unwrap(), []);
    let first = locks.semaphore("7", 3).owner("alice").ttl(LONG).await.unwrap();
    let second = locks.read("7").owner("bob").ttl(LONG).await.unwrap();
    let holders = soon(locks.holders("7")).await.unwrap();
    let told: Vec<_> = holders.iter().map(|h| (h.owner.as_str(), h.fence, h.share)).collect();
    assert_eq!(told, [("alice", first.fence(), 3), ("bob", second.fence(), 0)]);
    assert!(holders.iter().all(|holder| holder.ttl > Some(LONG - millis(10_000))));
    let info = locks.info("7").await.unwrap().unwrap();
    assert_eq!((info.holder.as_str(), info.holders, info.share), ("alice", 2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_are_listed_the_next_one_first() {
    let server = server();
    let locks = locks(&server);
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    assert_eq!(locks.waiters("printer").await.unwrap(), []);
    let mut waiting = Vec::new();
    for owner in ["bob", "carol"] {
        waiting.push(tokio::spawn(locks.lock("printer").owner(owner).into_future()));
        eventually_waiting(&server, "printer", waiting.len()).await;
    }
    let queue = soon(locks.waiters("printer")).await.unwrap();
    let told: Vec<_> = queue.iter().map(|waiter| (waiter.owner.as_str(), waiter.share)).collect();
    assert_eq!(told, [("bob", 1), ("carol", 1)]);
    assert!(queue[0].waited >= queue[1].waited);
    assert_eq!(locks.info("printer").await.unwrap().unwrap().waiters, Some(2));
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    for waiter in waiting {
        let guard = soon(waiter).await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_kind_of_client_is_listed_too() {
    for server in both_kinds() {
        let locks = locks(&server);
        server.cmd("SET printer some-uuid");
        let only = locks.holders("printer").await.unwrap();
        assert_eq!((only.len(), only[0].owner.as_str()), (1, "some-uuid"));
        assert_eq!((only[0].fence, only[0].ttl, only[0].share), (Fence::new(0), None, 1));
        assert_eq!(locks.waiters("printer").await.unwrap(), []);
        server.cmd("DEL printer");
        server.cmd("RPUSH printer x");
        for refused in [locks.info("printer").await.err(), locks.holders("printer").await.err()] {
            assert!(matches!(refused, Some(Error::Refused { .. })), "{refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_cluster_are_looked_at_where_they_are() {
    let cluster = Cluster::of(3, 0);
    let locks = cluster_locks(&cluster, Settings::default());
    for number in 0..20 {
        let name = number.to_string();
        let guard = locks.lock(&name).ttl(LONG).await.unwrap();
        let info = locks.info(&name).await.unwrap().unwrap();
        assert_eq!((info.holder.as_str(), info.fence), (guard.owner(), guard.fence()));
        assert!(info.ttl > Some(LONG - Duration::from_secs(10)));
        assert_eq!(locks.holders(&name).await.unwrap().len(), 1);
    }
}
