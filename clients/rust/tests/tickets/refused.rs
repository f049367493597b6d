//! Where a server gives no ticket, not for so long, or lets nobody be told of its grant.

use super::{connections, first_of, tickets};
use crate::scene::{
    LONG, eventually, eventually_waiting, locks, locks_with, millis, server, soon, with_module,
};
use leasehold_client::{Locks, Released, Settings};
use redis::Value;
use std::time::Instant;
use testkit::lacks_notify;
use tokio::time::sleep;

/// The channel is not one that the user may use, or may use no more: the wait goes on where it was.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_be_told_of_grants_waits_on_a_connection_in_the_same_place() {
    let server = server();
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let rights =
        "on >secret ~* +lock.acquire +lock.release +lock.extend +subscribe +client|setname";
    for channels in ["resetchannels", "resetchannels &leasehold:*"] {
        let made = server.cmd(format!("ACL SETUSER worker {channels} {rights}").as_str());
        assert_eq!(made, Value::Okay);
        let listens = channels.ends_with('*');
        let may = listens && !lacks_notify();
        let ours = locks(&server).await;
        let guard = ours.lock("printer").ttl(LONG).await.unwrap();
        let theirs = Locks::connect_with(url.as_str(), Settings::default()).await.unwrap();
        let first = tokio::spawn(theirs.lock("printer").into_future());
        eventually_waiting(&server, "printer", 1).await;
        assert_eq!(connections(&server, "grants"), usize::from(listens));
        assert_eq!(connections(&server, "waiting"), usize::from(!may));
        let second = tokio::spawn(ours.lock("printer").into_future());
        eventually_waiting(&server, "printer", 2).await;
        if may {
            server.cmd("ACL SETUSER worker resetchannels");
            eventually("it waits on a connection", || match connections(&server, "waiting") {
                1 => Ok(()),
                seen => Err(seen),
            })
            .await;
        }
        let fence = guard.fence();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let guard = first_of(first).await.unwrap();
        assert!(guard.fence() > fence && !second.is_finished());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        assert_eq!(first_of(second).await.unwrap().release().await.unwrap(), Released::Released);
        for locks in [&ours, &theirs] {
            assert_eq!(soon(locks.close(LONG)).await, [""; 0]);
        }
        drop((theirs, ours));
        eventually("their connections are closed", || match connections(&server, "") {
            0 => Ok(()),
            seen => Err(seen),
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_no_place_for_so_long_is_asked_more_often() {
    if lacks_notify() {
        return;
    }
    let server = with_module().module_args("max-ttl 900").start();
    let settings = Settings::default().ttl(millis(900));
    let (ours, theirs) =
        (locks_with(&server, settings.clone()).await, locks_with(&server, settings).await);
    let guard = ours.lock("printer").await.unwrap();
    let waiter = tokio::spawn(theirs.lock("printer").into_future());
    eventually_waiting(&server, "printer", 1).await;
    sleep(millis(2_000)).await;
    assert_eq!((tickets(&server), connections(&server, "waiting")), (1, 0));
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(first_of(waiter).await.unwrap());
    assert!(released.elapsed() < millis(250), "{:?}", released.elapsed());
}
