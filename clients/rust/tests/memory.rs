//! Locks in memory. What they do is in the list of `clients/conformance`; this is how programs get them.

use crate::scene::{LONG, NOTHING, millis, soon};
use leasehold_client::testing::MemoryServer;
use leasehold_client::{Error, Locks, Loss, Released, Renew, Server, Settings, blocking};
use redis::aio::MultiplexedConnection;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;

#[tokio::test]
async fn programs_take_turns_without_a_server() {
    let server = MemoryServer::new();
    let (locks, other) = (Locks::new(&server), Locks::new(&server));
    let mut held = soon(other.lock("printer")).await.unwrap();
    assert!(soon(locks.lock("printer").try_now()).await.unwrap().is_none());
    let mut waits = Vec::new();
    for number in 1..=4 {
        waits.push(tokio::spawn(locks.lock("printer").wait(LONG).into_future()));
        let queued = async {
            while other.waiters("printer").await.unwrap().len() < number {
                sleep(millis(2)).await;
            }
        };
        soon(queued).await;
    }
    for waiting in waits {
        let fence = held.fence();
        assert_eq!(soon(held.release()).await.unwrap(), Released::InTime);
        held = soon(waiting).await.unwrap().unwrap();
        assert!(held.fence() > fence);
    }
    for locks in [other, locks] {
        assert_eq!(soon(locks.close(LONG)).await, NOTHING);
    }
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_runs_out_and_others_do_not() {
    let ttl = millis(200);
    let settings = Settings { ttl, ..Settings::default() };
    let locks = Locks::with_settings(&MemoryServer::new(), settings).unwrap();
    let lost = soon(locks.lock("printer").renew(Renew::Never)).await.unwrap();
    let renewed = soon(locks.lock("printer").wait(LONG)).await.unwrap();
    assert_eq!(soon(lost.lost()).await, Loss::Expired);
    let refused = soon(locks.lock("printer").wait(ttl * 4)).await;
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert_eq!(renewed.loss(), None);
}

#[tokio::test]
async fn a_program_reads_what_is_in_memory_and_cuts_connections() {
    let server = MemoryServer::new();
    let locks = Locks::new(&server);
    let info = redis::RedisConnectionInfo::default();
    let config = redis::AsyncConnectionConfig::new();
    let opening = MultiplexedConnection::new_with_config(&info, server.connect(), config);
    let (mut beside, driver) = opening.await.unwrap();
    tokio::spawn(driver);
    let guard = soon(locks.lock("printer")).await.unwrap();
    soon(guard.run_command::<()>(redis::cmd("SET").arg("page").arg(17))).await.unwrap();
    let page: u32 = redis::cmd("INCR").arg("page").query_async(&mut beside).await.unwrap();
    assert_eq!(page, 18);
    let bound = soon(locks.lock("desk").ttl(LONG).ephemeral(Duration::ZERO)).await.unwrap();
    let kill = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").take();
    kill.exec_async(&mut beside).await.unwrap();
    let next = soon(Locks::new(&server).lock("desk").wait(LONG)).await.unwrap();
    assert!(next.fence() > bound.fence());
    assert_eq!(soon(guard.release()).await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn the_thread_of_a_server_that_nobody_uses_ends() {
    let server = MemoryServer::new();
    let locks = Locks::new(&server);
    let guard = soon(locks.lock("printer")).await.unwrap();
    let mut last = server.connect();
    drop(server);
    assert_eq!(soon(guard.release()).await.unwrap(), Released::InTime);
    drop(locks);
    assert_eq!(soon(last.read(&mut [0])).await.unwrap(), 0);
}

#[test]
fn threads_and_quorums_have_them_too() {
    let servers = [MemoryServer::new(), MemoryServer::new(), MemoryServer::new()];
    let one = blocking::Locks::new(&servers[0]).unwrap();
    let quorum = blocking::Locks::new(Server::quorum(&servers)).unwrap();
    let guard = quorum.wait(quorum.lock("printer")).unwrap();
    assert!(one.wait(one.lock("printer").try_now()).unwrap().is_none());
    assert_eq!(quorum.wait(guard.release()).unwrap(), Released::InTime);
    let guard = one.wait(one.lock("printer").wait(LONG)).unwrap();
    assert_eq!(one.wait(guard.release()).unwrap(), Released::InTime);
}
