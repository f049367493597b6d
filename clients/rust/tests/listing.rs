//! Those who hold a lock and who wait for it, and the end of a hold by an operator.

use crate::scene::{
    LONG, both_kinds, eventually, eventually_waiting, held, locks, locks_with, millis, server, soon,
};
use leasehold_client::{Loss, Released, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn those_who_share_a_lock_are_listed_in_the_order_of_their_grants() {
    let server = server();
    let locks = locks_with(&server, Settings::default().prefix("table:")).await;
    assert_eq!(locks.holders("7").await.unwrap(), []);
    let first = locks.semaphore("7", 3).owner("alice").ttl(LONG).await.unwrap();
    let second = locks.read("7").owner("bob").ttl(LONG).await.unwrap();
    let holders = soon(locks.holders("7")).await.unwrap();
    let told: Vec<_> = holders.iter().map(|h| (h.owner.as_str(), h.fence, h.share)).collect();
    assert_eq!(told, [("alice", first.fence(), 3), ("bob", second.fence(), 0)]);
    assert!(holders.iter().all(|holder| holder.ttl > Some(LONG - millis(10_000))));
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_are_listed_the_next_one_first() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    assert_eq!(locks.waiters("printer").await.unwrap(), []);
    let mut waiting = Vec::new();
    for owner in ["bob", "carol"] {
        // Each by a client of its own: those of one client queue behind each other.
        let other = crate::scene::locks(&server).await;
        waiting.push(tokio::spawn(async move { other.lock("printer").owner(owner).await }));
        eventually_waiting(&server, "printer", i64::try_from(waiting.len()).unwrap()).await;
    }
    let queue = soon(locks.waiters("printer")).await.unwrap();
    let told: Vec<_> = queue.iter().map(|waiter| (waiter.owner.as_str(), waiter.share)).collect();
    assert_eq!(told, [("bob", 1), ("carol", 1)]);
    assert!(queue[0].waited >= queue[1].waited);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    for waiter in waiting {
        assert!(soon(waiter).await.unwrap().unwrap().release().await.unwrap().in_time());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_the_hold_of_somebody_else() {
    for server in both_kinds() {
        let (holder, operator) = (locks(&server).await, locks(&server).await);
        let guard = holder.lock("printer").owner("alice").ttl(millis(900)).await.unwrap();
        let only = operator.holders("printer").await.unwrap();
        assert_eq!(
            (only.len(), only[0].owner.as_str(), only[0].fence),
            (1, "alice", guard.fence())
        );
        for (owner, fence) in [("alice", guard.fence() - 1), ("bob", guard.fence())] {
            let other = operator.end_hold("printer", owner, fence).await.unwrap();
            assert_eq!(other, Released::Late);
        }
        assert!(held(&server, "printer").is_some());
        let ended = operator.end_hold("printer", "alice", guard.fence()).await.unwrap();
        assert_eq!(ended, Released::Released);
        assert_eq!(held(&server, "printer"), None);
        assert_eq!(soon(guard.lost()).await, Loss::Taken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_the_hold_of_another_kind_of_client() {
    for server in both_kinds() {
        let operator = locks(&server).await;
        server.cmd("SET printer some-uuid");
        let only = operator.holders("printer").await.unwrap();
        assert_eq!((only[0].owner.as_str(), only[0].fence, only[0].ttl), ("some-uuid", 0, None));
        let ended = operator.end_hold("printer", &only[0].owner, 0).await.unwrap();
        assert_eq!(ended, Released::Released);
        assert_eq!(held(&server, "printer"), None);
        assert_eq!(operator.waiters("printer").await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_tell_whose_they_are() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock_all(["a", "b"]).await.unwrap();
    assert_eq!(guard.owner("c"), None);
    for name in ["a", "b"] {
        let owner = guard.owner(name).unwrap().to_owned();
        let value = eventually("it is held", || held(&server, name).ok_or(())).await;
        assert!(value.ends_with(&owner), "{value}");
    }
}
