//! One leader among several candidates.

use crate::scene::{LONG, both_kinds, eventually_waiting, locks, millis, server, soon};
use leasehold_client::{Election, Error, Leader, Loss, Options, Released};
use std::time::Duration;
use testkit::lacks;

const LIMIT: Duration = Duration::from_secs(10);

fn name_of(leader: Option<Leader>) -> Option<String> {
    leader.map(|leader| leader.candidate)
}

fn short(election: Election) -> Election {
    election.options(Options::new().ttl(millis(600))).look_every(millis(20))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_candidate_leads_until_it_resigns_and_then_the_next_one_does() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let (one, two) = (ours.election("scheduler", "one"), theirs.election("scheduler", "two"));
        assert_eq!(one.leader().await.unwrap(), None);
        let first = one.campaign().await.unwrap();
        let next = tokio::spawn({
            let two = two.clone();
            async move { two.campaign().await.unwrap() }
        });
        let leader = two.leader().await.unwrap().unwrap();
        assert_eq!((leader.candidate.as_str(), leader.fence), ("one", first.fence()));
        assert!(!next.is_finished());
        assert_eq!(first.resign().await.unwrap(), Released::Released);
        let second = soon(next).await.unwrap();
        let leader = one.leader().await.unwrap().unwrap();
        assert_eq!((leader.candidate.as_str(), leader.fence), ("two", second.fence()));
        assert!(second.fence() > 0 && second.loss().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_of_one_name_do_not_lead_together() {
    let server = server();
    let locks = locks(&server).await;
    let election = locks.election("scheduler", "the same");
    let first = election.campaign().await.unwrap();
    let impatient = election.clone().options(Options::new().wait(millis(200)));
    assert!(matches!(impatient.campaign().await, Err(Error::Busy { .. })));
    drop(first);
    let long = locks.election("scheduler", "x".repeat(219)).campaign().await.unwrap_err();
    assert!(matches!(long, Error::Setting { ref name, .. } if name == "candidate"), "{long}");
    let longest = locks.election("scheduler", "x".repeat(218)).campaign().await.unwrap();
    assert_eq!(longest.owner().len(), 255);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_observes_sees_each_leader_once() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let (one, two) = (ours.election("scheduler", "one"), theirs.election("scheduler", "two"));
        let mut seen = short(two.clone()).observe();
        assert_eq!(soon(seen.next()).await.map(name_of), Some(None));
        for election in [&one, &two, &two] {
            let leadership = soon(election.campaign()).await.unwrap();
            let leader = soon(seen.next()).await.unwrap().unwrap();
            assert_eq!(leader.fence, leadership.fence());
            assert!(leadership.owner().starts_with(&format!("{}/", leader.candidate)));
            assert!(leadership.resign().await.unwrap().in_time());
            assert_eq!(soon(seen.next()).await.map(name_of), Some(None));
        }
        assert!(theirs.close(LIMIT).await.is_empty());
        assert_eq!(soon(seen.next()).await, None);
    }
}

/// It looks once in a minute only.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_observes_hears_of_a_change_at_once() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let mut seen = theirs.election("scheduler", "-").look_every(LONG).observe();
        assert_eq!(soon(seen.next()).await.map(name_of), Some(None));
        for candidate in ["one", "two"] {
            let election = ours.election("scheduler", candidate);
            let leadership = soon(election.campaign()).await.unwrap();
            assert_eq!(soon(seen.next()).await.map(name_of), Some(Some(candidate.to_owned())));
            assert!(leadership.resign().await.unwrap().in_time());
            assert_eq!(soon(seen.next()).await.map(name_of), Some(None));
        }
        // A lease that ends by itself, on a server that does not look for that.
        let short = ours.election("scheduler", "short");
        let short = short.options(Options::new().fixed_ttl(millis(300)));
        let leadership = soon(short.campaign()).await.unwrap();
        assert_eq!(soon(seen.next()).await.unwrap().unwrap().fence, leadership.fence());
        assert_eq!(soon(seen.next()).await.map(name_of), Some(None));
    }
}

/// The user may not use what tells of changes: each look shows them.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_hear_of_changes_sees_them_later() {
    if lacks((7, 0), "rules for subcommands in the ACL") {
        return;
    }
    let server = server();
    server.cmd("ACL SETUSER watcher on >secret ~* +@all -client|tracking -get");
    let (ours, port) = (locks(&server).await, server.port());
    let url = format!("redis://watcher:secret@127.0.0.1:{port}");
    let theirs = leasehold_client::Locks::connect_with(url, Default::default()).await.unwrap();
    let mut seen = short(theirs.election("scheduler", "-")).observe();
    assert_eq!(soon(seen.next()).await.map(name_of), Some(None));
    let _leadership = ours.election("scheduler", "one").campaign().await.unwrap();
    assert_eq!(soon(seen.next()).await.map(name_of), Some(Some("one".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_observes_goes_on_when_the_server_is_back() {
    let mut server = server();
    let locks = locks(&server).await;
    let election = short(locks.election("scheduler", "one"));
    let mut seen = election.observe();
    assert_eq!(soon(seen.next()).await.map(name_of), Some(None));
    server.kill();
    let campaign = tokio::spawn(async move { election.campaign().await.unwrap() });
    server.start_again();
    let leadership = soon(campaign).await.unwrap();
    assert_eq!(soon(seen.next()).await.unwrap().unwrap().fence, leadership.fence());
}

/// Another one leads when the lease is over, and the former one knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_knows_it_and_another_one_leads() {
    for server in both_kinds() {
        let proxy = testkit::Proxy::to(server.port());
        let url = crate::scene::url(proxy.port());
        let cut_off = leasehold_client::Locks::connect_with(url, Default::default()).await.unwrap();
        let leadership = short(cut_off.election("scheduler", "one")).campaign().await.unwrap();
        let next = locks(&server).await;
        let campaign = tokio::spawn(async move {
            let next = next.election("scheduler", "two").options(Options::new().ttl(LONG));
            next.campaign().await.unwrap()
        });
        proxy.cut();
        assert_eq!(soon(leadership.lost()).await, Loss::Expired);
        let next = soon(campaign).await.unwrap();
        assert!(next.fence() > leadership.fence());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_gives_up_is_none_any_more() {
    let server = server();
    let locks = locks(&server).await;
    let leadership = locks.election("scheduler", "one").campaign().await.unwrap();
    let election = locks.election("scheduler", "two");
    let campaign = tokio::spawn(async move { election.campaign().await });
    eventually_waiting(&server, "scheduler", 1).await;
    campaign.abort();
    eventually_waiting(&server, "scheduler", 0).await;
    assert_eq!(leadership.loss(), None);
}
