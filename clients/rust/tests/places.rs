//! What the program has of the redis crate: connection managers, users and databases, and settings of the environment.

use crate::scene::{
    Kind, LONG, NOTHING, client, eventually_free, eventually_waiting, is_alone, is_held_by, locks,
    millis, server, soon, ttl_of, with_module,
};
use leasehold_client::{Error, Locks, Released, Renew, Settings};
use redis::aio::ConnectionManager;
use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use std::time::Instant;
use testkit::{Server, bulk_text, lacks_notify};

async fn manager(server: &Server) -> ConnectionManager {
    client(server.port()).get_connection_manager().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_alone_locks_and_waits_and_opens_nothing_beside_itself() {
    for kind in Kind::BOTH {
        // There it would have to wait on a connection of its own, which it cannot open.
        if kind == Kind::With && lacks_notify() {
            continue;
        }
        let server = kind.setup().start();
        let ours = Locks::new(manager(&server).await);
        let theirs = locks(&server);
        let guard = theirs.lock("printer").ttl(LONG).await.unwrap();
        let connections = || crate::scene::connections(&server);
        let before = connections();
        let waiting = tokio::spawn(ours.lock("printer").ttl(LONG).into_future());
        if kind == Kind::With {
            eventually_waiting(&server, "printer", 1).await;
        }
        tokio::time::sleep(millis(500)).await;
        assert!(!waiting.is_finished());
        let begun = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let guard = soon(waiting).await.unwrap().unwrap();
        // It asks four times a second.
        assert!(begun.elapsed() < millis(1_500), "{:?}", begun.elapsed());
        assert!(is_held_by(&server, "printer", &guard));
        guard.extend(LONG).await.unwrap();
        for request in
            [ours.lock("scanner").ephemeral(LONG), ours.lock("scanner").replicas(1, millis(10))]
        {
            let error = soon(request).await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            eventually_free(&server, "scanner").await;
        }
        assert_eq!(connections(), before);
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        // The connection is the program's, and goes on.
        assert_eq!(soon(ours.close(LONG)).await, NOTHING);
        assert_eq!(connections(), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_with_its_client_has_all_that_a_client_has() {
    let server = server();
    let locks = Locks::new((manager(&server).await, client(server.port())));
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let waiting = tokio::spawn(locks.lock("printer").ttl(LONG).into_future());
    eventually_waiting(&server, "printer", 1).await;
    // It is told over a subscription: that takes no quarter of a second.
    tokio::time::sleep(millis(50)).await;
    let begun = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    let guard = soon(waiting).await.unwrap().unwrap();
    assert!(begun.elapsed() < millis(200), "{:?}", begun.elapsed());
    let visits = guard.run_command::<u64>(&redis::cmd("INCR").arg("visits").take()).await;
    assert_eq!(visits.unwrap(), 1);
    let replica = with_module().replica_of(&server).start();
    testkit::wait_until_in_sync(&server, &replica);
    let heard = soon(locks.lock("scanner").replicas(1, LONG)).await.unwrap();
    assert!(is_held_by(&replica, "scanner", &heard));
    let bound = locks.lock("modem").ttl(LONG).ephemeral(millis(0)).await.unwrap();
    crate::scene::cut_all(&server);
    assert_eq!(soon(bound.lost()).await, leasehold_client::Loss::Expired);
    eventually_free(&server, "modem").await;
    // The manager connects anew, and so does the subscription.
    let waiting = tokio::spawn(locks.lock("printer").ttl(LONG).into_future());
    eventually_waiting(&server, "printer", 1).await;
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    assert!(is_held_by(&server, "printer", &soon(waiting).await.unwrap().unwrap()));
}

/// A program should not have to say twice where its server is and as whom it logs in.
#[tokio::test(flavor = "multi_thread")]
async fn users_databases_and_protocols_are_those_of_the_program() {
    let server = server();
    // Characters that an address would have to have escaped.
    let password = "a/b:c@d #e?";
    server.cmd(["ACL", "SETUSER", "worker", "on", "~*", "&*", "+@all", &format!(">{password}")]);
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let user = RedisConnectionInfo::default().set_username("worker").set_password(password);
        let at = ConnectionAddr::Tcp("127.0.0.1".to_owned(), server.port());
        let info = at.into_connection_info().unwrap();
        let info = info.set_redis_settings(user.set_db(3).set_protocol(protocol));
        let locks = Locks::new(redis::Client::open(info).unwrap());
        let guard = locks.lock("printer").ephemeral(LONG).await.unwrap();
        let waiting = tokio::spawn(locks.lock("printer").into_future());
        let mut looking = server.client();
        looking.cmd("SELECT 3");
        crate::scene::eventually("it waits", || match looking.info("printer") {
            Some(info) if info.waiters == 1 => Ok(()),
            other => Err(other),
        })
        .await;
        let who = bulk_text(&server.cmd("CLIENT LIST"));
        let strangers =
            who.lines().filter(|line| line.contains("id=") && !line.contains("user=worker"));
        assert!(strangers.count() <= 2, "{who}");
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let next = soon(waiting).await.unwrap().unwrap();
        assert_eq!(next.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ttl_comes_from_the_environment() {
    let variables =
        "LEASEHOLD_TTL_MS=5000 LEASEHOLD_PREFIX=lock: LEASEHOLD_RENEW=off LEASEHOLD_WAIT_MS=20";
    if !is_alone("places::the_ttl_comes_from_the_environment", variables) {
        return;
    }
    let server = server();
    let settings = Settings::from_env().unwrap();
    assert_eq!((settings.renew, settings.retry_for), (Renew::Never, Settings::default().retry_for));
    let locks = Locks::with_settings(client(server.port()), settings).unwrap();
    let _guard = locks.lock("printer").await.unwrap();
    let left = ttl_of(&server, "lock:printer");
    assert!((1..=5_000).contains(&left), "{left}");
    assert!(matches!(soon(locks.lock("printer")).await, Err(Error::Busy { .. })));
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let named = |settings: Settings| match Locks::with_settings(client(1), settings) {
        Err(Error::Setting { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    let with = Settings::default;
    assert_eq!(named(Settings { retry_for: millis(0), ..with() }), "retry_for");
    assert_eq!(named(Settings { check_every: millis(0), ..with() }), "check_every");
    assert_eq!(named(Settings { wait_connections: 0, ..with() }), "wait_connections");
    let name = Some("a b".to_owned());
    assert_eq!(named(Settings { connection_name: name, ..with() }), "connection_name");
}
