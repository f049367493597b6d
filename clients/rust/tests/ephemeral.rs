//! Holds that end with their connection.

use crate::scene::{
    LONG, NOTHING, Way, behind, client, cluster_locks, eventually, eventually_free,
    eventually_renewed, eventually_waiting, held, is_held_by, locks, locks_with, millis,
    sentinel_locks, server, soon, ttl_of, with_module, without_module,
};
use leasehold_client::{Error, Guard, Locks, Loss, Released, Renew, Settings};
use redis::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Cluster, Proxy, Sentinels, Server, bulk_text, figure, wait_until_in_sync};
use tokio::time::sleep;

/// Where a program of its own, which this file is too, finds the server.
const SERVER: &str = "LEASEHOLD_TEST_EPHEMERAL";

async fn ephemeral(locks: &Locks, grace: Duration) -> Guard {
    soon(locks.lock("printer").ttl(LONG).ephemeral(grace)).await.unwrap()
}

fn connections(server: &Server) -> Vec<String> {
    let list = bulk_text(&server.cmd("CLIENT LIST"));
    let id = |line: &str| Some(line.split_once("id=")?.1.split_once(' ')?.0.to_owned());
    list.lines().filter(|line| !line.contains(" cmd=client")).filter_map(id).collect()
}

/// Ends all connections and waits until there is another one.
async fn reconnected(server: &Server) {
    let before = connections(server);
    server.cmd("CLIENT KILL TYPE normal SKIPME yes");
    eventually("there is another connection", || {
        let seen = connections(server);
        if seen.iter().any(|id| !before.contains(id)) { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// A program that holds a lock until it is killed.
#[tokio::test]
async fn a_program_that_holds_a_lock() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let locks = Locks::new(redis::Client::open(url).unwrap());
    let _guard = ephemeral(&locks, Duration::ZERO).await;
    println!("it is held");
    sleep(LONG).await;
}

fn program(server: &Server) -> Child {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["ephemeral::a_program_that_holds_a_lock", "--exact", "--nocapture"]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let mut program = program.env(SERVER, url).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains("it is held")));
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_program_is_killed_the_next_one_has_its_lock_at_once() {
    for way in Way::BOTH {
        let server = server();
        let mut program = program(&server);
        let locks = way.locks(&server, server.port(), Settings::default());
        let next = tokio::spawn(locks.lock("printer").into_future());
        eventually_waiting(&server, "printer", 1).await;
        let killed = Instant::now();
        program.kill().unwrap();
        drop(soon(next).await.unwrap().unwrap());
        let took = killed.elapsed();
        assert!(program.wait().is_ok());
        figure(&format!(
            "client: the lock of a killed program goes on after {} us",
            took.as_micros()
        ));
        assert!(took < millis(500), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_waited_for_is_bound_too() {
    for way in Way::BOTH {
        let server = server();
        let guard = locks(&server).lock("printer").await.unwrap();
        let link = Proxy::to(server.port());
        let theirs = way.locks(&server, link.port(), Settings::default());
        let waiting = theirs.lock("printer").ttl(LONG).ephemeral(millis(100));
        let waiting = tokio::spawn(waiting.into_future());
        eventually_waiting(&server, "printer", 1).await;
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let guard = soon(waiting).await.unwrap().unwrap();
        // The one on which it was told of the grant has no part in it.
        server.cmd("CLIENT KILL TYPE pubsub");
        sleep(millis(300)).await;
        assert_eq!(guard.loss(), None);
        assert!(is_held_by(&server, "printer", &guard), "{way:?}");
        drop(link);
        eventually_free(&server, "printer").await;
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_outlives_its_connections_if_the_client_comes_back_within_the_grace() {
    let server = server();
    let link = Proxy::to(server.port());
    let locks = behind(&link, Settings::default());
    let grace = millis(2_000);
    let guard = ephemeral(&locks, grace).await;
    for _ in 0..3 {
        reconnected(&server).await;
        // As long as before: also that is undone.
        eventually_renewed(&guard, LONG).await;
    }
    sleep(grace + millis(200)).await;
    assert_eq!(guard.loss(), None);
    assert!(is_held_by(&server, "printer", &guard));
    assert!(ttl_of(&server, "printer") > 30_000);
    // It is bound to the last connection.
    drop(link);
    let gone = Instant::now();
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    eventually_free(&server, "printer").await;
    assert!((1_500..6_000).contains(&gone.elapsed().as_millis()), "{:?}", gone.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_lost_and_says_so_if_the_grace_is_shorter_than_it_takes_to_come_back() {
    for grace in [Duration::ZERO, millis(300)] {
        let server = server();
        let link = Proxy::to(server.port());
        let ours = behind(&link, Settings::default());
        let guard = ephemeral(&ours, grace).await;
        let next = tokio::spawn(locks(&server).lock("printer").into_future());
        eventually_waiting(&server, "printer", 1).await;
        let cut = Instant::now();
        // It connects, and gets no answer for half a second.
        link.slow_all_but(link.connections(), millis(250));
        server.cmd("CLIENT KILL TYPE normal SKIPME yes");
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
        assert!(cut.elapsed() < grace + millis(300), "{:?}", cut.elapsed());
        assert_eq!(guard.valid_for(), Duration::ZERO);
        let next = soon(next).await.unwrap().unwrap();
        assert!(next.fence() > guard.fence());
        link.slow(Duration::ZERO);
        assert_eq!(guard.release().await.unwrap(), Released::Late);
        assert_eq!(next.release().await.unwrap(), Released::InTime);
    }
}

/// Until the client sees the end of the connection, it does not know; then it counts on no more than the grace.
#[tokio::test(flavor = "multi_thread")]
async fn from_the_end_of_the_connection_on_a_guard_counts_on_the_grace_alone() {
    let mut server = server();
    let grace = millis(3_000);
    let guard = ephemeral(&locks(&server), grace).await;
    assert!(guard.valid_for() > LONG / 2);
    server.kill();
    eventually("it has seen that", || match guard.valid_for() {
        left if left <= grace => Ok(()),
        left => Err(left),
    })
    .await;
    assert_eq!((guard.loss(), soon(guard.lost()).await), (None, Loss::Expired));
}

/// The server closes the connection, and the client does not hear of that before the lock is somebody else's, or nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_lost_meanwhile_is_not_taken_once_more() {
    for (taken, owner) in [(true, None), (false, None), (false, Some("worker-7"))] {
        let server = server();
        let settings = Settings { response_timeout: millis(200), ..Settings::default() };
        let ours = locks_with(&server, settings);
        let request = ours.lock("printer").ttl(LONG).ephemeral(LONG);
        let guard = match owner {
            Some(owner) => request.owner(owner).await.unwrap(),
            None => request.await.unwrap(),
        };
        server.cmd("DEL printer");
        let other = locks(&server);
        let other = if taken { other.lock("printer").try_now().await.unwrap() } else { None };
        server.cmd("CLIENT KILL TYPE normal SKIPME yes");
        assert_eq!(soon(guard.lost()).await, Loss::Taken);
        match other {
            Some(other) => {
                assert!(is_held_by(&server, "printer", &other));
                assert_eq!(other.release().await.unwrap(), Released::InTime);
            }
            None => eventually_free(&server, "printer").await,
        }
        assert_eq!(guard.release().await.unwrap(), Released::Late);
        assert_eq!(soon(ours.close(LONG)).await, NOTHING);
    }
}

/// A lease that is not renewed ends when it would have.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_no_longer_for_having_been_bound_again() {
    let server = server();
    let locks = locks(&server);
    let begun = Instant::now();
    let request = locks.lock("printer").ttl(millis(3_000)).renew(Renew::Never);
    let guard = request.ephemeral(millis(1_000)).await.unwrap();
    sleep(millis(1_000)).await;
    reconnected(&server).await;
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    assert!((2_900..3_800).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    eventually_free(&server, "printer").await;
}

/// It asks again, as nothing else it could do, and not without a rest.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_have_its_hold_again_does_not_ask_all_the_time() {
    let server = server();
    server.cmd("ACL SETUSER worker on >secret ~* &* +@all");
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let locks = Locks::new(redis::Client::open(url).unwrap());
    let guard = ephemeral(&locks, millis(2_000)).await;
    server.cmd("ACL SETUSER worker -lock.acquire");
    server.cmd("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    let refused = server.client().info_text("errorstats");
    let refused = refused.split_once("errorstat_NOPERM:count=").unwrap().1.lines().next().unwrap();
    assert!((1..20).contains(&refused.parse::<u32>().unwrap()), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_replicas_have_heard_of_is_bound_too() {
    let primary = server();
    let replica = with_module().replica_of(&primary).start();
    wait_until_in_sync(&primary, &replica);
    let locks = locks(&primary);
    let request = locks.lock("printer").replicas(1, LONG / 10).ephemeral(Duration::ZERO);
    let guard = soon(request).await.unwrap();
    // The connection on which replicas were waited for is gone by now.
    sleep(millis(200)).await;
    assert!(is_held_by(&primary, "printer", &guard));
    primary.cmd("CLIENT KILL TYPE normal SKIPME yes");
    eventually_free(&primary, "printer").await;
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_module_refuses_and_nothing_is_written() {
    let server = without_module().start();
    let locks = locks(&server);
    for wait in [Duration::ZERO, LONG] {
        let asked = locks.lock("printer").wait(wait).ephemeral(millis(1_000));
        let error = soon(asked).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    assert_eq!(soon(locks.close(LONG)).await, NOTHING);
    assert_eq!(server.cmd("KEYS *"), Value::Array(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_contradicts_itself_is_refused() {
    let server = server();
    let locks = locks(&server);
    let least = locks.lock("printer").ephemeral(LONG).hold_at_least(millis(10)).await.unwrap_err();
    assert!(least.to_string().starts_with("ephemeral: "), "{least}");
    let longest = locks.lock("printer").ephemeral(Duration::MAX).await.unwrap_err();
    assert!(longest.to_string().starts_with("ephemeral: "), "{longest}");
}

/// A binding is known to one process alone, and nobody is told of it at a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_bound_at_the_next_primary() {
    let mut sentinels = Sentinels::start();
    let locks = sentinel_locks(&sentinels, Settings::default());
    let guard = ephemeral(&locks, LONG / 2).await;
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    let primary = sentinels.server(primary);
    let bindings = || primary.client().info_field("leasehold", "leasehold_bindings");
    eventually("it is bound", || match bindings() {
        Some(count) if count == "1" => Ok(()),
        seen => Err(seen),
    })
    .await;
    eventually_renewed(&guard, LONG).await;
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    assert_eq!(bindings().as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_each_hold_ends_with_the_connection_to_its_node() {
    let cluster = Cluster::of(2, 0);
    let locks = cluster_locks(&cluster, Settings::default());
    let names = [0, 1].map(|node| cluster.slot_of(node).key("printer"));
    let guard = |name: &String| locks.lock(name).ttl(LONG).ephemeral(Duration::ZERO).into_future();
    let guards = [guard(&names[0]).await.unwrap(), guard(&names[1]).await.unwrap()];
    cluster.node(0).cmd("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(soon(guards[0].lost()).await, Loss::Expired);
    eventually_free(cluster.node(0), &names[0]).await;
    assert!(is_held_by(cluster.node(1), &names[1], &guards[1]));
    let again = soon(guard(&names[0])).await.unwrap();
    assert!(again.fence() > guards[0].fence());
    assert_eq!((again.loss(), guards[1].loss()), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_leaves_no_connection_that_holds_anything() {
    let server = server();
    let locks = Locks::new(client(server.port()));
    let guard = ephemeral(&locks, Duration::ZERO).await;
    // It is not released, but its connection ends with the last copy of the client.
    guard.detach();
    assert!(held(&server, "printer").is_some());
    drop(locks);
    eventually_free(&server, "printer").await;
    eventually("there is no connection", || match connections(&server) {
        none if none.is_empty() => Ok(()),
        some => Err(some),
    })
    .await;
}
